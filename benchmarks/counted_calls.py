"""The calls whose instructions are counted: every public method of kvpool, small and large where that differs.

A case is a line of `CASES`: its name, which is the method and what it is given, and what prepares the call. Whatever
the installed kvpool does not have raises NotImplementedError, which reads n/a. A line is never edited, only added to:
its name stands for what it does. Unless its line says otherwise, a case is of the pools of `bench_host` (34,375 pages
of 64 slots, churned, 90 % full), `bench_lanes` (8 lanes of 32,768 pages, a seeded half of each free, owners
round-robin) and `bench_paged` (34,375 pages of 64 slots in FIFO order, three quarters free, shuffled), and the number
in its name is of pages of a request, of requests of a batch, or of tokens, which are int64 ndarrays.
"""

import functools
import operator
import pickle
from array import array
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch

from benchmarks import bench_host, bench_lanes, bench_paged, pools, workloads
from benchmarks.common import floor

try:
    import kvpool
except ImportError:
    kvpool = None

PAGE = bench_host.PAGE_SIZE
SEED = 0
# Where the whole pool is passed over in Python, a small one says as much.
SMALL_POOL, SMALL_LANES = 1_024, 256


class Call(NamedTuple):
    """A function, what it is called with, and what brings back the state that it found.

    `rewind` is None where that is not brought back, but prepared anew.
    """

    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    rewind: Callable[[], object] | None = None


Prepare = Callable[[], Call]


def public(name: str) -> Any:
    """Return what kvpool exports under a name that some commits do not have."""
    return pools.feature(kvpool, name)


def call(find: Callable[[], Callable[..., Any]], *arguments: Any) -> Prepare:
    """Prepare the call of a function that leaves nothing behind."""
    return lambda: Call(find(), arguments, lambda: None)


def exported(name: str, *arguments: Any) -> Prepare:
    """Prepare the call of what kvpool exports under a name."""
    return call(lambda: public(name), *arguments)


# Pools, whose state is brought back by a snapshot.


def churned_host() -> Any:
    """Return the host pool that FIFO allocation has churned."""
    pool = pools.host_pool(bench_host.NUM_PAGES, PAGE)
    pools.arrange_host(pool, bench_host.churned().free)
    return pool


