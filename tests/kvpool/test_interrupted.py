"""Whatever interrupts a call, the pool is as before it or as after it: signals, failures on the way, no memory."""

import gc
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from kvpool import HostAllocator, OwnerLaneAllocator, PageCounts, PagedAllocator
from tests.kvpool.devices import PromptDevice
from tests.kvpool.pools import Kind

CALLS = 20_000


class StruckError(Exception):
    """What a signal handler raises."""


def host_pool() -> HostAllocator:
    pool = HostAllocator(700, 2)
    pool.alloc(400)
    pool.free(list(range(40, 120)))
    return pool


def lane_pool() -> OwnerLaneAllocator:
    pool = OwnerLaneAllocator(300, 2, 2)
    pool.alloc_pages_with_owners([0, 1] * 100)
    pool.return_pages(list(range(3, 60)))
    return pool


def page_counts() -> PageCounts:
    counts = PageCounts(700)
    counts.retain(range(400))
    counts.retain(range(200))
    return counts


def paged_pool(order: str) -> PagedAllocator:
    pool = PagedAllocator(300, 4, order=order)
    pool.alloc(800)
    pool.return_pages(list(range(3, 60)))
    if order == "sorted":
        # Few are free and many released.
        pool.alloc_pages(95)
    return pool


def grouping_pool(order: str) -> PagedAllocator:
    pool = paged_pool(order)
    pool.free_group_begin()
    pool.free([280, 281, 284, 285, 286], partial=True)
    pool.return_pages([80, 79])
    return pool


def deferring_pool(order: str) -> PagedAllocator:
    """A pool on a device, with frees outstanding before a group, in one that has ended, and in one that is open."""
    pool = PromptDevice.pool(300, 4, order=order)
    pool.alloc_pages(200)
    pool.return_pages(list(range(3, 60)))
    pool.free(THERE[:40], partial=True, deferred=True)
    pool.free_group_begin()
    pool.free(THERE[80:83], partial=True, deferred=True)
    pool.free(THERE[83:90], partial=True, deferred=True)
    pool.return_pages(THERE[400:420], deferred=True)
    pool.free_group_end()
    pool.free_group_begin()
    pool.free(THERE[160:165], partial=True, deferred=True)
    return pool


HOST_SNAPSHOT = HostAllocator(700, 2).snapshot()
LANE_SNAPSHOT = OwnerLaneAllocator(300, 2, 2).snapshot()
COUNTS_SNAPSHOT = PageCounts(700).snapshot()
PAGED_SNAPSHOTS = {order: PagedAllocator(300, 4, order=order).snapshot() for order in ("fifo", "lifo", "sorted")}
HELD = list(range(200, 260))
OWNERS = [0, 1, 1, 0] * 9

