"""Replay of a request trace against a host tier: what real traffic asks of an allocator, and what that costs.

A prefix cache with LRU eviction stands before the pool. Requests come in time order; the blocks of one that are in the
cache from its first on are found, the others are allocated in one call. When that would fill the pool over its limit,
the blocks used longest ago are evicted first, one by one from the end of their chain, and their pages freed.

All of that is decided before an allocator is chosen (`make_plan`), so that no miss rate can depend on one; `replay`
then makes the calls of the plan and measures the time inside the allocator apart from all the rest.
"""

import gc
import itertools
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from benchmarks import peers
from benchmarks.traces import Trace

NUM_PAGES = 34_375
PAGE_SIZE = 64
MAX_FILL = 0.92


class Plan(NamedTuple):
    """The calls that a trace makes of any allocator.

    `steps` has, for each request that lacked blocks, the blocks evicted before it, numbered by when they were
    allocated, and how many it allocates. `too_long` requests did not fit in the whole pool and were left out.
    """

    steps: list[tuple[Sequence[int], int]]
    block_pages: int
    requests: int
    blocks: int
    missed: int
    too_long: int
    seconds: float

    @property
    def miss_rate(self) -> float:
        """The share of the blocks asked for that were not in the cache."""
        return self.missed / self.blocks if self.blocks else 0.0


def make_plan(
    trace: Trace,
    num_pages: int = NUM_PAGES,
    page_size: int = PAGE_SIZE,
    max_fill: float = MAX_FILL,
    requests: int | None = None,
    advance: Callable[[int], None] = lambda done: None,
) -> Plan:
    """Take a trace (or its first `requests`) through the prefix cache of a pool; `advance` is told of each request.

    Raises ValueError where a block of the trace is not a whole number of pages.
    """
    if trace.block_tokens % page_size:
        raise ValueError(f"blocks of {trace.block_tokens} tokens are not whole pages of {page_size}")
    start = time.perf_counter()
    block_pages = trace.block_tokens // page_size
    limit = int(num_pages * max_fill) // block_pages
    # Block id to allocation number, the longest unused first.
    cache: OrderedDict[int, int] = OrderedDict()
    numbers = itertools.count()
    steps: list[tuple[Sequence[int], int]] = []
    count = blocks = missed = too_long = 0
    for request in itertools.islice(trace, requests):
        count += 1
        advance(count)
        chain = request.blocks
        found = next((place for place, block in enumerate(chain) if block not in cache), len(chain))
        lacking = len(chain) - found
        blocks += len(chain)
        missed += lacking
        if len(chain) > limit:
            too_long += 1
            continue
        for block in chain[:found]:
            cache.move_to_end(block)
        evicted = [cache.popitem(last=False)[1] for _ in range(len(cache) + lacking - limit)]
        cache.update(zip(chain[found:], numbers, strict=False))
        # The end of a chain is of no use without its start: it is to be evicted first.
        for block in reversed(chain):
            cache.move_to_end(block)
        if lacking:
            steps.append((np.array(evicted, np.int32), lacking))
    return Plan(steps, block_pages, count, blocks, missed, too_long, time.perf_counter() - start)


class Outcome(NamedTuple):
    """What a replay measured: seconds inside the allocator and in all, and the runs of each allocation.

    `held` is what the cache holds at the end.
    """

    alloc_seconds: float
    free_seconds: float
    wall_seconds: float
    runs: np.ndarray
    held: list[tuple[Any, ...]]

    @property
    def allocator_seconds(self) -> float:
        """Seconds inside the allocator."""
        return self.alloc_seconds + self.free_seconds


def replay(plan: Plan, pool: peers.Pool, advance: Callable[[int], None] = lambda done: None) -> Outcome:
    """Make the calls of a plan; `advance` is told how many of its steps are done.

    The garbage collector rests meanwhile, as it does in asv's own timing. Raises RuntimeError where the pool refuses a
    request that it has the pages for: then its figures say nothing.
    """
    collecting = gc.isenabled()
    gc.disable()
    try:
        return _replay(plan, pool, advance)
    finally:
        if collecting:
            gc.enable()


def _replay(plan: Plan, pool: peers.Pool, advance: Callable[[int], None]) -> Outcome:
    clock = time.perf_counter
    began = clock()
    alloc, free, block_pages = pool.alloc, pool.free, plan.block_pages
    alloc_seconds = free_seconds = 0.0
    live: dict[int, tuple[Any, ...]] = {}
    runs = np.empty(len(plan.steps), np.int64)
    allocated = 0
    for step, (evicted, blocks) in enumerate(plan.steps):
        parts = [live.pop(number) for number in evicted.tolist()]
        start = clock()
        for part in parts:
            free(*part)
        free_seconds += clock() - start
        request = pool.request(blocks * block_pages)
        start = clock()
        try:
            result = alloc(*request)
        except pool.refusals:
            result = None
        alloc_seconds += clock() - start
        if result is None:
            raise RuntimeError(f"allocation {step + 1}, of {blocks * block_pages} pages, was refused")
        runs[step] = 1 + np.count_nonzero(np.diff(pool.page_ids(result)) != 1)
        parts = pool.parts(result, block_pages)
        live.update(enumerate(parts, allocated))
        allocated += len(parts)
        advance(step + 1)
    return Outcome(alloc_seconds, free_seconds, clock() - began, runs, list(live.values()))


ALLOCATORS = [name for name in peers.POOLS if name != "lmcache"] + ["lmcache_batched"]


def build_pool(name: str, block_pages: int, num_pages: int = NUM_PAGES, page_size: int = PAGE_SIZE) -> peers.Pool:
    """Build a pool for a replay of blocks of `block_pages` pages.

    LMCache's address manager refuses what does not fit in one range, and would miss more than the others: it is asked
    for a range a block.
    """
    if name == "lmcache_batched":
        return peers.lmcache_batched(num_pages, page_size, block_pages)
    return peers.POOLS[name](num_pages, page_size)