def small_host() -> Any:
    """Return a host pool of 1,024 pages, a seeded half of them free."""
    pool = pools.host_pool(SMALL_POOL, PAGE)
    pools.arrange_host(pool, workloads.shuffled(SMALL_POOL, SEED)[: SMALL_POOL // 2])
    return pool


def held_counts() -> Any:
    """Return reference counts of the host pool's pages, of which every second has one holder."""
    counts = pools.page_counts(bench_host.NUM_PAGES)
    counts.retain(np.arange(0, bench_host.NUM_PAGES, 2))
    return counts


def owners(pages: int) -> np.ndarray:
    """Return the owners of a request."""
    return workloads.round_robin(pages, bench_lanes.CP_SIZE)


def lanes(selection: str = "contiguous", lane_pages: int = bench_lanes.LANE_PAGES) -> Any:
    """Return the device pool, a seeded half of each lane free."""
    pool = pools.lane_pool(lane_pages, PAGE, bench_lanes.CP_SIZE, selection)
    pools.arrange_lanes(pool, "random", owners(lane_pages), SEED)
    return pool


fifo_lanes = functools.partial(lanes, "fifo")
small_lanes = functools.partial(lanes, lane_pages=SMALL_LANES)


def released_lanes() -> Any:
    """Return the device pool with 512 pages that were just given back."""
    pool = lanes()
    pool.free(pool.alloc_pages_with_owners(owners(512)))
    return pool


def paged(order: str = "fifo", num_pages: int = bench_paged.NUM_PAGES) -> Any:
    """Return the device pool of one rank."""
    pool = pools.paged_pool(num_pages, PAGE, order)
    pools.arrange_paged(pool, workloads.shuffled(num_pages, SEED))
    return pool


sorted_paged = functools.partial(paged, "sorted")
small_paged = functools.partial(paged, num_pages=SMALL_POOL)


def in_a_group() -> Any:
    """Return the device pool of one rank in a group of frees that has 64 pages."""
    pool = paged()
    page_ids = pool.alloc_pages(64)
    pool.free_group_begin()
    pool.return_pages(page_ids)
    return pool


def rewinding(pool: Any) -> Callable[[], None]:
    """Return what brings a pool back to the state it is in."""
    snapshot = pools.feature(pool, "snapshot")()
    settle = getattr(pool, "largest_run", lambda: None)

    def rewind() -> None:
        pool.restore(snapshot)
        settle()

    rewind()
    return rewind


def of(build: Callable[[], Any], method: str, *arguments: Any, **options: Any) -> Prepare:
    """Prepare the call of a pool's method."""

    def prepare() -> Call:
        pool = build()
        function = functools.partial(pools.feature(pool, method), **options) if options else pools.feature(pool, method)
        return Call(function, arguments, rewinding(pool))

    return prepare


def back(
    build: Callable[[], Any], method: str, take: str, request: Any, kind: Callable[[Any], Any] = lambda taken: taken
) -> Prepare:
    """Prepare giving back what a method has taken, held in another `kind` of sequence."""

    def prepare() -> Call:
        pool = build()
        taken = kind(pools.feature(pool, take)(request))
        return Call(pools.feature(pool, method), (taken,), rewinding(pool))

    return prepare


def chosen(build: Callable[[], Any], method: str, pages: int) -> Prepare:
    """Prepare the call of a host pool's method with the ids of some of its free pages, not its first ones."""

    def prepare() -> Call:
        pool = build()
        return Call(pools.feature(pool, method), (pool.free_page_ids()[100 : 100 + pages],), rewinding(pool))

    return prepare


def resized(more: int) -> Prepare:
    """Prepare making the host pool larger."""

    def prepare() -> Call:
        pool = churned_host()
        resize = pools.feature(pool, "resize")
        return Call(resize, (bench_host.NUM_PAGES + more,), lambda: resize(bench_host.NUM_PAGES))

    return prepare


def returned(pages: int) -> Prepare:
    """Prepare giving back, by their ids, what the device pool has handed out."""

    def prepare() -> Call:
        pool = lanes()
        page_ids = pools.feature(pool, "select_pages")(owners(pages))
        pool.alloc_pages_with_owners(owners(pages))
        return Call(pools.feature(pool, "return_pages"), (page_ids,), rewinding(pool))

    return prepare


def lengths(requests: int) -> np.ndarray:
    """Return the lengths of a batch of requests."""
    return workloads.request_lengths(requests, bench_paged.MOST_TOKENS, SEED)


def extended(requests: int, build: Callable[[], Any] = paged) -> Prepare:
    """Prepare serving a batch of new requests."""
    after = lengths(requests)
    nothing = np.zeros_like(after)
    return of(build, "alloc_extend", nothing, after, nothing - 1)


def served(method: str, requests: int, give: Callable[[Any, Any], tuple[Any, ...]], **options: Any) -> Prepare:
    """Prepare a call of what a batch holds, which `give` makes its arguments of: its slots, and its lengths."""

    def prepare() -> Call:
        pool = paged()
        slots, after = bench_paged.prefill(pool, lengths(requests))
        function = functools.partial(pools.feature(pool, method), **options)
        return Call(function, give(slots, after), rewinding(pool))

    return prepare


def next_tokens(slots: Any, after: Any) -> tuple[Any, ...]:
    """Return what a decode step is given: lengths, and the last slots."""
    return after + 1, slots[after.cumsum(0) - 1]


def first_slots(slots: Any, after: Any) -> tuple[Any, ...]:
    """Return a table of the slots of the requests, as far as the shortest goes, and how many to free of each."""
    starts, shortest = after.cumsum(0) - after, after.min()
    return slots[starts[:, None] + torch.arange(int(shortest))], shortest.repeat(len(after))


def restoring(build: Callable[[], Any]) -> Prepare:
    """Prepare the restoring of a snapshot of the state that a pool is in."""

    def prepare() -> Call:
        pool = build()
        return Call(pools.feature(pool, "restore"), (pools.feature(pool, "snapshot")(),), lambda: None)

    return prepare


def reading(build: Callable[[], Any], attribute: str) -> Prepare:
    """Prepare the reading of an attribute."""

    def prepare() -> Call:
        held = build()
        pools.feature(held, attribute)
        return Call(operator.attrgetter(attribute), (held,), lambda: None)

    return prepare


def assigning(build: Callable[[], Any], attribute: str) -> Prepare:
    """Prepare the assigning of what a pool's attribute holds."""

    def prepare() -> Call:
        pool = build()
        return Call(setattr, (pool, attribute, pools.feature(pool, attribute)), rewinding(pool))

    return prepare


# Token containers, of which every call is given a new one.


@functools.cache
def ids(count: int, *seed: int) -> np.ndarray:
    """Return token ids."""
    return workloads.token_ids(count, SEED, *seed)


def buffer(count: int = 1_000, dtype: str = "int64") -> Any:
    """Return a TokenBuffer that has room for more."""
    held = public("TokenBuffer")(ids(count), dtype)
    held.append(1)
    return held


def request(count: int = 1_000) -> Any:
    """Return a request with 50 tokens of output, and room for more."""
    held = public("RequestTokens")(ids(count))
    held.extend(ids(50, 1))
    return held


def table(rows: int = 64) -> Any:
    """Return a table with a row that is not in use, and 1,000 tokens in every other."""
    held = public("TokenTable")(rows + 1, 2_000)
    for row in range(rows):
        held.add(ids(1_000, row))
    return held


def new(build: Callable[[], Any], method: str, *arguments: Any) -> Prepare:
    """Prepare the call of a method of a container."""
    return lambda: Call(pools.feature(build(), method), arguments)


def operated(function: Callable[..., Any], build: Callable[[], Any], *others: Any) -> Prepare:
    """Prepare a function or operator of Python on a container."""
    return lambda: Call(function, (build(), *others))


def loaded(build: Callable[[], Any]) -> Prepare:
    """Prepare the loading of a pickled container."""
    return lambda: Call(pickle.loads, (pickle.dumps(build()),), lambda: None)


def matched(build: Callable[[], Any], other: Callable[[], Any]) -> Prepare:
    """Prepare match_prefix."""
    return lambda: Call(public("match_prefix"), (build(), other()))


def staged(parts: int) -> Prepare:
    """Prepare the staging of a batch of parts of 1,000 tokens."""
    return lambda: Call(public("BatchStager")(100_000).stage, ([buffer() for _ in range(parts)],))


# The first word of what runs no code of kvpool: where one of these moves, it is not the commit.
CONTROLS = ("floor", "list", "array", "numpy", "torch")

CASES: dict[str, Prepare] = {
    "floor 1": call(lambda: floor, PAGE),
    "floor 512": call(lambda: floor, 512 * PAGE),
    "list 1000": call(lambda: list, ids(1_000).tolist()),
    "array 1000": call(lambda: functools.partial(array, "q"), ids(1_000).tolist()),
    "numpy 1000": call(lambda: np.array, ids(1_000).tolist()),
    "torch 1000": call(lambda: torch.tensor, ids(1_000).tolist()),
    "HostAllocator": exported("HostAllocator", bench_host.NUM_PAGES, PAGE),
    "HostAllocator.from_size_gb": call(lambda: public("HostAllocator").from_size_gb, 220),
    "HostAllocator.alloc 1": of(churned_host, "alloc", PAGE),
    "HostAllocator.alloc 64": of(churned_host, "alloc", 64 * PAGE),
    "HostAllocator.alloc 512": of(churned_host, "alloc", 512 * PAGE),
    "HostAllocator.alloc_contiguous_preferred 1": of(churned_host, "alloc_contiguous_preferred", PAGE),
    "HostAllocator.alloc_contiguous_preferred 64": of(churned_host, "alloc_contiguous_preferred", 64 * PAGE),
    "HostAllocator.alloc_contiguous_preferred 512": of(churned_host, "alloc_contiguous_preferred", 512 * PAGE),
    "HostAllocator.alloc_fewest_runs 1": of(churned_host, "alloc_fewest_runs", PAGE),
    "HostAllocator.alloc_fewest_runs 64": of(churned_host, "alloc_fewest_runs", 64 * PAGE),
    "HostAllocator.alloc_fewest_runs 512": of(churned_host, "alloc_fewest_runs", 512 * PAGE),
    "HostAllocator.alloc_pages 8": of(churned_host, "alloc_pages", 8),
    "HostAllocator.alloc_pages 512": of(churned_host, "alloc_pages", 512),
    "HostAllocator.alloc_pages 64 contiguous": of(churned_host, "alloc_pages", 64, "contiguous"),
    "HostAllocator.alloc_runs 8": of(churned_host, "alloc_runs", 8),
    "HostAllocator.alloc_runs 512": of(churned_host, "alloc_runs", 512),
    "HostAllocator.alloc_runs_many 5 of 64": of(churned_host, "alloc_runs_many", [64] * 5),
    "HostAllocator.take_pages 8": chosen(churned_host, "take_pages", 8),
    "HostAllocator.take_pages 512": chosen(churned_host, "take_pages", 512),
    "HostAllocator.free 1": back(churned_host, "free", "alloc", PAGE),
    "HostAllocator.free 64": back(churned_host, "free", "alloc", 64 * PAGE),
    "HostAllocator.free 512": back(churned_host, "free", "alloc", 512 * PAGE),
    "HostAllocator.free 8 list": back(churned_host, "free", "alloc", 8 * PAGE, torch.Tensor.tolist),
    "HostAllocator.free 8 backwards": back(churned_host, "free", "alloc", 8 * PAGE, lambda slots: slots.flip(0)),
    "HostAllocator.return_pages 8": back(churned_host, "return_pages", "alloc_pages", 8),
    "HostAllocator.return_pages 512": back(churned_host, "return_pages", "alloc_pages", 512),
    "HostAllocator.available_size": of(churned_host, "available_size"),
    "HostAllocator.free_page_ids": of(churned_host, "free_page_ids"),
    "HostAllocator.largest_run": of(churned_host, "largest_run"),
    "HostAllocator.stats": of(churned_host, "stats"),
    "HostAllocator.resize 512 more": resized(512),
    "HostAllocator.snapshot": of(churned_host, "snapshot"),
    "HostAllocator.restore": restoring(churned_host),
    "HostAllocator.clear": of(churned_host, "clear"),
    "HostAllocator.check 1024": of(small_host, "check"),
    "HostAllocator.__reduce__": of(churned_host, "__reduce_ex__", 4),
    "PageCounts": exported("PageCounts", bench_host.NUM_PAGES),
    "PageCounts.retain 8": of(held_counts, "retain", np.arange(8)),
    "PageCounts.retain 512": of(held_counts, "retain", np.arange(512)),
    "PageCounts.release 8": of(held_counts, "release", np.arange(0, 16, 2)),
    "PageCounts.release 512": of(held_counts, "release", np.arange(0, 1_024, 2)),
    "PageCounts.count": of(held_counts, "count", 8),
    "PageCounts.held_page_ids": of(held_counts, "held_page_ids"),
    "PageCounts.snapshot": of(held_counts, "snapshot"),
    "PageCounts.restore": restoring(held_counts),
    "PageCounts.clear": of(held_counts, "clear"),
    "PageCounts.check": of(held_counts, "check"),
    "PageCounts.__reduce__": of(held_counts, "__reduce_ex__", 4),
    "OwnerLaneAllocator": exported("OwnerLaneAllocator", bench_lanes.LANE_PAGES, PAGE),
    "OwnerLaneAllocator.alloc_pages_with_owners 1": of(lanes, "alloc_pages_with_owners", owners(1)),
    "OwnerLaneAllocator.alloc_pages_with_owners 64": of(lanes, "alloc_pages_with_owners", owners(64)),
    "OwnerLaneAllocator.alloc_pages_with_owners 512": of(lanes, "alloc_pages_with_owners", owners(512)),
    "OwnerLaneAllocator.alloc_pages_with_owners 8 list": of(lanes, "alloc_pages_with_owners", owners(8).tolist()),
    "OwnerLaneAllocator.alloc_pages_with_owners 64 fifo": of(fifo_lanes, "alloc_pages_with_owners", owners(64)),
    "OwnerLaneAllocator.select_pages 8": of(lanes, "select_pages", owners(8)),
    "OwnerLaneAllocator.select_pages 512": of(lanes, "select_pages", owners(512)),
    "OwnerLaneAllocator.free 8": back(lanes, "free", "alloc_pages_with_owners", owners(8)),
    "OwnerLaneAllocator.free 512": back(lanes, "free", "alloc_pages_with_owners", owners(512)),
    "OwnerLaneAllocator.return_pages 8": returned(8),
    "OwnerLaneAllocator.return_pages 512": returned(512),
    "OwnerLaneAllocator.merge_released 512": of(released_lanes, "merge_released"),
    "OwnerLaneAllocator.compute_owner_lane_stats 8": of(lanes, "compute_owner_lane_stats", owners(8)),
    "OwnerLaneAllocator.compute_owner_lane_stats 512": of(lanes, "compute_owner_lane_stats", owners(512)),
    "OwnerLaneAllocator.compute_owner_lane_free_room_stats 64": of(
        lanes, "compute_owner_lane_free_room_stats", owners(64), target_ratio=0.15, trigger_ratio=0.05
    ),
    "OwnerLaneAllocator.compute_owner_lane_capacity_pages": of(lanes, "compute_owner_lane_capacity_pages"),
    "OwnerLaneAllocator.available_size": of(lanes, "available_size"),
    "OwnerLaneAllocator.schedulable_size": of(lanes, "schedulable_size"),
    "OwnerLaneAllocator.free_pages 256": reading(small_lanes, "free_pages"),
    "OwnerLaneAllocator.free_pages 256 assigned": assigning(small_lanes, "free_pages"),
    "OwnerLaneAllocator.release_pages 256": reading(small_lanes, "release_pages"),
    "OwnerLaneAllocator.release_pages 256 assigned": assigning(small_lanes, "release_pages"),
    "OwnerLaneAllocator.snapshot": of(lanes, "snapshot"),
    "OwnerLaneAllocator.restore": restoring(lanes),
    "OwnerLaneAllocator.clear": of(lanes, "clear"),
    "OwnerLaneAllocator.check 256": of(small_lanes, "check"),
    "OwnerLaneAllocator.__reduce__": of(lanes, "__reduce_ex__", 4),
    "PagedAllocator": exported("PagedAllocator", bench_paged.NUM_PAGES, PAGE),
    "PagedAllocator.alloc 1": of(paged, "alloc", PAGE),
    "PagedAllocator.alloc 64": of(paged, "alloc", 64 * PAGE),
    "PagedAllocator.alloc 64 sorted": of(sorted_paged, "alloc", 64 * PAGE),
    "PagedAllocator.alloc_pages 8": of(paged, "alloc_pages", 8),
    "PagedAllocator.alloc_pages 512": of(paged, "alloc_pages", 512),
    "PagedAllocator.alloc_extend 1": extended(1),
    "PagedAllocator.alloc_extend 64": extended(64),
    "PagedAllocator.alloc_extend 64 sorted": extended(64, sorted_paged),
    "PagedAllocator.alloc_decode 1": served("alloc_decode", 1, next_tokens),
    "PagedAllocator.alloc_decode 128": served("alloc_decode", 128, next_tokens),
    "PagedAllocator.free 8": back(paged, "free", "alloc", 8 * PAGE),
    "PagedAllocator.free 512": back(paged, "free", "alloc", 512 * PAGE),
    "PagedAllocator.free 512 sorted": back(sorted_paged, "free", "alloc", 512 * PAGE),
    "PagedAllocator.free 8 requests in part": served("free", 8, lambda slots, after: (slots,), partial=True),
    "PagedAllocator.free_rows 64": served("free_rows", 64, first_slots),
    "PagedAllocator.return_pages 8": back(paged, "return_pages", "alloc_pages", 8),
    "PagedAllocator.return_pages 512": back(paged, "return_pages", "alloc_pages", 512),
    "PagedAllocator.free_group_begin": of(paged, "free_group_begin"),
    "PagedAllocator.free_group_end 64": of(in_a_group, "free_group_end"),
    "PagedAllocator.free_pages": reading(paged, "free_pages"),
    "PagedAllocator.available_size": of(paged, "available_size"),
    "PagedAllocator.snapshot": of(paged, "snapshot"),
    "PagedAllocator.restore": restoring(paged),
    "PagedAllocator.clear": of(paged, "clear"),
    "PagedAllocator.check 1024": of(small_paged, "check"),
    "PagedAllocator.__reduce__": of(paged, "__reduce_ex__", 4),
    "count_runs 1": exported("count_runs", floor(PAGE), PAGE),
    "count_runs 64": exported("count_runs", floor(64 * PAGE), PAGE),
    "page_runs 8": exported("page_runs", workloads.shuffled(8, SEED)),
    "page_runs 512": exported("page_runs", workloads.shuffled(512, SEED)),
    "match_prefix 16": matched(lambda: buffer(16), lambda: buffer(16)),
    "match_prefix 16 lists": matched(lambda: ids(16).tolist(), lambda: ids(16).tolist()),
    "match_prefix 100000": matched(lambda: buffer(100_000), lambda: buffer(100_000)),
    "match_prefix 10000 int32": matched(lambda: buffer(10_000, "int32"), lambda: buffer(10_000)),
    "TokenBuffer 0": exported("TokenBuffer"),
    "TokenBuffer 1000": exported("TokenBuffer", ids(1_000)),
    "TokenBuffer 1000 list": exported("TokenBuffer", ids(1_000).tolist()),
    "TokenBuffer.append": new(buffer, "append", 7),
    "TokenBuffer.extend 8 list": new(buffer, "extend", ids(8).tolist()),
    "TokenBuffer.extend 1000": new(buffer, "extend", ids(1_000)),
    "TokenBuffer.truncate": new(buffer, "truncate", 500),
    "TokenBuffer.tolist 1000": new(buffer, "tolist"),
    "TokenBuffer.numpy": new(buffer, "numpy"),
    "TokenBuffer.torch": new(buffer, "torch"),
    "TokenBuffer.check": new(buffer, "check"),
    "TokenBuffer.__len__": operated(len, buffer),
    "TokenBuffer.__iter__ 1000": operated(list, buffer),
    "TokenBuffer.__getitem__": operated(operator.getitem, buffer, 500),
    "TokenBuffer.__getitem__ slice": operated(operator.getitem, buffer, slice(10, 500)),
    "TokenBuffer.__eq__ 1000": lambda: Call(operator.eq, (buffer(), buffer())),
    "TokenBuffer.__eq__ 1000 list": lambda: Call(operator.eq, (buffer(), buffer().tolist())),
    "TokenBuffer.__add__ 1000": operated(operator.add, buffer, ids(1_000)),
    "TokenBuffer.__radd__ 8 list": operated(lambda held, other: other + held, buffer, ids(8).tolist()),
    "TokenBuffer.__array__": operated(np.asarray, buffer),
    "TokenBuffer.__reduce__": new(buffer, "__reduce_ex__", 4),
    "RequestTokens 1000": exported("RequestTokens", ids(1_000)),
    "RequestTokens 1000 list": exported("RequestTokens", ids(1_000).tolist()),
    "RequestTokens.append": new(request, "append", 7),
    "RequestTokens.extend 8": new(request, "extend", ids(8)),
    "RequestTokens.truncate": new(request, "truncate", 1_010),
    "RequestTokens.tolist 1000": new(request, "tolist", 10, 1_010),
    "RequestTokens.origin": reading(request, "origin"),
    "RequestTokens.output": reading(request, "output"),
    "RequestTokens.fill_ids": reading(request, "fill_ids"),
    "RequestTokens.committed": new(request, "committed", 1_040),
    "RequestTokens.__len__": operated(len, request),
    "RequestTokens.__array__": operated(np.asarray, request),
    "RequestTokens.__reduce__": new(request, "__reduce_ex__", 4),
    "RequestTokens.__setstate__": loaded(request),
    "TokenTable 256": exported("TokenTable", 256, 2_000),
    "TokenTable.add 1000": new(table, "add", ids(1_000)),
    "TokenTable.write 5": new(table, "write", 3, 995, ids(5)),
    "TokenTable.truncate": new(table, "truncate", 3, 500),
    "TokenTable.swap 1000": new(table, "swap", 3, 4),
    "TokenTable.move 1000": new(table, "move", 3, 64),
    "TokenTable.append 64": new(table, "append", np.arange(64), ids(64)),
    "TokenTable.append 8 lists": new(table, "append", list(range(8)), ids(8).tolist()),
    "TokenTable.row": new(table, "row", 3),
    "TokenTable.remove": new(table, "remove", 3),
    "TokenTable.tensor": new(table, "tensor"),
    "TokenTable.lengths": reading(table, "lengths"),
    "TokenTable.check 64": new(table, "check"),
    "TokenTable.__reduce__ 64": new(table, "__reduce_ex__", 4),
    "TokenTable.__setstate__ 64": loaded(table),
    "BatchStager": exported("BatchStager", 100_000),
    "BatchStager.stage 2": staged(2),
    "BatchStager.stage 64": staged(64),
}
