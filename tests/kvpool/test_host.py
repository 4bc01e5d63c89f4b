"""The host tier's policies, one behaviour a test."""

import copy
import pickle

import numpy as np
import pytest
import torch

from kvpool import FreeError, HostAllocator, HostSnapshot, HostStats, TakeError


def pool_with_free(num_pages: int, order: list[int], page_size: int = 1) -> HostAllocator:
    pool = HostAllocator(num_pages, page_size)
    pool.alloc_pages(num_pages)
    pool.return_pages(order)
    return pool


def test_alloc_reuses_what_was_freed_first() -> None:
    pool = pool_with_free(8, [5, 1, 7, 0])
    assert pool.alloc(2).tolist() == [5, 1]
    pool.free([1])
    assert pool.free_page_ids().tolist() == [7, 0, 1]


def test_pages_join_the_order_by_their_first_slot_in_the_call() -> None:
    pool = pool_with_free(4, [], page_size=2)
    pool.free([7, 1, 0, 4, 6, 5])
    assert pool.free_page_ids().tolist() == [3, 0, 2]


def test_contiguous_prefers_the_fifo_head_over_a_lower_run() -> None:
    pool = pool_with_free(16, [8, 9, 10, 0, 1, 2])
    assert pool.alloc_contiguous_preferred(3).tolist() == [8, 9, 10]


def test_contiguous_takes_the_lowest_run_that_is_long_enough() -> None:
    pool = pool_with_free(16, [12, 5, 11, 10, 2, 4, 3, 0])
    assert pool.alloc_contiguous_preferred(3).tolist() == [2, 3, 4]
    assert pool.free_page_ids().tolist() == [12, 5, 11, 10, 0]


def test_contiguous_takes_one_page_from_the_fifo_head() -> None:
    assert pool_with_free(8, [6, 0, 1]).alloc_contiguous_preferred(1).tolist() == [6]


def test_contiguous_without_a_run_is_alloc() -> None:
    pool = pool_with_free(8, [6, 0, 4, 2])
    assert pool.alloc_contiguous_preferred(3).tolist() == [6, 0, 4]


def test_a_descending_head_is_no_run() -> None:
    assert pool_with_free(8, [4, 3, 6, 7]).alloc_contiguous_preferred(2).tolist() == [3, 4]


def test_fewest_runs_takes_the_smallest_run_that_fits() -> None:
    pool = pool_with_free(32, [*range(5), *range(8, 11), *range(16, 19)])
    assert pool.alloc_fewest_runs(3).tolist() == [8, 9, 10]
    assert pool.alloc_fewest_runs(2).tolist() == [16, 17]
    assert pool.free_page_ids().tolist() == [0, 1, 2, 3, 4, 18]


def test_fewest_runs_joins_the_largest_and_then_the_smallest_that_holds_the_rest() -> None:
    pool = pool_with_free(32, [*range(20, 24), *range(10, 15), 0, 1, 2, 30, 31, 28])
    assert pool.alloc_fewest_runs(7).tolist() == [10, 11, 12, 13, 14, 30, 31]
    pool = pool_with_free(32, [*range(20, 24), *range(10, 14), 0])
    assert pool.alloc_fewest_runs(5).tolist() == [0, 10, 11, 12, 13]


def test_fewest_runs_come_ascending_also_where_the_ends_look_like_one_run() -> None:
    pool = pool_with_free(8, [0, 4, 5, 7])
    snapshot = pool.snapshot()
    assert pool.alloc_fewest_runs(4).tolist() == [0, 4, 5, 7]
    pool.restore(snapshot)
    starts, lengths = pool.alloc_runs(4)
    assert (starts.tolist(), lengths.tolist()) == ([0, 4, 7], [1, 2, 1])


@pytest.mark.parametrize("page_size", [2**40, 2**50])
def test_a_request_that_does_not_fit_asks_for_no_memory(page_size: int) -> None:
    pool = HostAllocator(2**10, page_size)
    pool.alloc_pages(1)
    for method in (pool.alloc, pool.alloc_contiguous_preferred, pool.alloc_fewest_runs):
        assert method(pool.size) is None
        with pytest.raises((MemoryError, ValueError)):
            method(pool.size - page_size)
    assert pool.available_size() == pool.size - page_size
    pool.check()


