"""No method of a type keeps memory, whether it returns or raises: each is called 2,000 times, and nothing has grown."""

import gc
import pickle
import sys
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import numpy as np
import pytest
import torch

from kvpool import (
    HostAllocator,
    OwnerLaneAllocator,
    PageCounts,
    PagedAllocator,
    RequestTokens,
    TokenBuffer,
    TokenTable,
    match_prefix,
)
from tests.kvpool.devices import PromptDevice

CALLS = 2_000
#: What the interpreter itself may come to keep: caches, free lists.
BLOCKS, BYTES = 30, 4_096

Call = Callable[[Any], Any]


def host() -> HostAllocator:
    pool = HostAllocator(64, 2)
    pool.alloc(64)
    return pool


def lanes() -> OwnerLaneAllocator:
    pool = OwnerLaneAllocator(32, 2, 2)
    pool.alloc_pages_with_owners([0, 1] * 16)
    return pool


HOST: list[Call] = [
    lambda pool: pool.free(pool.alloc(8)),
    lambda pool: pool.free(pool.alloc_contiguous_preferred(8)),
    lambda pool: pool.free(pool.alloc_fewest_runs(8).tolist()),
    lambda pool: pool.free(pool.alloc(8).numpy()[::-1]),
    lambda pool: pool.free(pool.alloc(8).to(torch.int32)),
    lambda pool: pool.return_pages(pool.alloc_pages(3)),
    lambda pool: pool.return_pages(pool.alloc_pages(3, "fewest_runs").tolist()),
    lambda pool: pool.return_pages([np.int64(page) for page in pool.alloc_pages(3)]),
    lambda pool: pool.return_pages(np.repeat(*pool.alloc_runs(1))),
    lambda pool: (pool.alloc(10**6), pool.alloc_pages(10**6), pool.alloc_runs(10**6)),
    lambda pool: pool.alloc(3),
    lambda pool: pool.alloc(-1),
    lambda pool: pool.alloc(1.5),
    lambda pool: pool.alloc_pages(1, "best"),
    lambda pool: pool.alloc_pages("1"),
    lambda pool: pool.alloc_runs(1, None),
    lambda pool: pool.free([0, 1, 2]),
    lambda pool: pool.free(torch.tensor([126, 127])),
    lambda pool: pool.free([1.5]),
    lambda pool: pool.free([2**70]),
    lambda pool: pool.free(torch.empty(2, 2)),
    lambda pool: pool.return_pages([5, 5, 900, 60]),
    lambda pool: pool.return_pages(pool.alloc_pages(3), front=True),
    lambda pool: pool.return_pages([1], front=3),
    lambda pool: pool.take_pages([60, 61]) and pool.return_pages([60, 61]),
    lambda pool: pool.take_pages([60, 0, 60, 900]),
    lambda pool: [pool.return_pages(np.repeat(*each)) for each in pool.alloc_runs_many([1, 1])],
    lambda pool: pool.return_pages(pool.alloc_runs_many([1], "one_run")[0][0]),
    lambda pool: (pool.alloc_runs_many([2, 10**6]), pool.alloc_runs_many([30, 3], "one_run")),
    lambda pool: pool.alloc_runs_many([2, -1]),
    lambda pool: pool.alloc_runs_many([None]),
    lambda pool: (pool.free_page_ids(limit=3), pool.stats()),
    lambda pool: pool.free_page_ids(after=900),
    lambda pool: pool.free_page_ids(limit=-1),
    lambda pool: (pool.resize(80), pool.resize(64)),
    lambda pool: pool.resize(3),
    lambda pool: pool.resize("3"),
    lambda pool: (pool.available_size(), pool.free_page_ids(), pool.largest_run()),
    lambda pool: (pool.num_pages, pool.page_size, pool.size, pool._steps),
    lambda pool: pool.restore(pool.snapshot()),
    lambda pool: pool.restore(None),
    lambda pool: pool.restore(HostAllocator(3).snapshot()),
    lambda pool: pool.clear(),
    lambda pool: pool.__init__(64, 2),
    lambda pool: pool.__init__(64, 4),
    lambda pool: pickle.loads(pickle.dumps(pool)),
    lambda pool: HostAllocator(0),
    lambda pool: HostAllocator.from_size_gb(0.001, page_size=16),
    lambda pool: HostAllocator.from_size_gb(0),
]
LANES: list[Call] = [
    lambda pool: pool.free(pool.alloc_pages_with_owners([0, 1, 1])),
    lambda pool: pool.free(pool.alloc_pages_with_owners(np.array([1, 0], np.int32)).tolist()),
    lambda pool: pool.free(pool.alloc_pages_with_owners(torch.tensor([1, 0])).numpy()[::-1]),
    lambda pool: pool.alloc_pages_with_owners([0] * 100),
    lambda pool: pool.alloc_pages_with_owners([0, 2]),
    lambda pool: pool.alloc_pages_with_owners([2**70]),
    lambda pool: pool.alloc_pages_with_owners([None]),
    lambda pool: (pool.select_pages([0, 1]), pool.select_pages([0] * 100)),
    lambda pool: pool.select_pages([3]),
    lambda pool: pool.free([0, 1]),
    lambda pool: pool.free([2, 3, 4]),
    lambda pool: pool.return_pages([5, 5, 900, 60]),
    lambda pool: pool.merge_released(),
    lambda pool: pool.compute_owner_lane_stats([0, 1]),
    lambda pool: pool.compute_owner_lane_stats([7]),
    lambda pool: pool.compute_owner_lane_free_room_stats([0], target_ratio=0.2, trigger_ratio=0.1),
    lambda pool: pool.compute_owner_lane_free_room_stats([0], target_ratio="a", trigger_ratio=0.1),
    lambda pool: pool.compute_owner_lane_capacity_pages(),
    lambda pool: (pool.available_size(), pool.schedulable_size(), pool.num_pages, pool.size, pool._steps),
    lambda pool: setattr(pool, "free_pages", pool.free_pages),
    lambda pool: setattr(pool, "release_pages", pool.release_pages.tolist()),
    lambda pool: setattr(pool, "free_pages", [1, 1]),
    lambda pool: setattr(pool, "release_pages", [900]),
    lambda pool: setattr(pool, "release_pages", pool.free_pages),
    lambda pool: pool.restore(pool.snapshot()),
    lambda pool: pool.restore(None),
    lambda pool: pool.restore(OwnerLaneAllocator(3).snapshot()),
    lambda pool: pool.clear(),
    lambda pool: pool.__init__(32, 2, 2),
    lambda pool: pool.__init__(32, 4, 2),
    lambda pool: pickle.loads(pickle.dumps(pool)),
    lambda pool: OwnerLaneAllocator(4, device="meta"),
    lambda pool: OwnerLaneAllocator(4, selection="best"),
]


