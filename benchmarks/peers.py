"""The allocators and token containers of serving engines, found in whatever is installed and used as they are.

A peer's class is imported unmodified from its engine. No GPU and no model is needed for it, and most of an engine is
neither installed nor imported: `SOURCES` lists what is left out, by name. What is called by a benchmark is the peer's
own bound method; an adapter only says what to pass to it and how to read what it returns.

An engine that is not installed, or whose classes have moved, raises `MissingPeerError` with the reason.
"""

import functools
import importlib
import importlib.abc
import importlib.machinery
import importlib.metadata
import importlib.util
import itertools
import os
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
import torch

from benchmarks import pools


class MissingPeerError(Exception):
    """A peer that cannot be had here; the message says why."""


class Source(NamedTuple):
    """Where an engine keeps its classes, and what is left out to reach them without the rest of it."""

    # Name here: module and name there.
    classes: dict[str, tuple[str, str]]
    # Packages that are entered without running their __init__, which would import the whole engine.
    bare: tuple[str, ...]
    # The engine's own modules for models, configuration and metrics: stand-ins take their place.
    stubbed: tuple[str, ...]
    # Compiled and network libraries: stand-ins take their place where they are not installed.
    optional: tuple[str, ...]


SOURCES = {
    "sglang": Source(
        classes={
            "HostKVCache": ("sglang.srt.mem_cache.pool_host.base", "HostKVCache"),
            "PagedTokenToKVPoolAllocator": ("sglang.srt.mem_cache.allocator.paged", "PagedTokenToKVPoolAllocator"),
            "RadixKey": ("sglang.srt.mem_cache.radix_cache", "RadixKey"),
            "flatten_arrays_to_int64_tensor": ("sglang.srt.utils.common", "flatten_arrays_to_int64_tensor"),
        },
        bare=("sglang", "sglang.srt", "sglang.srt.mem_cache", "sglang.srt.mem_cache.pool_host"),
        stubbed=("sglang.srt.mem_cache.memory_pool", "sglang.srt.observability.metrics_collector"),
        optional=("sgl_kernel", "triton", "PIL", "requests", "starlette", "zmq"),
    ),
    "vllm": Source(
        classes={
            "BlockPool": ("vllm.v1.core.block_pool", "BlockPool"),
            "CPUOffloadingManager": ("vllm.v1.kv_offload.cpu.manager", "CPUOffloadingManager"),
            "ReqContext": ("vllm.v1.kv_offload.base", "ReqContext"),
            "FreeKVCacheBlockQueue": ("vllm.v1.core.kv_cache_utils", "FreeKVCacheBlockQueue"),
            "KVCacheBlock": ("vllm.v1.core.kv_cache_utils", "KVCacheBlock"),
            "Request": ("vllm.v1.request", "Request"),
            "SamplingParams": ("vllm.sampling_params", "SamplingParams"),
            "get_request_block_hasher": ("vllm.v1.core.kv_cache_utils", "get_request_block_hasher"),
            "init_none_hash": ("vllm.v1.core.kv_cache_utils", "init_none_hash"),
            "sha256": ("vllm.utils.hashing", "sha256"),
        },
        bare=("vllm", "vllm.v1.structured_output"),
        stubbed=("vllm.config", "vllm.compilation", "vllm.multimodal", "vllm.tokenizers", "vllm.v1.hisparse"),
        optional=("requests", "urllib3", "uvloop", "zmq"),
    ),
    "lmcache": Source(
        classes={
            "AddressManager": ("lmcache.v1.memory_management", "AddressManager"),
            "PagedTensorMemoryAllocator": (
                "lmcache.v1.memory_allocators.paged_tensor_memory_allocator",
                "PagedTensorMemoryAllocator",
            ),
        },
        bare=(),
        stubbed=(),
        optional=("aiohttp", "requests"),
    ),
}

# Engines set up logging and usage reports while they are imported.
QUIET = {"VLLM_CONFIGURE_LOGGING": "0", "VLLM_NO_USAGE_STATS": "1", "LMCACHE_LOG_LEVEL": "ERROR", "DO_NOT_TRACK": "1"}


def installed() -> list[str]:
    """Return the engines that are installed, without importing any."""
    return [engine for engine in SOURCES if importlib.util.find_spec(engine) is not None]


def version(engine: str) -> str:
    """Return the version of an installed engine."""
    return importlib.metadata.version(engine)