@pytest.mark.parametrize("free_order", [[0, 0], [4], [-1], list(range(5)), [0] * 10_000])
def test_a_damaged_snapshot_is_refused(free_order: list[int]) -> None:
    pool = HostAllocator(4, 1)
    before = pool.snapshot()
    with pytest.raises(ValueError, match="damaged"):
        pool.restore(HostSnapshot(4, 1, np.array(free_order, np.int32).tobytes()))
    assert pool.snapshot() == before


def test_a_copy_of_a_pool_shares_nothing_with_it() -> None:
    pool = pool_with_free(600, [5, 3, 599], page_size=2)
    for other in (copy.copy(pool), copy.deepcopy(pool), pickle.loads(pickle.dumps(pool))):
        assert other.snapshot() == pool.snapshot()
        assert other.alloc(4).tolist() == [10, 11, 6, 7]
        other.check()
    assert pool.free_page_ids().tolist() == [5, 3, 599]


def test_pages_and_runs_of_each_policy() -> None:
    order = [9, 3, 4, 5, 12]
    assert pool_with_free(16, order).alloc_pages(2).tolist() == [9, 3]
    assert pool_with_free(16, order).alloc_pages(2, "contiguous").tolist() == [3, 4]
    assert pool_with_free(16, order).alloc_pages(3, policy="fewest_runs").tolist() == [3, 4, 5]
    starts, lengths = pool_with_free(16, order).alloc_runs(4)
    assert (starts.tolist(), lengths.tolist()) == ([3, 9], [3, 1])
    starts, lengths = pool_with_free(16, order).alloc_runs(3, "fifo")
    assert (starts.tolist(), lengths.tolist()) == ([9, 3], [1, 2])
    pool = pool_with_free(16, order)
    assert pool.alloc_pages(6) is None
    assert pool.alloc_runs(6) is None
    for policy in ("fifo", "contiguous", "fewest_runs"):
        assert pool.alloc_pages(0, policy).dtype == np.int64
        assert [part.tolist() for part in pool.alloc_runs(0, policy)] == [[], []]


def test_an_unknown_policy_is_refused() -> None:
    pool = HostAllocator(4)
    for policy in ("best", None, 3, []):
        with pytest.raises(ValueError, match="policy"):
            pool.alloc_pages(1, policy)
        with pytest.raises(ValueError, match="policy"):
            pool.alloc_runs(1, policy)
    assert pool.free_page_ids().tolist() == [0, 1, 2, 3]


def test_largest_run_counts_pages() -> None:
    pool = pool_with_free(2000, [*range(500, 1600), *range(3)], page_size=4)
    assert pool.largest_run() == 1100
    pool.alloc(8)
    assert pool.largest_run() == 1098
    pool.alloc(pool.available_size())
    assert pool.largest_run() == 0


def test_a_pool_as_large_as_its_memory() -> None:
    assert HostAllocator.from_size_gb(220).num_pages == 34_375
    assert HostAllocator.from_size_gb(1, bytes_per_token=1000, page_size=16).num_pages == 62_500
    pool = HostAllocator.from_size_gb(0.0128)
    assert (pool.num_pages, pool.page_size, pool.size) == (2, 64, 128)
    for size, error in ((0, ValueError), (-1, ValueError), (0.0001, ValueError), ("1", TypeError), (True, TypeError)):
        with pytest.raises(error, match="size_gb"):
            HostAllocator.from_size_gb(size)
    for size in (float("nan"), float("inf"), 1e300, 10**400):
        with pytest.raises(ValueError, match="size_gb"):
            HostAllocator.from_size_gb(size)
    with pytest.raises(ValueError, match="bytes_per_token"):
        HostAllocator.from_size_gb(1, bytes_per_token=0)
    for huge in ({"bytes_per_token": 10**400}, {"page_size": 10**400}):
        with pytest.raises(ValueError, match="size_gb must hold at least one page"):
            HostAllocator.from_size_gb(1, **huge)


def test_free_page_ids_are_a_copy() -> None:
    pool = HostAllocator(4)
    pool.free_page_ids()[:] = 9
    assert pool.free_page_ids().tolist() == [0, 1, 2, 3]


