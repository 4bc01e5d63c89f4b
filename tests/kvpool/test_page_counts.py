"""Reference counts of pages, beside a Counter."""

import copy
import pickle
import threading
from collections import Counter
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
import torch
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from kvpool import CountError, HostAllocator, PageCounts, PageCountsSnapshot
from kvpool._books import check_counts
from tests.kvpool.compiled import COMPILED
from tests.kvpool.pools import INPUTS

MOST = 2**32 - 1


def test_a_page_is_released_when_its_last_holder_goes() -> None:
    counts = PageCounts(8)
    assert counts.retain([3, 5, 7]) == 3
    assert counts.retain([5]) == 1
    assert (counts.num_held, counts.count(5), counts.count(0)) == (3, 2, 0)
    assert counts.held_page_ids().tolist() == [3, 5, 7]
    assert counts.release([7, 5, 3]).tolist() == [7, 3]
    assert counts.release([5]).tolist() == [5]
    assert counts.num_held == 0
    counts.check()


def test_a_page_counts_as_often_as_it_stands_in_a_call() -> None:
    counts = PageCounts(8)
    counts.retain([2, 2, 2])
    assert counts.release([2, 2]).tolist() == []
    counts.retain([1])
    assert counts.release([2, 1]).tolist() == [2, 1]
    counts.retain([4, 4])
    assert counts.release([4, 4]).tolist() == [4]


def test_what_is_released_is_what_an_allocator_takes_back() -> None:
    pool, counts = HostAllocator(16, 2), PageCounts(16)
    first, second = pool.alloc_pages(3), pool.alloc_pages(2)
    counts.retain(first)
    counts.retain(np.concatenate([first, second]))
    assert pool.return_pages(counts.release(np.concatenate([second, first]))) == 2
    assert pool.return_pages(counts.release(first), front=True) == 3
    assert pool.available_size() == pool.size
    assert counts.num_held == 0


@pytest.mark.parametrize("convert", INPUTS.values(), ids=INPUTS.keys())
def test_ids_of_every_kind(convert: Any) -> None:
    counts = PageCounts(200)
    ids = list(range(150, 20, -1))
    assert counts.retain(convert(ids)) == 130
    released = counts.release(convert(ids))
    assert released.tolist() == ids
    assert released.dtype == np.int64
    assert released.flags.owndata
    with pytest.raises(CountError, match="not held"):
        counts.release(convert(ids))
    counts.check()


@pytest.mark.parametrize("nothing", [[], (), np.array([]), np.empty(0, np.int32), torch.empty(0)])
def test_nothing_is_counted(nothing: Any) -> None:
    counts = PageCounts(2)
    assert counts.retain(nothing) == 0
    assert counts.release(nothing).tolist() == []


def test_a_wrong_id_is_named_and_nothing_is_counted() -> None:
    counts = PageCounts(8)
    counts.retain([1, 2])
    before = counts.snapshot()
    with pytest.raises(CountError, match="page 7: not held; page 2: held less often than released") as raised:
        counts.release([1, 2, 2, 7])
    assert raised.value.faults == {"not held": [7], "held less often than released": [2]}
    for call in (counts.retain, counts.release):
        for wrong in ([1, 8], [1, -1], [1, 2**70], np.array([1, 2**63], np.uint64), torch.tensor([1, 9])):
            with pytest.raises(CountError, match="out of range"):
                call(wrong)
        for malformed in (3, None, "12", [1.0], [True], np.array([1.0]), torch.tensor([True])):
            with pytest.raises(TypeError):
                call(malformed)
        with pytest.raises(ValueError, match="one dimension"):
            call(np.ones((2, 2), np.int64))
    for page in (8, -1, 2**70):
        with pytest.raises(CountError, match="out of range"):
            counts.count(page)
    with pytest.raises(TypeError):
        counts.count(1.0)
    assert counts.snapshot() == before
    counts.check()


def test_a_page_has_at_most_as_many_holders_as_a_count_holds() -> None:
    counts = PageCounts(3)
    counts.restore(PageCountsSnapshot(np.array([0, MOST - 1, MOST], np.uint32).tobytes()))
    assert (counts.count(2), counts.num_held) == (MOST, 2)
    with pytest.raises(CountError, match=f"held {MOST} times"):
        counts.retain([0, 1, 1])
    with pytest.raises(CountError, match=f"page 2: held {MOST} times"):
        counts.retain([0, 2])
    assert counts.count(0) == 0
    counts.retain([1])
    assert counts.count(1) == MOST
    counts.check()


