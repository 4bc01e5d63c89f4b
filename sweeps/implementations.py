"""The allocators sweep with other implementations than kvpool's: `--host-impl`, `--l1-impl`, `--l1-allocator`.

`simple` is the straightforward allocator of `oracle`, lists of pages searched from the start, that kvpool's tests
compare with. The other names are the engines' allocators of `benchmarks.peers`. Those that cannot be restored from a
snapshot are brought to their state page by page before each sample, off the clock.
"""

import argparse
import functools
import importlib.util
import re
from argparse import Namespace
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks import peers, pools
from oracle import HostOracle, LaneOracle
from sweeps.common import Parser

OWN = "kvpool"
SIMPLE = "simple"
ENGINES = [name for name in peers.POOLS if not name.startswith(OWN)]
IMPLEMENTATIONS = (OWN, SIMPLE, *ENGINES)
L1_ALLOCATORS = ("standalone", "production")
PRODUCTION = "CPSharedPagedTokenToKVPoolAllocator"

# (prepare, call, contiguous), as `Prepared` of the sweep takes them.
Steps = tuple[Callable[[], Any], Callable[[Any], Any], Callable[[Any, Any], bool]]


def add_arguments(parser: Parser) -> None:
    """Add what chooses the implementations."""
    for tier in ("host", "l1"):
        parser.add_argument(f"--{tier}-impl", type=_implementation, default=OWN, metavar="NAME", help=_NAMES)
    parser.add_argument("--l1-allocator", type=_l1_allocator, default="standalone", help="production: an engine's own")
    parser.add_argument("--stub-sgl-kernel", action="store_true", help="a stand-in for SGLang's compiled module")


def check(command: Parser, arguments: Namespace) -> None:
    """Report an implementation that is not there or cannot do what is asked, before anything runs."""
    for tier in ("host", "l1"):
        name = getattr(arguments, f"{tier}_impl")
        if name in ENGINES and tier in arguments.bench:
            try:
                peers.POOLS[name](1, 1)
            except peers.MissingPeerError as missing:
                command.error(f"argument --{tier}-impl: {name}: {missing}")
    if "l1" not in arguments.bench:
        return
    if arguments.l1_impl in ENGINES and arguments.cp_size != 1:
        command.error(f"argument --l1-impl: {arguments.l1_impl} knows no owners: write --cp-size 1 with it")
    if arguments.l1_impl != OWN and arguments.l1_allocator == "production":
        command.error("argument --l1-allocator: production is an implementation itself: write no --l1-impl with it")
    if arguments.l1_allocator == "production":
        try:
            production_class(arguments.stub_sgl_kernel)
        except peers.MissingPeerError as missing:
            command.error(f"argument --l1-allocator: {missing}: write standalone")


def host_methods(arguments: Namespace) -> list[str]:
    """Return the ways to choose pages that the implementation has: an engine's pool has its own alone."""
    if arguments.host_impl not in ENGINES:
        return arguments.host_methods
    return [arguments.host_impl, *(name for name in arguments.host_methods if name == "floor")]


def prepare_host(case: Any, implementation: str, free_order: np.ndarray) -> Steps:
    """Return what measures a case of the host tier."""
    if implementation == SIMPLE:
        return _simple_host(case, free_order)
    pool = peers.POOLS[implementation](case.pages, case.page_size)
    return _Engine(pool, case.pages, free_order.tolist(), case.request).steps("alloc")


def prepare_l1(case: Any, arguments: Namespace, owners: np.ndarray) -> Steps:
    """Return what measures a case of the device tier."""
    if case.method not in ("alloc_pages", "free"):
        raise NotImplementedError(f"{arguments.l1_impl} has no {case.method}")
    lanes = pools.free_sets(case.pattern, case.pages, arguments.cp_size, owners, arguments.seed)
    if arguments.l1_impl == SIMPLE:
        return _simple_l1(case, lanes, owners, arguments.cp_size)
    pool = peers.POOLS[arguments.l1_impl](case.pages, case.page_size)
    return _Engine(pool, case.pages, lanes[0].tolist(), case.request).steps(case.method)


def production_class(stub_sgl_kernel: bool) -> Any:
    """Return the engine's own allocator by owner, from whatever module of SGLang's memory cache defines it.

    Raises MissingPeerError where SGLang is not installed, has none, or cannot be imported as it is.
    """
    spec = importlib.util.find_spec("sglang")
    if spec is None or not spec.submodule_search_locations:
        raise peers.MissingPeerError("sglang is not installed")
    root = Path(next(iter(spec.submodule_search_locations)))
    defines = re.compile(rf"^class {PRODUCTION}\b", re.MULTILINE)
    for path in sorted((root / "srt" / "mem_cache").rglob("*.py")):
        if defines.search(path.read_text(encoding="utf-8", errors="replace")):
            module = ".".join(("sglang", *path.relative_to(root).with_suffix("").parts)).removesuffix(".__init__")
            return peers.class_of("sglang", module, PRODUCTION, () if stub_sgl_kernel else ("sgl_kernel",))
    raise peers.MissingPeerError(f"the sglang that is installed has no {PRODUCTION}")


