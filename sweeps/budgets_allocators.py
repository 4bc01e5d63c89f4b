"""The allocators' budgets: churned pools at 90 % full, timed beside the cheapest way to hand out the same slots."""

import collections
import functools
import gc
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from benchmarks.common import book_bytes, floor
from benchmarks.pools import PAGE_ORDERS, arrange_paged
from kvpool import HostAllocator, OwnerLaneAllocator, PagedAllocator
from sweeps.budgets import Line, Measure

PAGE_SIZE = 64
POOL = 34_375
LARGE_POOL = 4_194_304
SIZES = (1, 8, 64, 512)
FULL = 0.9


def measurements() -> Iterator[Measure]:
    """Yield the measurements; each returns its lines."""
    yield from (partial(alloc_lines, method, n) for method in METHODS for n in SIZES)
    yield from (partial(free_lines, n) for n in SIZES)
    yield from (partial(pages_lines, n) for n in SIZES)
    yield from (partial(take_lines, n) for n in SIZES)
    yield from (partial(isolated_head_lines, n) for n in SIZES[1:])
    yield from (partial(growth_lines, n, isolated_head=False) for n in SIZES)
    yield from (partial(growth_lines, n, isolated_head=True) for n in SIZES[1:])
    yield lane_lines
    yield from (partial(paged_lines, order) for order in PAGE_ORDERS)
    yield book_lines
    yield build_lines
    yield import_lines


METHODS = ("alloc", "alloc_contiguous_preferred", "alloc_fewest_runs")
TAILS = METHODS[:2]
CALLS = 2_000


def random(seed: int = 0) -> np.random.Generator:
    """Return the generator that a seed names."""
    return np.random.Generator(np.random.PCG64(seed))


class Churn:
    """A pool whose every page has been handed out, 90 % full, its free pages scattered and in random order."""

    def __init__(self, num_pages: int) -> None:
        self.pool = HostAllocator(num_pages, PAGE_SIZE)
        self.random = random(num_pages)
        self.pool.alloc_pages(num_pages)
        pages = self.random.permutation(num_pages)
        num_free = round(num_pages * (1 - FULL))
        self.pool.return_pages(pages[:num_free])
        # What is taken, longest first: a ring that `swap` reads and writes at one place.
        self.taken = pages[num_free:]
        self.oldest = 0

    def age(self, calls: int) -> None:
        """Churn the pool further, by requests of all sizes."""
        for size in self.random.choice(SIZES[1:], calls).tolist():
            self.swap(self.pool.alloc_contiguous_preferred(size * PAGE_SIZE))

    def swap(self, slots: torch.Tensor | None, _: object = None) -> None:
        """Give back as many pages of those taken longest ago as a result has, which takes their place."""
        assert slots is not None
        pages = slots.numpy()[::PAGE_SIZE] // PAGE_SIZE
        places = (self.oldest + np.arange(pages.size)) % self.taken.size
        self.oldest = (self.oldest + pages.size) % self.taken.size
        self.pool.return_pages(self.taken[places])
        self.taken[places] = pages


class IsolatedHead(Churn):
    """A pool 90 % full with one isolated page at its FIFO head, and free stretches that serve every request in one run.

    No call takes the head, so that every entry behind it goes stale in the middle of the order.
    """

    STRETCH = 1024
    HELD = 4

    def __init__(self, num_pages: int) -> None:
        self.pool = HostAllocator(num_pages, PAGE_SIZE)
        self.random = random(num_pages)
        self.pool.alloc_pages(num_pages)
        stretches = self.random.permutation(num_pages // self.STRETCH - 1)[
            : round(num_pages * (1 - FULL) / self.STRETCH)
        ]
        free = (stretches[:, None] * self.STRETCH + np.arange(self.STRETCH)).ravel()
        self.pool.return_pages([num_pages - 1])
        self.pool.return_pages(self.random.permutation(free))
        self.held: collections.deque[torch.Tensor] = collections.deque()

    def swap(self, slots: torch.Tensor | None, _: object = None) -> None:
        """Keep a result, and give back the one before the last few."""
        assert slots is not None
        self.held.append(slots)
        if len(self.held) > self.HELD:
            self.pool.free(self.held.popleft())

    def check(self) -> None:
        """Assert that the head is where it was."""
        assert self.pool.free_page_ids()[0] == self.pool.num_pages - 1, "the isolated page was taken"