#: One line a call: each is made on a pool as `host_pool` or `lane_pool` builds it.
HOST_CALLS: dict[str, Callable[[Any], Any]] = {
    "alloc": lambda pool: pool.alloc(60),
    "alloc nothing": lambda pool: pool.alloc(0),
    "alloc of a wrong size": lambda pool: pool.alloc(3),
    "alloc_contiguous_preferred": lambda pool: pool.alloc_contiguous_preferred(120),
    "alloc_fewest_runs": lambda pool: pool.alloc_fewest_runs(1040),
    "alloc_pages": lambda pool: pool.alloc_pages(90, "contiguous"),
    "alloc_runs": lambda pool: pool.alloc_runs(520, "fifo"),
    "alloc_runs, one run": lambda pool: pool.alloc_runs(200, "one_run"),
    "alloc_runs_many": lambda pool: pool.alloc_runs_many([70, 0, 90, 120]),
    "alloc_runs_many, one run": lambda pool: pool.alloc_runs_many([30, 5, 200], "one_run"),
    "alloc_runs_many, too much": lambda pool: pool.alloc_runs_many([30, 5, 250], "one_run"),
    "free, tensor": lambda pool: pool.free(torch.tensor(HELD)),
    "free, list": lambda pool: pool.free(HELD),
    "free, in any order": lambda pool: pool.free(HELD[::-1]),
    "free, numpy ints": lambda pool: pool.free([np.int64(slot) for slot in HELD]),
    "free of free pages": lambda pool: pool.free([0, 1, 40, 41]),
    "return_pages": lambda pool: pool.return_pages(range(100, 130)),
    "return_pages, twice": lambda pool: pool.return_pages(np.array([120, 120, 9_999])),
    "free to the front": lambda pool: pool.free(HELD, front=True),
    "return_pages to the front": lambda pool: pool.return_pages(list(range(100, 130)), front=True),
    "take_pages": lambda pool: pool.take_pages(list(range(210, 300))),
    "take_pages, not free": lambda pool: pool.take_pages(np.array([300, 301, 100])),
    "restore": lambda pool: pool.restore(HOST_SNAPSHOT),
    "clear": lambda pool: pool.clear(),
    "largest_run": lambda pool: pool.largest_run(),
    "snapshot": lambda pool: pool.snapshot(),
    "free_page_ids": lambda pool: pool.free_page_ids(),
    "free_page_ids, some": lambda pool: pool.free_page_ids(after=500, limit=20),
    "stats": lambda pool: pool.stats(),
    "resize, pages in use": lambda pool: pool.resize(100),
}
LANE_CALLS: dict[str, Callable[[Any], Any]] = {
    "alloc_pages_with_owners, list": lambda pool: pool.alloc_pages_with_owners(OWNERS),
    "alloc_pages_with_owners, int32": lambda pool: pool.alloc_pages_with_owners(np.array(OWNERS, np.int32)),
    "alloc_pages_with_owners, no rank": lambda pool: pool.alloc_pages_with_owners([0, 2]),
    "select_pages": lambda pool: pool.select_pages(OWNERS),
    "free, tensor": lambda pool: pool.free(torch.tensor(HELD)),
    "free, list": lambda pool: pool.free(HELD),
    "free, in any order": lambda pool: pool.free(HELD[::-1]),
    "return_pages": lambda pool: pool.return_pages(range(100, 130)),
    "return_pages, twice": lambda pool: pool.return_pages(np.array([120, 120, 9_999])),
    "merge_released": lambda pool: pool.merge_released(),
    "free_pages": lambda pool: pool.free_pages,
    "free_pages, assigned": lambda pool: setattr(pool, "free_pages", torch.arange(90, 120)),
    "release_pages, assigned": lambda pool: setattr(pool, "release_pages", [101, 99]),
    "stats": lambda pool: pool.compute_owner_lane_stats(OWNERS),
    "restore": lambda pool: pool.restore(LANE_SNAPSHOT),
    "clear": lambda pool: pool.clear(),
    "snapshot": lambda pool: pool.snapshot(),
}
COUNT_CALLS: dict[str, Callable[[Any], Any]] = {
    "retain": lambda counts: counts.retain(HELD),
    "retain, ndarray": lambda counts: counts.retain(np.array(HELD)),
    "retain, out of range": lambda counts: counts.retain([*HELD, 700]),
    "release": lambda counts: counts.release(range(100, 300)),
    "release, tensor": lambda counts: counts.release(torch.tensor(HELD)),
    "release, not held": lambda counts: counts.release([*HELD, 600]),
    "clear": lambda counts: counts.clear(),
    "restore": lambda counts: counts.restore(COUNTS_SNAPSHOT),
    "held_page_ids": lambda counts: counts.held_page_ids(),
}
PAGED_HELD = list(range(400, 460))
# On the device: slots of pages 60 to 162, then page ids.
THERE = torch.cat([torch.arange(240, 640), torch.arange(162, 190)])
ROWS = np.arange(400, 448).reshape(2, 24)
PAGED_CALLS: dict[str, Callable[[Any], Any]] = {
    "alloc": lambda pool: pool.alloc(60),
    "alloc nothing": lambda pool: pool.alloc(0),
    "alloc of too much": lambda pool: pool.alloc(4_000),
    "alloc of a wrong size": lambda pool: pool.alloc(3),
    "alloc_pages": lambda pool: pool.alloc_pages(30),
    "alloc_extend": lambda pool: pool.alloc_extend([0, 5, 8], [30, 9, 20], [-1, 400, 7]),
    "alloc_extend, tensors": lambda pool: pool.alloc_extend(*map(torch.tensor, ([0, 5], [30, 9], [-1, 400]))),
    "alloc_extend, too much": lambda pool: pool.alloc_extend([0], [4_000], [-1]),
    "alloc_extend, wrong": lambda pool: pool.alloc_extend([0, 5], [30, 9], [-1, 401]),
    "alloc_decode": lambda pool: pool.alloc_decode(np.array([1, 6, 9] * 9), np.array([-1, 400, 407] * 9)),
    "alloc_decode, lists": lambda pool: pool.alloc_decode([1, 6, 9], [-1, 400, 407]),
    "alloc_decode, wrong": lambda pool: pool.alloc_decode([1, 6], [-1, 401]),
    "free, tensor": lambda pool: pool.free(torch.tensor(PAGED_HELD)),
    "free, list": lambda pool: pool.free(PAGED_HELD),
    "free, in any order": lambda pool: pool.free(PAGED_HELD[::-1]),
    "free, partial": lambda pool: pool.free([*PAGED_HELD, 467], partial=True),
    "free, partial in any order": lambda pool: pool.free(PAGED_HELD[1::-2], partial=True),
    "free, partial, again": lambda pool: pool.free([283, 287, 400], partial=True),
    "free of free pages": lambda pool: pool.free([12, 13, 14, 15, 400, 401, 402, 403]),
    "free_rows": lambda pool: pool.free_rows(ROWS, [5, 24]),
    "free_rows, wrong": lambda pool: pool.free_rows(ROWS, [5, 25]),
    "return_pages": lambda pool: pool.return_pages(range(130, 100, -1)),
    "return_pages, twice": lambda pool: pool.return_pages(np.array([120, 120, 9_999])),
    "free_group_begin": lambda pool: pool.free_group_begin(),
    "free_group_end": lambda pool: pool.free_group_end(),
    "free_pages": lambda pool: pool.free_pages,
    "restore": lambda pool: pool.restore(PAGED_SNAPSHOTS[pool.order]),
    "clear": lambda pool: pool.clear(),
    "snapshot": lambda pool: pool.snapshot(),
}
DEFERRING_CALLS = PAGED_CALLS | {
    "free, deferred": lambda pool: pool.free(THERE[200:240], deferred=True),
    "free, deferred, of the host": lambda pool: pool.free(list(range(560, 600)), deferred=True),
    "return_pages, deferred": lambda pool: pool.return_pages(THERE[420:], deferred=True),
    "alloc_extend, last slots there": lambda pool: pool.alloc_extend([0, 1, 8], [30, 9, 20], THERE[[0, 160, 5]]),
    "alloc_decode, last slots there": lambda pool: pool.alloc_decode([1, 2, 9] * 3, THERE[[0, 160, 5] * 3]),
}
POOLS: dict[str, tuple[Callable[[], Any], dict[str, Callable[[Any], Any]]]] = {
    "host": (host_pool, HOST_CALLS),
    "lanes": (lane_pool, LANE_CALLS),
    "counts": (page_counts, COUNT_CALLS),
    "paged, fifo": (lambda: paged_pool("fifo"), PAGED_CALLS),
    "paged, lifo": (lambda: grouping_pool("lifo"), PAGED_CALLS),
    "paged, sorted": (lambda: paged_pool("sorted"), PAGED_CALLS),
    "paged, sorted in a group": (lambda: grouping_pool("sorted"), PAGED_CALLS),
    "paged, frees outstanding": (lambda: deferring_pool("lifo"), DEFERRING_CALLS),
}