def paged(order: str) -> PagedAllocator:
    pool = PagedAllocator(64, 2, order=order)
    pool.alloc(64)
    return pool


def grouped(pool: Any) -> None:
    pool.free_group_begin()
    pool.free(pool.alloc(4))
    pool.free(pool.alloc(2)[:1], partial=True)
    pool.return_pages(pool.alloc_pages(2))
    pool.free_group_end()


PAGED: list[Call] = [
    lambda pool: pool.free(pool.alloc(8)),
    lambda pool: pool.free(pool.alloc(8).numpy()[::-1]),
    lambda pool: pool.free(pool.alloc_extend([0, 0], [3, 4], [-1, -1]), partial=True),
    lambda pool: pool.free(pool.alloc_extend([0, 0], [3, 4], [-1, -1]).flip(0), partial=True),
    lambda pool: pool.free(pool.alloc_decode(torch.tensor([3, 1]), np.array([-1, -1])).tolist(), partial=True),
    lambda pool: pool.return_pages(pool.alloc_pages(3)),
    lambda pool: pool.free_rows(pool.alloc(8).reshape(2, 4), [4, 3]),
    lambda pool: pool.free_rows(pool.alloc(8).reshape(2, 4).to(torch.int32), torch.tensor([4, 3])),
    lambda pool: (pool.alloc(10**6), pool.alloc_pages(10**6), pool.alloc_extend([0], [10**6], [-1])),
    lambda pool: pool.alloc_decode([1] * 1_000, [-1] * 1_000),
    lambda pool: pool.alloc(3),
    lambda pool: pool.alloc_pages("1"),
    lambda pool: pool.alloc_extend([0], [1, 2], [-1]),
    lambda pool: pool.alloc_extend([1], [2], [3]),
    lambda pool: pool.alloc_extend([2], [1], [3]),
    lambda pool: pool.alloc_extend([2**70], [None], [3]),
    lambda pool: pool.alloc_decode([0], [3]),
    lambda pool: pool.alloc_decode([1], []),
    lambda pool: pool.free([0, 1, 2]),
    lambda pool: pool.free([4, 5, 5], partial=True),
    lambda pool: pool.free([1.5]),
    lambda pool: pool.free([4], partial=1),
    lambda pool: pool.free_rows([[4]], [1]),
    lambda pool: pool.free_rows(np.array([[4]]), [2]),
    lambda pool: pool.return_pages([5, 5, 900, 60]),
    grouped,
    lambda pool: (pool.free_group_begin(), pool.free_group_begin()),
    lambda pool: (pool.free_group_begin(), pool.snapshot(), pool.free([4], partial=True), pool.free([4], partial=True)),
    lambda pool: (pool.available_size(), pool.free_pages, pool.num_pages, pool.page_size, pool.size, pool._steps),
    lambda pool: pool.restore(pool.snapshot()),
    lambda pool: pool.restore(None),
    lambda pool: pool.restore(PagedAllocator(3, 2).snapshot()),
    lambda pool: pool.clear(),
    lambda pool: pool.check(),
    lambda pool: pool.__init__(64, 2),
    lambda pool: pool.__init__(64, 4),
    lambda pool: pickle.loads(pickle.dumps(pool)),
    lambda pool: PagedAllocator(4, 2, device="meta"),
    lambda pool: PagedAllocator(4, 2, order="best"),
]