def peer_class(engine: str, name: str) -> Any:
    """Return a class of an engine, as the engine defines it.

    Raises MissingPeerError where the engine is not installed, or does not have the class where it is looked for.
    """
    return class_of(engine, *SOURCES[engine].classes[name])


@functools.cache
def class_of(engine: str, module: str, name: str, needed: tuple[str, ...] = ()) -> Any:
    """Return what a module of an engine calls so; no stand-ins take the place of what is `needed`.

    Raises MissingPeerError where the engine is not installed, or does not have it there.
    """
    if importlib.util.find_spec(engine) is None:
        raise MissingPeerError(f"{engine} is not installed")
    source = SOURCES[engine]
    source = source._replace(optional=tuple(each for each in source.optional if each not in needed))
    try:
        with _without_the_rest(source):
            return getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as error:
        reason = f"{engine} {version(engine)} is installed, but its {name} cannot be had: {error}"
        raise MissingPeerError(reason) from error


class StandIn:
    """Takes the place of what a module defines: it can be named and used as a decorator while an engine is imported.

    Called later it raises: no benchmark can have measured one.
    """

    importing = False

    def __init__(self, name: str) -> None:
        self.name = name

    def __getattr__(self, name: str) -> "StandIn":
        if name.startswith("__"):
            raise AttributeError(name)
        return StandIn(f"{self.name}.{name}")

    def __call__(self, *args: Any, **options: Any) -> Any:
        """Decorate nothing during an import; raise at any other time."""
        if not StandIn.importing:
            raise RuntimeError(f"{self.name} is a stand-in and cannot be called")
        return args[0] if len(args) == 1 and callable(args[0]) and not options else StandIn(f"{self.name}()")

    def __mro_entries__(self, bases: tuple[Any, ...]) -> tuple[Any, ...]:
        return ()

    def __getitem__(self, key: Any) -> "StandIn":
        return self

    def __or__(self, other: Any) -> "StandIn":
        return self

    __ror__ = __or__


class StandInModule(ModuleType):
    """Takes the place of a module."""

    def __getattr__(self, name: str) -> StandIn:
        if name.startswith("__"):
            raise AttributeError(name)
        return StandIn(f"{self.__name__}.{name}")


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds the bare packages and the stand-ins of one source."""

    def __init__(self, source: Source) -> None:
        self.bare = source.bare
        self.stubbed = source.stubbed + tuple(name for name in source.optional if not importlib.util.find_spec(name))
        self.stood_in: list[str] = []

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> importlib.machinery.ModuleSpec | None:
        if name in self.bare:
            spec = importlib.machinery.PathFinder.find_spec(name, path)
            if spec is not None:
                spec.loader = self
            return spec
        if any(name == each or name.startswith(each + ".") for each in self.stubbed):
            self.stood_in.append(name)
            return importlib.machinery.ModuleSpec(name, self, is_package=True)
        return None

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        return None if spec.name in self.bare else StandInModule(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        pass


@contextmanager
def _without_the_rest(source: Source) -> Iterator[None]:
    """Import a source's modules with its bare packages and stand-ins; what stood in is forgotten afterwards."""
    finder = _Finder(source)
    for name, value in QUIET.items():
        os.environ.setdefault(name, value)
    sys.meta_path.insert(0, finder)
    StandIn.importing = True
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        StandIn.importing = False
        sys.meta_path.remove(finder)
        for name in finder.stood_in:
            sys.modules.pop(name, None)


@dataclass(frozen=True)
class Pool:
    """An allocator of pages behind one interface: `alloc(*request(pages))`, `free(*release(result))`.

    `alloc` and `free` are the allocator's own bound methods, at most with an argument fixed. The rest says what to pass
    to them and how to read what comes back, and is never timed.
    """

    alloc: Callable[..., Any]
    free: Callable[..., Any]
    # The arguments that ask for so many pages.
    request: Callable[[int], tuple[Any, ...]]
    # The arguments that give a result back piece by piece, so many pages at a time.
    parts: Callable[[Any, int], list[tuple[Any, ...]]]
    # The ids of the pages of a result, in its order.
    page_ids: Callable[[Any], np.ndarray]
    # What a result is.
    returns: str
    # The arguments that give a whole result back.
    release: Callable[[Any], tuple[Any, ...]] = lambda result: (result,)
    # Whether what is freed last is handed out first.
    lifo: bool = False
    # The arguments that give back several pieces in one call, where there are such.
    join: Callable[[list[tuple[Any, ...]]], tuple[Any, ...]] | None = None
    # How the allocator says that a request does not fit, other than by None.
    refusals: tuple[type[Exception], ...] = ()

    def try_alloc(self, pages: int) -> Any:
        """Allocate; return None for what does not fit, however the allocator says it."""
        try:
            return self.alloc(*self.request(pages))
        except self.refusals:
            return None