def outcomes(name: str, call: str) -> tuple[Any, Any]:
    """Return what the pool is before a call and after it."""
    build, calls = POOLS[name]
    pool = build()
    before = pool.snapshot()
    try:
        calls[call](pool)
    except (ValueError, TypeError):
        assert pool.snapshot() == before
    return before, pool.snapshot()


@pytest.mark.compiled  # Plain Python is interrupted anywhere.
@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="there are no timers on this system")
@pytest.mark.parametrize("name", POOLS)
def test_a_signal_leaves_the_pool_as_before_or_after_the_call(name: str) -> None:
    build, calls = POOLS[name]
    pool = build()
    start = pool.snapshot()
    ends = {call: outcomes(name, call)[1] for call in calls}
    random = np.random.Generator(np.random.PCG64(8))
    struck = 0
    for turn in range(CALLS // len(calls) + 1):
        for call, made in calls.items():
            try:
                signal.signal(signal.SIGALRM, _strike)
                signal.setitimer(signal.ITIMER_REAL, float(random.uniform(1e-6, 6e-5)))
                made(pool)
            except StruckError:
                struck += 1
            except (ValueError, TypeError):
                pass
            while True:
                try:
                    signal.setitimer(signal.ITIMER_REAL, 0)
                    signal.signal(signal.SIGALRM, signal.SIG_IGN)
                    break
                except StruckError:
                    struck += 1
            state = pool.snapshot()
            assert state in (start, ends[call]), f"{call} was torn"
            if turn % 50 == 0:
                pool.check()
            pool.restore(start)
    assert struck > CALLS // 100


def _strike(number: int, frame: Any) -> None:
    raise StruckError


class Refuses:
    """An integer whose conversion fails."""

    def __index__(self) -> int:
        raise KeyboardInterrupt


class Slow:
    """An integer whose conversion takes a while and can be interrupted."""

    def __init__(self, value: int) -> None:
        self.value = value

    def __index__(self) -> int:
        time.sleep(0.001)
        return self.value


class Calls:
    """An integer whose conversion calls back."""

    def __init__(self, value: int, back: Callable[[], Any]) -> None:
        self.value, self.back = value, back

    def __index__(self) -> int:
        self.back()
        return self.value


def held_pages(kind: Kind, pool: Any, count: int = 12) -> list[int]:
    slots = kind.take(pool, count)
    assert slots is not None
    return [slot // kind.page_size for slot in slots.tolist()[:: kind.page_size]]


@pytest.mark.parametrize("place", [0, 5, 11])
def test_an_element_that_cannot_be_converted_changes_nothing(kind: Kind, pool: Any, place: int) -> None:
    pages: list[Any] = held_pages(kind, pool)
    slots: list[Any] = kind.slots(pages)
    before = pool.snapshot()
    pages[place] = slots[place * kind.page_size] = Refuses()
    for call, values in ((pool.return_pages, pages), (pool.free, slots)):
        with pytest.raises(KeyboardInterrupt):
            call(values)
        assert pool.snapshot() == before
    if isinstance(pool, OwnerLaneAllocator):
        for call in (pool.alloc_pages_with_owners, pool.select_pages, pool.compute_owner_lane_stats):
            with pytest.raises(KeyboardInterrupt):
                call([0] * place + [Refuses()])
        for name in ("free_pages", "release_pages"):
            with pytest.raises(KeyboardInterrupt):
                setattr(pool, name, pages)
        assert pool.snapshot() == before
    if isinstance(pool, PagedAllocator):
        odd, zeros, ones = [1] * place + [Refuses()], [0] * (place + 1), [1] * (place + 1)
        for arguments in ((odd, ones, ones), (zeros, odd, ones), (zeros, ones, odd)):
            with pytest.raises(KeyboardInterrupt):
                pool.alloc_extend(*arguments)
            with pytest.raises(KeyboardInterrupt):
                pool.alloc_decode(*arguments[1:] if odd is not arguments[0] else (odd, ones))
        with pytest.raises(KeyboardInterrupt):
            pool.free_rows(np.zeros((place + 1, 1), np.int64), odd)
        assert pool.snapshot() == before
    pool.check()


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="there are no timers on this system")
def test_a_signal_during_a_slow_conversion_changes_nothing(kind: Kind, pool: Any) -> None:
    pages = held_pages(kind, pool)
    before = pool.snapshot()
    former = signal.signal(signal.SIGALRM, _strike)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.005)
        with pytest.raises(StruckError):
            pool.return_pages([Slow(page) for page in pages])
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, former)
    assert pool.snapshot() == before
    pool.check()