def deferring() -> PagedAllocator:
    pool = PromptDevice.pool(64, 2)
    pool.alloc_pages(32)
    return pool


def grouped_and_deferred(pool: Any) -> None:
    pool.free_group_begin()
    pool.free(pool.alloc(4), deferred=True)
    pool.return_pages(torch.tensor([3, 4]), deferred=True)
    pool.free_group_end()
    assert pool.alloc_pages(2) is not None


DEFERRED: list[Call] = [
    lambda pool: pool.free(pool.alloc(8), deferred=True),
    lambda pool: pool.free(pool.alloc(8)[:7].flip(0), partial=True, deferred=True),
    grouped_and_deferred,
    lambda pool: (pool.return_pages(torch.tensor([0]), deferred=True), pool.available_size()),
    lambda pool: (pool.return_pages(torch.tensor([3]), deferred=True), pool.clear()),
    lambda pool: pool.free(torch.tensor([1.0]), deferred=True),
    lambda pool: pool.alloc_decode([0], torch.tensor([8])),
    lambda pool: pool.free(pool.alloc(8)),
]


def table() -> TokenTable:
    held = TokenTable(4, 8)
    held.add([1, 2])
    return held


BUFFER: list[Call] = [
    lambda buffer: TokenBuffer([1, 2, 3]).append(4),
    lambda buffer: TokenBuffer(np.arange(5, dtype=np.int16), np.int32).extend(torch.arange(3)),
    lambda buffer: TokenBuffer(np.int16(i) for i in range(5)),
    lambda buffer: TokenBuffer([1, 2**70]),
    lambda buffer: TokenBuffer([1, True]),
    lambda buffer: TokenBuffer([2**63], np.uint64).tolist(),
    lambda buffer: buffer.append(2**70),
    lambda buffer: buffer.append("1"),
    lambda buffer: buffer.extend([1, None]),
    lambda buffer: (buffer[0], buffer[1:], buffer[::-1], buffer.numpy(), buffer.torch(), buffer.tolist(), repr(buffer)),
    lambda buffer: (buffer.tolist(1, -1), buffer.tolist(None, np.int64(3)), TokenBuffer([2**62] * 5).tolist(1)),
    lambda buffer: buffer.tolist(1.5),
    lambda buffer: (buffer.append(1), buffer.truncate(10)),
    lambda buffer: (buffer.numpy(), buffer.append(1), buffer[:3], buffer.truncate(10), buffer.extend([])),
    lambda buffer: buffer.truncate(11),
    lambda buffer: buffer.truncate(True),
    lambda buffer: buffer[99],
    lambda buffer: (buffer == [1, 2], buffer == [1], buffer + [1], (1, 2) + buffer, buffer == [None]),  # noqa: RUF005
    lambda buffer: buffer + [None],  # noqa: RUF005
    lambda buffer: pickle.loads(pickle.dumps(buffer)).check(),
    lambda buffer: match_prefix(buffer, [1, 2, 3], 2),
    lambda buffer: match_prefix(np.arange(3, dtype=np.uint64), torch.arange(3)),
    lambda buffer: match_prefix(buffer, [1, None]),
    lambda buffer: (
        match_prefix(buffer, buffer, 2, start=2, limit=5),
        match_prefix(buffer, range(3), start=np.int8(1)),
    ),
    lambda buffer: match_prefix(buffer, np.arange(3), start=4),
    lambda buffer: match_prefix(buffer, np.arange(3, dtype=np.uint8), start=4),
    lambda buffer: match_prefix(buffer, buffer, limit=-1),
]
REQUEST: list[Call] = [
    lambda request: RequestTokens([1, 2]).append(3),
    lambda request: (request.origin, request.output, request.fill_ids, request.committed(2), repr(request)),
    lambda request: request.committed(99),
    lambda request: (request.append(1), request.tolist(-3), request.truncate(10)),
    lambda request: request.truncate(3),
    lambda request: request.extend([None]),
    lambda request: pickle.loads(pickle.dumps(request)),
]
TABLE: list[Call] = [
    lambda held: held.remove(held.add([1, 2, 3])),
    lambda held: held.add(range(99)),
    lambda held: held.remove(held.add([1, 2, 3], row=np.int64(3))),
    lambda held: held.add([1], row=0),
    lambda held: (held.write(0, 1, [5, 6]), held.write(np.int8(0), 2, torch.tensor([7])), held.truncate(0, 2)),
    lambda held: held.write(0, 3, [1]),
    lambda held: held.write(0, 1, range(8)),
    lambda held: held.truncate(0, np.int64(3)),
    lambda held: (held.add([4, 5]), held.swap(0, 1), held.remove(0), held.move(1, 0)),
    lambda held: held.swap(0, 3),
    lambda held: held.move(0, 0),
    lambda held: held.tensor()[0, 0].item(),
    lambda held: (held.row(0), held.lengths, held.check()),
    lambda held: held.row(3),
    lambda held: held.append([0, 0], [1, 2]),
    lambda held: held.append(torch.tensor([0, 9]), np.array([1, 2], np.int32)),
    lambda held: pickle.loads(pickle.dumps(held)).append([0], torch.tensor([1])),
    lambda held: TokenTable(2, 2, np.int8),
]