@functools.cache
def aged(kind: type[Churn], num_pages: int) -> Churn:
    """Return a churned pool; those who measure leave as many pages free as they found."""
    churn = kind(num_pages)
    churn.age(4_000)
    churn.pool.check()
    return churn


def alternate(
    calls: int, ours: Callable[[], Any], theirs: Callable[[], Any], after: Callable[[Any, Any], None]
) -> npt.NDArray[np.float64]:
    """Time two things one after the other; return both samples in us. `after` gets both results, off the clock."""
    clock = time.perf_counter_ns
    samples = np.empty((2, calls))
    gc.collect()
    gc.disable()
    for i in range(calls):
        start = clock()
        result = ours()
        middle = clock()
        other = theirs()
        end = clock()
        samples[:, i] = middle - start, end - middle
        after(result, other)
        del result, other
    gc.enable()
    return samples / 1000


def ratio_lines(name: str, n: int, samples: Any, factor: float, *, tail: bool = True) -> list[Line]:
    """Return the median of our samples beside `factor` x floor, and their tail."""
    ours, theirs = np.median(samples, axis=1)
    lines = [Line(f"{name}, {n} pages: median", ours / theirs, factor, "x floor")]
    if tail:
        p99 = np.percentile(samples[0], 99)
        lines.append(Line(f"{name}, {n} pages: p99", p99 / theirs, 10 + 20 / theirs, "x floor"))
    return lines


# For each of the sizes, in times the floor; alloc_pages in times np.arange.
BUDGETS = {
    "alloc": (0.6, 0.7, 0.9, 1.0),
    "alloc_contiguous_preferred": (0.6, 1.0, 1.1, 1.1),
    "alloc_fewest_runs": (1.3, 1.3, 1.4, 1.4),
    "free": (0.4, 0.45, 0.7, 0.9),
    "alloc_pages": (0.5, 0.6, 1.2, 2.5),
}
LANE_BUDGET = 1.1


def budget(method: str, n: int) -> float:
    """Return what a method may take for so many pages."""
    return BUDGETS[method][SIZES.index(n)]


def alloc_samples(churn: Churn, method: str, n: int, calls: int) -> Any:
    """Time an allocation; as many of the pages that were taken longest ago go back after each."""
    call = partial(getattr(churn.pool, method), n * PAGE_SIZE)
    return alternate(calls, call, partial(floor, n * PAGE_SIZE), churn.swap)


def alloc_lines(method: str, n: int) -> list[Line]:
    """Time an allocation on a pool that stays 90 % full."""
    churn = aged(Churn, POOL)
    samples = alloc_samples(churn, method, n, CALLS)
    return ratio_lines(method, n, samples, budget(method, n), tail=method in TAILS)


def free_samples(churn: Churn, n: int, calls: int, method: str = "alloc") -> Any:
    """Time giving back what `method` has just returned."""
    allocate = partial(getattr(churn.pool, method), n * PAGE_SIZE)
    held = [allocate()]

    def give_back() -> int:
        return churn.pool.free(held[0])

    def renew(*_: object) -> None:
        # What was given back is dropped here, off the clock.
        held[0] = allocate()

    samples = alternate(calls, give_back, partial(floor, n * PAGE_SIZE), renew)
    give_back()
    return samples


def free_lines(n: int) -> list[Line]:
    """Time giving back what alloc has just returned."""
    churn = aged(Churn, POOL)
    return ratio_lines("free", n, free_samples(churn, n, CALLS), budget("free", n), tail=False)