@pytest.mark.parametrize("size", [0, -1, 2**31, 2.0, True, None])
def test_a_malformed_number_of_pages(size: Any) -> None:
    with pytest.raises((ValueError, TypeError), match="num_pages"):
        PageCounts(size)


def test_snapshots_copies_and_pickles() -> None:
    counts = PageCounts(8)
    counts.retain([1, 1, 6])
    snapshot = counts.snapshot()
    for other in (copy.copy(counts), copy.deepcopy(counts), pickle.loads(pickle.dumps(counts))):
        assert other.snapshot() == snapshot
        assert other.num_held == 2
        other.release([6])
        assert counts.count(6) == 1
    counts.clear()
    assert counts.num_held == 0
    counts.check()
    assert counts.snapshot() == PageCounts(8).snapshot() != snapshot
    counts.restore(snapshot)
    assert counts.release([1, 1]).tolist() == [1]
    counts.check()
    with pytest.raises(ValueError, match="9 pages"):
        counts.restore(PageCounts(9).snapshot())
    with pytest.raises(TypeError, match="snapshot"):
        counts.restore(HostAllocator(8).snapshot())


def test_counts_that_are_built_stay_of_as_many_pages() -> None:
    counts = PageCounts(8)
    with pytest.raises(ValueError, match="stay so"):
        counts.__init__(9)
    counts.retain([7])


@pytest.mark.compiled  # As plain Python they have no fields.
def test_counts_that_nobody_built_are_of_no_pages() -> None:
    counts = PageCounts.__new__(PageCounts)
    counts.check()
    counts.clear()
    assert counts.retain([]) == 0
    with pytest.raises(CountError, match="out of range"):
        counts.retain([0])
    with pytest.raises(CountError):
        counts.release(torch.tensor([0]))


def test_a_wrong_number_of_held_pages_is_found_out() -> None:
    with pytest.raises(AssertionError, match="3 pages are held, and hold 2"):
        check_counts(np.array([0, 1, 5], np.uint32), 3)


@pytest.mark.compiled
def test_threads_count_together() -> None:
    counts = PageCounts(100)
    released: list[int] = []

    def work(seed: int) -> None:
        random = np.random.Generator(np.random.PCG64(seed))
        for _ in range(300):
            ids = random.integers(0, 100, 20)
            counts.retain(ids)
            released.append(len(counts.release(ids.tolist())))

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    counts.check()
    assert counts.num_held == 0
    assert sum(released) > 0


class CountsMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.counts, self.model = PageCounts(12), Counter[int]()
        self.snapshots = [(self.counts.snapshot(), Counter[int]())]

    @rule(ids=st.lists(st.integers(0, 11), max_size=9))
    def retain(self, ids: list[int]) -> None:
        assert self.counts.retain(ids) == len(ids)
        self.model.update(ids)

    @rule(ids=st.lists(st.integers(-1, 12), max_size=9))
    def release(self, ids: list[int]) -> None:
        times = Counter(ids)
        if any(self.model[page] < times[page] for page in times):
            with pytest.raises(CountError):
                self.counts.release(ids)
            return
        expected = []
        for page in ids:
            self.model[page] -= 1
            if not self.model[page]:
                expected.append(page)
        assert self.counts.release(ids).tolist() == expected

    @rule()
    def keep(self) -> None:
        self.snapshots.append((self.counts.snapshot(), self.model.copy()))

    @rule(data=st.data())
    def restore(self, data: st.DataObject) -> None:
        snapshot, model = data.draw(st.sampled_from(self.snapshots))
        self.counts.restore(snapshot)
        self.model = model.copy()

    @invariant()
    def same_counts(self) -> None:
        self.counts.check()
        assert [self.counts.count(page) for page in range(12)] == [self.model[page] for page in range(12)]


TestCountsMachine = CountsMachine.TestCase
TestCountsMachine.settings = settings(max_examples=60 if COMPILED else 15, stateful_step_count=30, deadline=None)