def _of_slots(pool: Any, page_size: int, **options: Any) -> Pool:
    return Pool(
        alloc=options.pop("alloc", pool.alloc),
        free=options.pop("free", pool.free),
        request=lambda pages: (pages * page_size,),
        parts=lambda slots, pages: [(part,) for part in torch.split(slots, pages * page_size)],
        page_ids=lambda slots: slots[::page_size].numpy() // page_size,
        join=lambda parts: (torch.cat([part for (part,) in parts]),),
        returns="slots",
        **options,
    )


def _slices(result: Any, pages: int) -> list[tuple[Any, ...]]:
    return [(result[start : start + pages],) for start in range(0, len(result), pages)]


def _chained(parts: list[tuple[Any, ...]]) -> tuple[Any, ...]:
    return (list(itertools.chain.from_iterable(part for (part,) in parts)),)


def kvpool_host(num_pages: int, page_size: int, method: str = "fifo") -> Pool:
    """Build kvpool's host tier, in slots, by one of its three methods."""
    pool = pools.host_pool(num_pages, page_size)
    return _of_slots(pool, page_size, alloc=pools.host_method(pool, method))


def kvpool_pages(num_pages: int, page_size: int, method: str = "fifo") -> Pool:
    """Build kvpool's host tier, in page ids."""
    pool = pools.host_pool(num_pages, page_size)
    return Pool(
        alloc=pools.feature(pool, "alloc_pages"),
        free=pools.feature(pool, "return_pages"),
        request=lambda pages: (pages, method),
        parts=_slices,
        join=lambda parts: (np.concatenate([part for (part,) in parts]),),
        page_ids=lambda page_ids: page_ids,
        returns="page ids",
    )


def sglang(num_pages: int, page_size: int) -> Pool:
    """Build SGLang's host tier: a free list of slots, checked by a flag a slot."""
    host = peer_class("sglang", "HostKVCache")
    # What the abstract methods move is the data, of which there is none.
    concrete = type("HostPool", (host,), dict.fromkeys(host.__abstractmethods__))
    pool = concrete(
        dtype=torch.float16,
        device_capacity_tokens=0,
        size_per_token=1,
        start_layer=0,
        end_layer=1,
        host_to_device_ratio=1.0,
        host_size=0,
        page_size=page_size,
        layout="page_first",
        pin_memory=False,
        device="cpu",
        is_dummy=True,
        host_token_capacity=num_pages * page_size,
    )
    return _of_slots(pool, page_size)


def sglang_paged(num_pages: int, page_size: int) -> Pool:
    """Build SGLang's device pool, on the CPU: a free list of page ids, freed pages in front."""
    paged = peer_class("sglang", "PagedTokenToKVPoolAllocator")
    pool = paged(num_pages * page_size, page_size, torch.float16, "cpu", kvcache=None, need_sort=False)
    # Whole pages in order, as its prefix tree frees them; older versions have only the other way, which sorts them.
    free = functools.partial(pool.free_segment, start_pos=0) if hasattr(pool, "free_segment") else pool.free
    return _of_slots(pool, page_size, free=free, lifo=True)


def _of_blocks(**options: Any) -> Pool:
    return Pool(
        request=lambda pages: (pages,),
        parts=_slices,
        join=_chained,
        page_ids=lambda blocks: np.array([block.block_id for block in blocks]),
        returns="block objects",
        **options,
    )


def vllm(num_pages: int, page_size: int) -> Pool:
    """Build vLLM's block pool, prefix caching on as by default: counted block objects, freed ones in front."""
    # One block more: the pool keeps the first for padding.
    pool = peer_class("vllm", "BlockPool")(num_pages + 1, enable_caching=True, hash_block_size=page_size)
    return _of_blocks(alloc=pool.get_new_blocks, free=pool.free_blocks, lifo=True, refusals=(ValueError,))