def production_pool(arguments: Namespace, physical_pages: int, page_size: int, device: str) -> Any:
    """Build an engine's own allocator by owner, all free."""
    physical = physical_pages * page_size
    pool = production_class(arguments.stub_sgl_kernel)(
        logical_size=physical * arguments.cp_size,
        physical_size=physical,
        page_size=page_size,
        dtype=torch.float16,
        device=device,
        kvcache=None,
        need_sort=False,
        cp_size=arguments.cp_size,
        cp_rank=0,
    )
    pool.cp_size, pool.physical_pages = arguments.cp_size, physical_pages
    return pool


def restorer(pool: Any) -> Callable[[], None]:
    """Return what brings a device pool back to the state that it has now."""
    if hasattr(pool, "snapshot"):
        return functools.partial(pool.restore, pool.snapshot())
    free, released = pool.free_pages.clone(), pool.release_pages.clone()

    def restore() -> None:
        # Emptied first: no page may be in both for a moment.
        pool.release_pages = released[:0].clone()
        pool.free_pages = free.clone()
        pool.release_pages = released.clone()

    return restore


class _Engine:
    """An engine's pool, with just these pages free before each sample, in this order."""

    def __init__(self, pool: peers.Pool, num_pages: int, free_order: list[int], request: int) -> None:
        self.pool = pool
        self.request = pool.request(request)
        self.free_pages = len(free_order)
        # What is allocated throughout: some results free themselves when they are dropped.
        self.held = peers.arrange(pool, num_pages, free_order)
        self.result = None
        self.order = None
        self.reorder()

    def reorder(self) -> None:
        """Take all free pages and free them in their order; a pool that hands out by run only has none."""
        whole = self.pool.try_alloc(self.free_pages)
        if whole is None:
            return
        page_ids = self.pool.page_ids(whole).tolist()
        pages = dict(zip(page_ids, self.pool.parts(whole, 1), strict=True))
        self.order = self.order or page_ids
        peers.free_pages(self.pool, [pages[page] for page in self.order])

    def rewind(self) -> tuple[Any, ...]:
        """Bring the pool back, and return what asks for the pages."""
        if self.result is not None:
            self.pool.free(*self.pool.release(self.result))
            self.result = None
            self.reorder()
        return self.request

    def allocate(self, request: tuple[Any, ...]) -> Any:
        """Allocate; None for a refusal."""
        try:
            self.result = self.pool.alloc(*request)
        except self.pool.refusals:
            return None
        return self.result

    def rewind_and_allocate(self) -> tuple[Any, ...]:
        """Bring the pool back, allocate, and return what gives the pages back."""
        result = self.allocate(self.rewind())
        if result is None:
            raise NotImplementedError("the request does not fit")
        return self.pool.release(result)

    def free(self, release: tuple[Any, ...]) -> bool:
        """Give the pages back."""
        self.pool.free(*release)
        return True

    def freed(self) -> tuple[Any, ...]:
        """Bring the pool back after a free, allocate again, and return what gives the pages back."""
        self.result = None
        self.reorder()
        return self.rewind_and_allocate()

    def steps(self, method: str) -> Steps:
        """Return what measures an allocation or a free."""
        if method == "free":
            return self.freed, self.free, lambda *_: self.contiguous(self.result)
        return self.rewind, self.allocate, lambda _, result: self.contiguous(result)

    def contiguous(self, result: Any) -> bool:
        """Whether a result is one ascending run of pages."""
        return bool(np.all(np.diff(self.pool.page_ids(result)) == 1))


def _simple_host(case: Any, free_order: np.ndarray) -> Steps:
    pool = HostOracle(case.pages)
    order = free_order.tolist()

    def rewind() -> int:
        pool.free = order.copy()
        return case.request

    return rewind, lambda pages: pool.take(pages, case.method), lambda _, pages: _ascends(pages, 1)


def _simple_l1(case: Any, lanes: list[np.ndarray], owners: np.ndarray, cp_size: int) -> Steps:
    pool = LaneOracle(case.pages, cp_size, case.selection)
    free = [(lane * cp_size + rank + 1).tolist() for rank, lane in enumerate(lanes)]
    ranks = owners.tolist()

    def rewind() -> list[int]:
        pool.free = [lane.copy() for lane in free]
        pool.released = [[] for _ in free]
        return ranks

    def rewind_and_allocate() -> list[int]:
        pages = pool.take(rewind())
        if pages is None:
            raise NotImplementedError("the request does not fit")
        return pages

    def contiguous(pages: list[int]) -> bool:
        return all(_ascends(np.array(pages)[owners == rank], cp_size) for rank in range(cp_size))

    if case.method == "free":
        return rewind_and_allocate, lambda pages: pool.give_back(pages) is None, lambda pages, _: contiguous(pages)
    return rewind, pool.take, lambda _, pages: contiguous(pages)


def _ascends(page_ids: Any, stride: int) -> bool:
    return bool(np.all(np.diff(page_ids) == stride))


_NAMES = f"one of {','.join(IMPLEMENTATIONS)}"


def _implementation(text: str) -> str:
    return _one_of(text, IMPLEMENTATIONS)


def _l1_allocator(text: str) -> str:
    return _one_of(text, L1_ALLOCATORS)


def _one_of(text: str, known: tuple[str, ...]) -> str:
    if text not in known:
        raise argparse.ArgumentTypeError(f"unknown name {text!r}: write one of {','.join(known)}")
    return text