def test_pages_given_back_in_many_calls_keep_their_order() -> None:
    random = np.random.Generator(np.random.PCG64(7))
    order = random.permutation(3000)
    pool = pool_with_free(3000, [])
    for part in np.array_split(order, 37):
        pool.return_pages(torch.from_numpy(part))
    assert np.array_equal(pool.free_page_ids(), order)
    assert np.array_equal(pool.alloc_pages(3000), order)


def test_reserved_pages_are_never_handed_out() -> None:
    pool = HostAllocator(8, 2, num_reserved=3)
    assert (pool.num_pages, pool.size, pool.num_reserved, pool.available_size()) == (8, 16, 3, 10)
    assert pool.largest_run() == 5
    for policy in ("fifo", "contiguous", "fewest_runs"):
        assert pool.alloc_pages(6, policy) is None
        pages = pool.alloc_pages(5, policy)
        assert pages is not None
        assert pages.tolist() == [3, 4, 5, 6, 7]
        pool.return_pages(pages)
    pool.clear()
    pool.check()
    assert pool.free_page_ids().tolist() == [3, 4, 5, 6, 7]


def test_giving_a_reserved_page_back_names_it() -> None:
    pool = HostAllocator(8, 2, num_reserved=3)
    pool.alloc(4)
    for give in (lambda: pool.free([6, 7, 4, 5]), lambda: pool.return_pages([3, 2, 0])):
        with pytest.raises(FreeError, match="reserved") as raised:
            give()
        assert raised.value.faults.get("reserved") in ([2], [0, 2])
    pool.check()
    assert pool.available_size() == 6


def test_a_pool_may_be_reserved_whole_and_not_more() -> None:
    pool = HostAllocator(2, num_reserved=2)
    pool.check()
    assert pool.alloc_pages(1) is None
    assert pool.largest_run() == 0
    pool.restore(pool.snapshot())
    for wrong, error in ((3, ValueError), (-1, ValueError), (1.0, TypeError), (True, TypeError), (None, TypeError)):
        with pytest.raises(error, match="num_reserved"):
            HostAllocator(2, num_reserved=wrong)


def test_a_snapshot_tells_how_many_pages_are_reserved() -> None:
    pool = HostAllocator(8, num_reserved=1)
    pool.alloc_pages(2)
    for other in (copy.copy(pool), pickle.loads(pickle.dumps(pool))):
        assert other.num_reserved == 1
        assert other.snapshot() == pool.snapshot()
    snapshot = pickle.loads(pickle.dumps(pool.snapshot()))
    assert snapshot == pool.snapshot()
    with pytest.raises(ValueError, match="1 reserved"):
        HostAllocator(8).restore(snapshot)


def test_pages_given_back_to_the_front_are_the_next_in_the_order_given() -> None:
    pool = pool_with_free(64, [9, 3])
    pool.return_pages([7, 1, 4], front=True)
    assert pool.free_page_ids().tolist() == [7, 1, 4, 9, 3]
    pool.free([12, 11], front=True)
    pool.free([50], front=False)
    assert pool.alloc(4).tolist() == [12, 11, 7, 1]
    pool.check()


def test_slots_in_any_order_go_to_the_front_by_their_first_slot() -> None:
    pool = pool_with_free(4, [], page_size=2)
    pool.free([7, 1, 0, 6], front=True)
    assert pool.free_page_ids().tolist() == [3, 0]


def test_a_stack_of_pages_many_blocks_high() -> None:
    pool = pool_with_free(4_000, [3_999])
    for page in range(3_000):
        pool.return_pages([page], front=True)
    pool.check()
    for page in (2_999, 1_500, 17, 0):
        pool.take_pages([page])
        pool.return_pages([page], front=True)
        pool.check()
        assert pool.free_page_ids()[0] == page
    pool.take_pages(range(0, 3_000, 2))
    pool.check()
    assert pool.alloc_pages(3).tolist() == [17, 2_999, 2_997]
    assert pool.free_page_ids()[-1] == 3_999


@pytest.mark.parametrize("front", [1, None, "yes", 0.0])
def test_front_is_a_bool(front: object) -> None:
    pool = pool_with_free(8, [])
    for give in (pool.free, pool.return_pages):
        with pytest.raises(TypeError, match="front"):
            give([1], front=front)
    assert pool.available_size() == 0