def test_elements_that_free_pages_themselves_are_found_out(kind: Kind, pool: Any) -> None:
    pages = held_pages(kind, pool)

    def free_the_last() -> None:
        if pool.available_size() < 13 * kind.page_size:
            pool.return_pages(pages[-1:])

    with pytest.raises(ValueError, match="already free"):
        pool.return_pages([Calls(pages[0], free_the_last), *pages[1:]])
    assert pool.available_size() == 13 * kind.page_size
    pool.check()


def test_elements_that_take_pages_meanwhile_disturb_nothing(kind: Kind, pool: Any) -> None:
    pages = held_pages(kind, pool)
    taken: list[int] = []

    def take_one() -> None:
        taken.extend(held_pages(kind, pool, 1))

    assert pool.return_pages([Calls(pages[0], take_one), *pages[1:]]) == 12
    assert len(set(taken) - set(pages)) == 1
    assert pool.available_size() == 23 * kind.page_size
    pool.check()


@pytest.mark.parametrize("change", [list.clear, lambda values: values.extend([10**6] * 10_000)], ids=["less", "more"])
def test_a_list_that_its_elements_change_is_read_as_it_was(kind: Kind, pool: Any, change: Any) -> None:
    pages = held_pages(kind, pool)
    values: list[Any] = []
    values.extend([Calls(pages[0], lambda: change(values)), *pages[1:]])
    assert pool.return_pages(values) == 12
    pool.check()
    if isinstance(pool, OwnerLaneAllocator):
        owners: list[Any] = []
        owners.extend([Calls(0, lambda: change(owners)), 0])
        taken = pool.select_pages(owners)
        assert taken is not None
        assert len(taken) == 2
    if isinstance(pool, PagedAllocator):
        lengths: list[Any] = []
        lengths.extend([Calls(1, lambda: change(lengths)), 1])
        slots = pool.alloc_decode(lengths, [-1, -1])
        assert slots is not None
        assert len(slots) == 2