COUNTS: list[Call] = [
    lambda counts: counts.release([1] * counts.retain([1, 1])),
    lambda counts: counts.release(torch.arange(3)) if counts.retain(np.arange(3)) else None,
    lambda counts: counts.retain([900, 2**70]),
    lambda counts: counts.retain(["1"]),
    lambda counts: counts.release([5, 5, 5]),
    lambda counts: (counts.count(1), counts.num_held, counts.held_page_ids(), counts.check()),
    lambda counts: counts.count(99),
    lambda counts: counts.restore(counts.snapshot()),
    lambda counts: counts.restore(PageCounts(3).snapshot()),
    lambda counts: counts.clear(),
    lambda counts: counts.__init__(64),
    lambda counts: counts.__init__(65),
    lambda counts: pickle.loads(pickle.dumps(counts)),
]

#: A type is one line: its name, how to build one, and what is called on it.
TYPES: list[tuple[str, Callable[[], Any], list[Call]]] = [
    ("HostAllocator", host, HOST),
    ("OwnerLaneAllocator", lanes, LANES),
    ("PageCounts", lambda: PageCounts(64), COUNTS),
    ("PagedAllocator, lifo", lambda: paged("lifo"), PAGED),
    ("PagedAllocator, sorted", lambda: paged("sorted"), PAGED),
    ("PagedAllocator, deferring", deferring, DEFERRED),
    ("TokenBuffer", lambda: TokenBuffer(range(10)), BUFFER),
    ("RequestTokens", lambda: RequestTokens(range(10)), REQUEST),
    ("TokenTable", table, TABLE),
]
EVERY_CALL = [
    pytest.param(build, call, id=f"{name} {number}")
    for name, build, calls in TYPES
    for number, call in enumerate(calls)
]


@pytest.fixture(autouse=True)
def _only_what_is_new_is_searched_for_garbage() -> Iterator[None]:
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


def call_often(thing: Any, call: Call, times: int) -> None:
    for _ in range(times):
        with suppress(ValueError, TypeError, IndexError):
            call(thing)


@pytest.mark.compiled  # As plain Python there is nothing to leak.
@pytest.mark.parametrize(("build", "call"), EVERY_CALL)
def test_nothing_grows(build: Callable[[], Any], call: Call) -> None:
    thing = build()
    assert grows(lambda: call_often(thing, call, CALLS), sys.getallocatedblocks) <= BLOCKS
    tracemalloc.start()
    try:
        few = CALLS // 20
        assert grows(lambda: call_often(thing, call, few), lambda: tracemalloc.get_traced_memory()[0]) <= BYTES
    finally:
        tracemalloc.stop()


def grows(work: Callable[[], None], measure: Callable[[], int]) -> int:
    """Return by how much a measure grows each time that work is done: a cache grows sometimes, a leak always."""
    least = sys.maxsize
    for _ in range(4):
        gc.collect()
        before = measure()
        work()
        gc.collect()
        least = min(least, measure() - before)
        if least <= 0:
            break
    return least


@pytest.mark.compiled
def test_a_pool_that_is_dropped_gives_its_memory_back() -> None:
    tracemalloc.start()
    try:
        for build in (
            lambda: HostAllocator(100_000),
            lambda: OwnerLaneAllocator(100_000),
            lambda: PagedAllocator(100_000, 4),
            lambda: PagedAllocator(100_000, 4, order="sorted"),
        ):
            build()
            gc.collect()
            size, _ = tracemalloc.get_traced_memory()
            for _ in range(20):
                pool: Any = build()
                pool.itself = pool
                del pool
            gc.collect()
            assert tracemalloc.get_traced_memory()[0] - size <= BYTES
    finally:
        tracemalloc.stop()