def pages_lines(n: int) -> list[Line]:
    """Compare alloc_pages with the cheapest way to return as many ids, several calls in a row and then all given back.

    A single call of 0.1 us would be timed together with as much of the clock's.
    """
    pool = aged(Churn, POOL).pool
    calls = range(min(16, 1_024 // n))

    def in_a_row(call: Callable[[int], Any]) -> list[Any]:
        return [call(n) for _ in calls]

    def give_back(results: list[Any], _: object) -> None:
        pool.return_pages(np.concatenate(results))

    pages, ids = alternate(CALLS, partial(in_a_row, pool.alloc_pages), partial(in_a_row, np.arange), give_back)
    measured = float(np.median(pages) / np.median(ids))
    return [Line(f"alloc_pages, {n} pages", measured, budget("alloc_pages", n), "x arange")]


def take_lines(n: int) -> list[Line]:
    """Compare taking pages by their ids with giving the same ones back."""
    pool = aged(Churn, POOL).pool
    page_ids = pool.free_page_ids()[POOL // 20 :][:n]
    take, give_back = partial(pool.take_pages, page_ids), partial(pool.return_pages, page_ids)
    taken, returned = alternate(CALLS, take, give_back, lambda *_: None)
    return [Line(f"take_pages, {n} pages", float(np.median(taken) / np.median(returned)), 2, "x return_pages")]


def isolated_head_lines(n: int) -> list[Line]:
    """Time the same with a page at the FIFO head that no call takes: what goes stale behind it must cost nothing."""
    churn = aged(IsolatedHead, POOL)
    lines = []
    for method in METHODS[1:]:
        samples = alloc_samples(churn, method, n, CALLS)
        lines += ratio_lines(f"isolated head: {method}", n, samples, budget(method, n), tail=method in TAILS)
    samples = free_samples(churn, n, CALLS, "alloc_contiguous_preferred")
    assert isinstance(churn, IsolatedHead)
    churn.check()
    return lines + ratio_lines("isolated head: free", n, samples, budget("free", n), tail=False)


def growth_lines(n: int, *, isolated_head: bool) -> list[Line]:
    """Compare a pool of 4 M pages with one of 34,375, alternating between the two."""
    name = "4 M pages, isolated head" if isolated_head else "4 M pages"
    pools = [aged(IsolatedHead if isolated_head else Churn, size) for size in (LARGE_POOL, POOL)]
    lines = []
    calls = 600
    for method in METHODS[1:] if isolated_head else METHODS:
        large, small = (alloc_samples(churn, method, n, calls) for churn in pools)
        if method == "alloc_fewest_runs":
            lines.append(Line(f"{name}: {method}, {n} pages", float(np.median(large[0])), 300, "us"))
        else:
            ratio = (np.median(large[0]) / np.median(large[1])) / (np.median(small[0]) / np.median(small[1]))
            lines.append(Line(f"{name}: {method}, {n} pages", ratio, 3, f"x {POOL:,}"))
    freeing = "alloc_contiguous_preferred" if isolated_head else "alloc"
    large, small = (free_samples(churn, n, calls, freeing) for churn in pools)
    ratio = (np.median(large[0]) / np.median(large[1])) / (np.median(small[0]) / np.median(small[1]))
    lines.append(Line(f"{name}: free, {n} pages", ratio, 3, f"x {POOL:,}"))
    return lines


def lane_lines() -> list[Line]:
    """512 owners, round-robin and random, 8 lanes of 32,768 pages of which a random half is free."""
    lines = []
    for name, owners in (("round-robin", np.arange(512) % 8), ("random owners", random().integers(0, 8, 512))):
        for selection in ("contiguous", "fifo"):
            pool = OwnerLaneAllocator(32_768, PAGE_SIZE, 8, selection=selection)
            pool.free_pages = random(1).permutation(pool.num_pages)[: pool.num_pages // 2] + 1

            def back(slots: Any, _: object, pool: OwnerLaneAllocator = pool) -> None:
                pool.free(slots)
                pool.merge_released()

            for kind, value in (("ndarray", owners), ("list", owners.tolist())):
                call = partial(pool.alloc_pages_with_owners, value)
                samples = alternate(CALLS, call, partial(floor, 512 * PAGE_SIZE), back)
                label = f"alloc_pages_with_owners, {selection}, {name}, {kind}"
                lines += ratio_lines(label, 512, samples, LANE_BUDGET, tail=False)
    return lines


def paged_lines(order: str) -> list[Line]:
    """Batches, allocations and frees of a pool of one rank whose free pages are scattered."""
    pool = PagedAllocator(POOL, PAGE_SIZE, order=order)
    arrange_paged(pool, random(2).permutation(POOL))
    lines = []
    lengths = torch.from_numpy(random().integers(1, 2_000, 256))
    nothing = torch.zeros_like(lengths)
    last = pool.alloc_extend(nothing, lengths, nothing - 1)[lengths.cumsum(0) - 1]

    def give_back(slots: torch.Tensor, _: object) -> None:
        pool.return_pages(slots[slots % PAGE_SIZE == 0] // PAGE_SIZE)

    samples = alternate(CALLS, partial(pool.alloc_decode, lengths + 1, last), partial(floor, PAGE_SIZE), give_back)
    ours, theirs = np.median(samples, axis=1)
    lines.append(Line(f"{order}: alloc_decode, 256 requests", ours / theirs, 2 + 1 / theirs, "x floor(1)"))
    nothing = torch.zeros(32, dtype=torch.int64)
    extend = partial(pool.alloc_extend, nothing, nothing + 10_000, nothing - 1)
    samples = alternate(CALLS // 10, extend, partial(floor, 320_000), give_back)
    lines += ratio_lines(f"{order}: alloc_extend, 32 requests of 10,000 slots", 5_024, samples, 1.3, tail=False)
    for n in SIZES:
        samples = alternate(CALLS, partial(pool.alloc, n * PAGE_SIZE), partial(floor, n * PAGE_SIZE), give_back)
        lines += ratio_lines(f"{order}: alloc", n, samples, 1, tail=False)
        held = [pool.alloc(n * PAGE_SIZE)]

        def renew(*_: object, n: int = n, held: list[Any] = held) -> None:
            held[0] = pool.alloc(n * PAGE_SIZE)

        for name, options in (("free", {}), ("free, partial", {"partial": True})):
            free = partial(_freed, pool, held, options)
            samples = alternate(CALLS, free, partial(floor, n * PAGE_SIZE), renew)
            lines += ratio_lines(f"{order}: {name}", n, samples, 1, tail=False)
        pool.free(held[0])
    return lines


def _freed(pool: Any, held: list[torch.Tensor], options: dict[str, bool]) -> int:
    freed: int = pool.free(held[0], **options)
    return freed


def book_lines() -> list[Line]:
    """Bytes a page of all that an allocator holds."""
    lines = []
    for name, build, num_pages, budget in (
        ("HostAllocator", lambda: HostAllocator(POOL), POOL, 24),
        ("OwnerLaneAllocator", lambda: OwnerLaneAllocator(32_768), 8 * 32_768, 8),
        ("PagedAllocator", lambda: PagedAllocator(POOL, PAGE_SIZE), POOL, 6),
        ("PagedAllocator, sorted", lambda: PagedAllocator(POOL, PAGE_SIZE, order="sorted"), POOL, 2),
    ):
        lines.append(Line(f"books of {name}", book_bytes(build) / num_pages, budget, "bytes/page"))
    return lines


def build_lines() -> list[Line]:
    """Time the construction of pools of 4 M pages."""
    lines = []
    for name, build in (
        ("HostAllocator", lambda: HostAllocator(LARGE_POOL)),
        ("OwnerLaneAllocator", lambda: OwnerLaneAllocator(LARGE_POOL // 8)),
        *((f"PagedAllocator, {order},", partial(PagedAllocator, LARGE_POOL, 64, order=order)) for order in PAGE_ORDERS),
    ):
        start = time.perf_counter()
        build()
        lines.append(Line(f"{name} of 4 M pages built", time.perf_counter() - start, 0.1, "s"))
    return lines


IMPORT = """
import resource, time
import numpy, torch
before, start = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.perf_counter()
import kvpool
end, after = time.perf_counter(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print((end - start) * 1e3, (after - before) / 1024)
"""


def import_lines() -> list[Line]:
    """Import of kvpool where numpy and torch are imported: the first time, without a file of bytecode, and later."""
    lines = []
    with tempfile.TemporaryDirectory() as cache:
        for name in ("the first time", "later"):
            environment = os.environ | {"PYTHONPYCACHEPREFIX": cache}
            environment.pop("PYTHONDONTWRITEBYTECODE", None)
            if name == "the first time":
                # The bytecode of numpy and torch is not kvpool's.
                subprocess.run([sys.executable, "-c", "import numpy, torch"], env=environment, check=True)
            command = [sys.executable, "-c", IMPORT]
            printed = subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE, text=True).stdout
            milliseconds, megabytes = map(float, printed.split())
            lines.append(Line(f"import beside numpy and torch, {name}", milliseconds, 15, "ms"))
            lines.append(Line(f"import beside numpy and torch, {name}", megabytes, 4, "MB"))
    return lines