def test_taking_pages_by_their_ids() -> None:
    pool = HostAllocator(40, 2)
    assert pool.take_pages([30, 2, 3]) == 3
    assert pool.free_page_ids().tolist() == [page for page in range(40) if page not in (2, 3, 30)]
    assert pool.take_pages([]) == 0
    assert pool.largest_run() == 26
    pool.check()


def test_a_page_that_cannot_be_taken_is_named_and_nothing_changes() -> None:
    pool = HostAllocator(40, num_reserved=2)
    pool.take_pages([5, 6])
    before = pool.snapshot()
    with pytest.raises(TakeError, match="cannot take") as raised:
        pool.take_pages([7, 9, 6, 40, 9, 1, -1, 8, 8])
    assert raised.value.faults == {
        "out of range, which is 2 to 39": [-1, 40],
        "reserved": [1],
        "given twice in one call": [8, 9],
        "not free": [6],
    }
    for wrong in ([2**70], np.array([2**63], np.uint64)):
        with pytest.raises(TakeError, match="out of range"):
            pool.take_pages(wrong)
    with pytest.raises(TypeError):
        pool.take_pages([True])
    assert pool.snapshot() == before
    pool.check()


def test_one_run_is_the_smallest_that_holds_all_or_none() -> None:
    pool = pool_with_free(32, [*range(5), *range(8, 11), 20, *range(24, 27)])
    assert pool.alloc_pages(3, "one_run").tolist() == [8, 9, 10]
    starts, lengths = pool.alloc_runs(2, "one_run")
    assert (starts.tolist(), lengths.tolist()) == ([24], [2])
    before = pool.snapshot()
    assert pool.alloc_pages(6, "one_run") is None
    assert pool.alloc_runs(6, "one_run") is None
    assert pool.snapshot() == before
    assert pool.alloc_pages(0, "one_run").tolist() == []


def test_many_requests_are_served_as_one_after_the_other_or_not_at_all() -> None:
    for policy in ("fifo", "contiguous", "fewest_runs", "one_run"):
        pool, other = (pool_with_free(64, [*range(40, 60), 3, *range(8, 30), 1]) for _ in range(2))
        sizes = [4, 0, 9, 2]
        found = pool.alloc_runs_many(np.array(sizes, np.int32), policy)
        expected = [other.alloc_runs(size, policy) for size in sizes]
        assert [[part.tolist() for part in each] for each in found] == [
            [part.tolist() for part in each] for each in expected
        ]
        assert pool.snapshot() == other.snapshot()
        for array in (part for each in found for part in each):
            assert array.base is None
            assert array.flags.owndata
        assert pool.alloc_runs_many([1, 10, 30], policy) is None
        assert pool.snapshot() == other.snapshot()
        pool.check()
    assert HostAllocator(4).alloc_runs_many([]) == []


def test_many_requests_of_which_the_last_finds_no_run_leave_the_pool() -> None:
    pool = pool_with_free(3_000, [*range(100, 300), *range(400, 700), *range(0, 90, 2)])
    before = pool.snapshot()
    assert pool.alloc_runs_many([300, 0, 200, 1, 2], "one_run") is None
    pool.check()
    assert pool.snapshot() == before
    assert [starts.tolist() for starts, _ in pool.alloc_runs_many([300, 0, 200, 1], "one_run")] == [
        [400],
        [],
        [100],
        [0],
    ]


@pytest.mark.parametrize(
    ("sizes", "error"),
    [
        ([1, -1], ValueError),
        ([2**63], ValueError),
        ([1.0], TypeError),
        ([True], TypeError),
        (3, TypeError),
        (None, TypeError),
        (np.ones((1, 1), np.int64), ValueError),
    ],
)
def test_many_requests_of_wrong_sizes(sizes: object, error: type[Exception]) -> None:
    pool = HostAllocator(8)
    with pytest.raises(error, match="num_pages"):
        pool.alloc_runs_many(sizes)
    with pytest.raises(ValueError, match="policy"):
        pool.alloc_runs_many([1], "two_runs")
    assert pool.available_size() == pool.size