def vllm_queue(num_pages: int, page_size: int) -> Pool:
    """Build vLLM's bare queue of free blocks, without reference counts, in FIFO order."""
    block = peer_class("vllm", "KVCacheBlock")
    queue = peer_class("vllm", "FreeKVCacheBlockQueue")([block(each) for each in range(num_pages)])
    return _of_blocks(alloc=queue.popleft_n, free=queue.append_n, refusals=(AssertionError,))


def lmcache(num_pages: int, page_size: int) -> Pool:
    """Build LMCache's address manager: one range of bytes, the lowest that fits, from a sorted list of free ranges."""
    manager = peer_class("lmcache", "AddressManager")
    page_bytes = manager.ALIGN_BYTES
    pool = manager(num_pages * page_bytes)

    def parts(result: tuple[int, int], pages: int) -> list[tuple[int, int]]:
        address, size = result
        step = pages * page_bytes
        return [(start, min(step, address + size - start)) for start in range(address, address + size, step)]

    return Pool(
        alloc=pool.allocate,
        free=pool.free,
        request=lambda pages: (pages * page_bytes,),
        release=lambda result: result,
        parts=parts,
        page_ids=lambda result: np.arange(result[0] // page_bytes, sum(result) // page_bytes),
        returns="one address range",
        refusals=(RuntimeError,),
    )


def lmcache_batched(num_pages: int, page_size: int, pages_at_once: int = 1) -> Pool:
    """Build LMCache's address manager, asked for ranges of `pages_at_once` pages: it serves what no one range holds.

    Its results are given back range by range (`parts`), never whole.
    """
    manager = peer_class("lmcache", "AddressManager")
    page_bytes = manager.ALIGN_BYTES
    pool = manager(num_pages * page_bytes)

    def parts(ranges: list[tuple[int, int]], pages: int) -> list[tuple[int, int]]:
        if pages != pages_at_once:
            raise ValueError(f"ranges of {pages_at_once} pages cannot be freed {pages} at a time")
        return ranges

    return Pool(
        alloc=pool.batched_allocate,
        free=pool.free,
        request=lambda pages: (pages_at_once * page_bytes, pages // pages_at_once),
        parts=parts,
        page_ids=lambda ranges: np.concatenate(
            [np.arange(start // page_bytes, (start + size) // page_bytes) for start, size in ranges]
        ),
        returns="address ranges",
        refusals=(RuntimeError,),
    )


def lmcache_paged(num_pages: int, page_size: int) -> Pool:
    """Build LMCache's paged allocator: memory objects of one page, first freed, first reused.

    An object that is dropped without being freed goes back to the pool by itself.
    """
    shapes, dtypes = [torch.Size([1])], [torch.uint8]
    paged = peer_class("lmcache", "PagedTensorMemoryAllocator")
    pool = paged(torch.empty(num_pages, dtype=torch.uint8), shapes, dtypes)
    return Pool(
        alloc=pool.batched_allocate,
        free=pool.batched_free,
        request=lambda pages: (shapes, dtypes, pages),
        parts=_slices,
        join=_chained,
        page_ids=lambda objects: np.array([each.meta.address for each in objects]),
        returns="memory objects",
    )


POOLS: dict[str, Callable[[int, int], Pool]] = {
    **{f"kvpool_{method}": functools.partial(kvpool_host, method=method) for method in pools.HOST_METHODS},
    "kvpool_pages": kvpool_pages,
    "sglang": sglang,
    "sglang_paged": sglang_paged,
    "vllm": vllm,
    "vllm_queue": vllm_queue,
    "lmcache": lmcache,
    "lmcache_paged": lmcache_paged,
}


def arrange(pool: Pool, num_pages: int, free_order: Sequence[int]) -> list[Any]:
    """Bring an all-free pool to a state in which just these pages are free, handed out in this order where it can.

    Pages count from the first that a new pool hands out. Returns what stays allocated; it has to be kept, for some
    results free themselves when they are dropped.
    """
    pages = pool.parts(pool.alloc(*pool.request(num_pages)), 1)
    free_pages(pool, [pages[page] for page in free_order])
    free = set(free_order)
    return [part for page, part in enumerate(pages) if page not in free]


def free_pages(pool: Pool, pages: list[tuple[Any, ...]]) -> None:
    """Free pages so that they are handed out in this order, where the pool knows an order."""
    if pool.join is not None:
        pool.free(*pool.join(pages))
        return
    for page in reversed(pages) if pool.lifo else pages:
        pool.free(*page)