@pytest.mark.compiled  # As plain Python a list is read in many steps.
def test_a_list_that_a_thread_changes_is_read_in_one_step(kind: Kind, pool: Any) -> None:
    pages = held_pages(kind, pool)
    held = pool.snapshot()
    values: list[int] = []
    stop = threading.Event()

    def change() -> None:
        # At every instant all twelve pages, or none.
        while not stop.is_set():
            for target in (pages, []):
                values[:] = target

    thread = threading.Thread(target=change)
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    thread.start()
    try:
        found = [0, 0]
        deadline = time.monotonic() + 5
        while min(found) < 20 and time.monotonic() < deadline:
            pool.restore(held)
            count = pool.return_pages(values)
            assert count in (0, 12)
            found[count > 0] += 1
    finally:
        stop.set()
        thread.join()
        sys.setswitchinterval(interval)
    assert found[1] > 0
    pool.check()


class CallsBack:
    """Garbage in a cycle, whose finaliser calls a pool."""

    def __init__(self, back: Callable[[], Any]) -> None:
        self.back, self.cycle = back, self

    def __del__(self) -> None:
        self.back()


@pytest.mark.compiled  # Plain Python runs finalisers anywhere.
def test_finalisers_that_call_the_pool_run_between_steps(kind: Kind, pool: Any) -> None:
    held: list[list[int]] = []
    busy = False

    def back() -> None:
        nonlocal busy
        if busy:
            return
        busy = True
        if len(held) > 1:
            assert pool.return_pages(held.pop()) == 1
        else:
            held.append(held_pages(kind, pool, 1))
        busy = False

    thresholds = gc.get_threshold()
    gc.set_threshold(1)
    try:
        for turn in range(600):
            CallsBack(back)
            taken = kind.take(pool, 4, kind.policies[turn % len(kind.policies)])
            assert taken is not None
            CallsBack(back)
            in_use = {slot // kind.page_size for slot in taken.tolist()}
            assert len(in_use) == 4
            assert not in_use & {page for pages in held for page in pages}
            CallsBack(back)
            assert pool.free(taken.tolist()[::-1] if turn % 2 else taken) == 4 * kind.page_size
            CallsBack(back)
            assert pool.snapshot() is not None
    finally:
        gc.set_threshold(*thresholds)
    gc.collect()
    pool.check()
    assert pool.available_size() == (24 - len(held)) * kind.page_size


@pytest.mark.compiled
def test_a_finaliser_that_restores_the_pool_takes_nothing_from_under_a_call(kind: Kind, pool: Any) -> None:
    kind.take(pool, 7)
    snapshot = pool.snapshot()
    readers = [pool.snapshot, pool._books, pool.check]
    if isinstance(pool, HostAllocator):
        readers += [pool.free_page_ids, lambda: pool.free_page_ids(after=20), pool.stats, lambda: pool.resize(24)]
    thresholds = gc.get_threshold()
    gc.set_threshold(1)
    try:
        for turn in range(300):
            CallsBack(lambda: pool.restore(snapshot))
            readers[turn % len(readers)]()
    finally:
        gc.set_threshold(*thresholds)
    gc.collect()
    pool.check()
    assert pool.snapshot() == snapshot


# In a process of its own, as what else runs out of memory there is not ours to say.
WITHOUT_MEMORY = """
import gc, sys
import _testcapi
from tests.kvpool.test_interrupted import POOLS, outcomes


def error_of(made, pool, step):
    # In a function, whose variables take no memory.
    _testcapi.set_nomemory(step, step + 1)
    try:
        made(pool)
    except BaseException as raised:
        return raised
    finally:
        _testcapi.remove_mem_hooks()


gc.disable()
build, calls = POOLS[sys.argv[1]]
for call, made in calls.items():
    before, after = outcomes(sys.argv[1], call)
    for step in range(60):
        pool = build()
        error = error_of(made, pool, step)
        state = pool.snapshot()
        assert state in (before, after), f"{call}, step {step}: torn by {error!r}"
        assert state == before or error is None, f"{call}, step {step}: changed, and raised {error!r}"
        pool.check()
"""


@pytest.mark.compiled
@pytest.mark.parametrize("name", POOLS)
def test_no_memory_at_any_step_leaves_the_pool_as_before_or_after(name: str) -> None:
    pytest.importorskip("_testcapi")
    done = subprocess.run(
        [sys.executable, "-X", "faulthandler", "-c", WITHOUT_MEMORY, name], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