def test_a_part_of_the_free_pages() -> None:
    order = [int(page) for page in np.random.Generator(np.random.PCG64(3)).permutation(200)]
    pool = pool_with_free(300, order)
    pool.take_pages(order[40:60])
    order[40:60] = []
    assert pool.free_page_ids(limit=5).tolist() == order[:5]
    assert pool.free_page_ids(limit=0).tolist() == []
    assert pool.free_page_ids(after=order[37], limit=np.int64(30)).tolist() == order[38:68]
    assert pool.free_page_ids(after=np.int32(order[-3])).tolist() == order[-2:]
    assert pool.free_page_ids(after=order[-1]).tolist() == []
    assert pool.free_page_ids(limit=2**70).tolist() == order
    for page in (299, -1, 300, 2**70, -(2**70)):
        with pytest.raises(ValueError, match="after must be a free page"):
            pool.free_page_ids(after=page)
    for wrong, error in ((-1, ValueError), (1.5, TypeError), (True, TypeError), ("1", TypeError)):
        with pytest.raises(error, match="limit"):
            pool.free_page_ids(limit=wrong)
    with pytest.raises(TypeError, match="after"):
        pool.free_page_ids(after=1.0)


def test_a_pool_that_grows_gains_pages_at_the_end_of_the_order() -> None:
    pool = pool_with_free(20, [9, 3], page_size=2)
    pool.resize(23)
    assert (pool.num_pages, pool.size, pool.available_size()) == (23, 46, 10)
    assert pool.free_page_ids().tolist() == [9, 3, 20, 21, 22]
    assert pool.largest_run() == 3
    pool.check()
    pool.free(list(range(6)))
    pool.clear()
    assert pool.available_size() == 46
    pool.resize(4_000)
    pool.check()
    assert pool.alloc_pages(3_990, "one_run").tolist() == list(range(3_990))


def test_a_pool_that_shrinks_names_the_pages_in_use() -> None:
    pool = pool_with_free(1_000, [9, 980, *range(990, 1_000), 3], page_size=2)
    before = pool.snapshot()
    with pytest.raises(ValueError, match="pages 985, 986, 987, 988, 989 cannot go while in use"):
        pool.resize(985)
    with pytest.raises(ValueError, match="and 971 more"):
        pool.resize(10)
    assert pool.snapshot() == before
    assert pool.num_pages == 1_000
    pool.resize(990)
    pool.check()
    assert pool.free_page_ids().tolist() == [9, 980, 3]
    assert pool.size == 1_980
    with pytest.raises(FreeError, match="out of range"):
        pool.return_pages([995])
    with pytest.raises(ValueError, match="snapshot"):
        pool.restore(before)


@pytest.mark.parametrize("size", [0, -1, 2**30, 2**70, 1.0, True, None])
def test_a_size_that_no_pool_can_have(size: object) -> None:
    pool = HostAllocator(8)
    with pytest.raises((ValueError, TypeError), match="num_pages"):
        pool.resize(size)
    with pytest.raises(ValueError, match="num_reserved"):
        HostAllocator(8, num_reserved=4).resize(3)
    assert pool.num_pages == 8


def test_stats_count_calls_and_runs() -> None:
    pool = pool_with_free(16, [*range(5), *range(8, 11), 13])
    made = HostStats(free=9, runs=3, longest_run=5, allocations=1, refusals=0)
    assert pool.stats() == made
    pool.alloc(10)
    pool.alloc_pages(10)
    pool.alloc_pages(6, "one_run")
    pool.alloc_runs(10)
    pool.alloc_runs_many([5, 5])
    with pytest.raises(ValueError, match="need_size"):
        pool.alloc(-1)
    assert pool.stats() == HostStats(9, 3, 5, 1, 5)
    pool.restore(pool.snapshot())
    pool.clear()
    assert pool.stats() == HostStats(16, 1, 16, 1, 5)
    assert copy.copy(pool).stats() == HostStats(16, 1, 16, 0, 0)
    for call in (
        pool.alloc,
        pool.alloc_contiguous_preferred,
        pool.alloc_fewest_runs,
        pool.alloc_pages,
        pool.alloc_runs,
    ):
        call(2)
    pool.take_pages([15])
    pool.alloc_runs_many([1, 1], "one_run")
    assert pool.stats() == HostStats(3, 1, 3, 8, 5)
    with pytest.raises(AttributeError):
        pool.stats().free = 3
