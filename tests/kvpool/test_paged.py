"""The device tier of one rank: orders, requests that grow, frees by parts and in groups, one behaviour a test."""

import copy
import pickle
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from kvpool import FreeError, PagedAllocator, PagedSnapshot
from oracle import PagedOracle
from tests.kvpool.pools import INPUTS
from tests.kvpool.test_contract import unchanged
from tests.paged_traffic import OPERATIONS, Ours, Traffic

ORDERS = ("fifo", "lifo", "sorted")


@pytest.fixture(params=ORDERS)
def order(request: pytest.FixtureRequest) -> str:
    return request.param


def taken_pool(order: str = "fifo", num_pages: int = 24, page_size: int = 4) -> PagedAllocator:
    """A pool of which nothing is free."""
    pool = PagedAllocator(num_pages, page_size, order=order)
    pool.alloc(num_pages * page_size)
    return pool


def test_first_freed_first_reused() -> None:
    pool = taken_pool("fifo")
    pool.free([20, 21, 22, 23, 8, 9, 10, 11])
    pool.return_pages([7, 3])
    assert pool.free_pages.tolist() == [5, 2, 7, 3]
    assert pool.alloc(8).tolist() == [20, 21, 22, 23, 8, 9, 10, 11]


def test_last_freed_first_reused() -> None:
    pool = taken_pool("lifo")
    pool.free([20, 21, 22, 23, 8, 9, 10, 11])
    pool.return_pages([7, 3])
    assert pool.free_pages.tolist() == [7, 3, 2, 5]
    assert pool.alloc_pages(3).tolist() == [7, 3, 2]
    pool.return_pages([2])
    assert pool.free_pages.tolist() == [2, 5]


def test_lowest_free_first_and_released_ones_once_those_do_not_suffice() -> None:
    pool = PagedAllocator(8, 4, order="sorted")
    pool.return_pages(pool.alloc_pages(3))
    assert pool.free_pages.tolist() == [4, 5, 6, 7, 8, 1, 2, 3]
    assert pool.alloc_pages(1).tolist() == [4]
    assert pool.alloc_pages(5).tolist() == [1, 2, 3, 5, 6]
    pool.return_pages([2])
    pool.check()
    assert pool.free_pages.tolist() == [7, 8, 2]
    # One that does not fit even then has made them free all the same, as in the engine.
    assert pool.alloc_pages(4) is None
    assert pool.free_pages.tolist() == [2, 7, 8]
    pool.check()


def test_sorted_requests_are_met_from_the_released_pages_by_a_bound_on_what_they_need() -> None:
    pool = PagedAllocator(8, 4, order="sorted")
    pool.return_pages(pool.alloc_pages(2))
    # 5 pages at most, 6 are free: none is released for this one.
    assert pool.alloc_extend([0], [13], [-1])[::4].tolist() == [12, 16, 20, 24]
    # 3 pages at most, though one is enough and two are free.
    assert pool.alloc_extend([0], [4], [-1]).tolist() == [4, 5, 6, 7]
    pool.return_pages([1])
    # As many as there are requests, though none needs a page.
    assert pool.alloc_decode([2, 3, 4, 2], [8, 9, 10, 12]).tolist() == [9, 10, 11, 13]
    assert pool.alloc_pages(1).tolist() == [1]


def test_the_padding_page_is_never_handed_out(order: str) -> None:
    pool = PagedAllocator(6, 4, order=order)
    assert sorted(pool.alloc(24).tolist()) == list(range(4, 28))


def test_a_request_gets_what_is_left_of_its_last_page_and_then_new_pages(order: str) -> None:
    pool = PagedAllocator(24, 4, order=order)
    pool.alloc_pages(2)
    # Page 1 holds two slots of the first, page 2 three of the second.
    slots = pool.alloc_extend([2, 7, 4, 0], [11, 8, 4, 5], [5, 10, 99, -1])
    assert slots.tolist() == [6, 7, 12, 13, 14, 15, 16, 17, 18, 11, 20, 21, 22, 23, 24]
    assert slots.dtype is torch.int64
    assert slots.untyped_storage().nbytes() == 15 * 8
    assert pool.available_size() == 18 * 4
    pool.check()


def test_a_last_slot_is_not_looked_at_where_the_prefix_ends_with_a_page(order: str) -> None:
    for last in (-1, 0, 7, 2**63 - 1, -(2**63)):
        pool = PagedAllocator(8, 4, order=order)
        assert pool.alloc_extend([0, 8], [1, 9], [last, last]).tolist() == [4, 8]
        assert pool.alloc_decode([1, 5], [last, last]).tolist() == [12, 16]


def test_pages_of_one_slot(order: str) -> None:
    pool = PagedAllocator(8, 1, order=order)
    assert pool.alloc_extend([3, 0], [5, 1], [-1, 99]).tolist() == [1, 2, 3]
    assert pool.alloc_decode([6, 2], [2, 3]).tolist() == [4, 5]
    assert pool.alloc_decode([1] * 4, [-1] * 4) is None


@pytest.mark.parametrize("convert", INPUTS.values(), ids=INPUTS.keys())
@pytest.mark.parametrize("other", [INPUTS["list"], INPUTS["int64 tensor"], INPUTS["int64 ndarray"]])
def test_arguments_of_every_kind_on_either_side(convert: Any, other: Any) -> None:
    for first, second in ((convert, other), (other, convert)):
        pool = PagedAllocator(8, 4)
        slots = pool.alloc_extend(first([0, 0]), second([6, 3]), first([4, 0]))
        assert slots.tolist() == [4, 5, 6, 7, 8, 9, 12, 13, 14]
        assert pool.alloc_decode(first([7, 4]), second([9, 14])).tolist() == [10, 15]
        assert pool.free_rows(np.array([[12, 13, 14, 15], [4, 5, 6, 7]]), first([4, 1])) == 5
        pool.check()


def test_no_requests(order: str) -> None:
    pool = PagedAllocator(4, 4, order=order)
    with unchanged(pool):
        for nothing in ([], torch.empty(0, dtype=torch.int64), np.empty(0)):
            for slots in (pool.alloc_extend(nothing, nothing, nothing), pool.alloc_decode(nothing, nothing)):
                assert slots.shape == (0,)
                assert slots.dtype is torch.int64
        assert pool.alloc_extend([4, 0], [4, 0], [5, 5]).shape == (0,)


@pytest.mark.parametrize(
    ("request_", "said"),
    [
        ((-1, 4, 9), "prefix_len -1 is negative"),
        ((-(2**63), 2**63 - 1, 9), "prefix_len -9223372036854775808 is negative"),
        ((5, 4, 8), "seq_len 4 is less than its prefix_len 5"),
        ((0, -1, 8), "seq_len -1 is less than its prefix_len 0"),
        ((5, 6, 9), "last_slot 9 stands at 1 in its page, where 5 tokens end at 0"),
        ((5, 5, 11), "last_slot 11 stands at 3 in its page, where 5 tokens end at 0"),
        ((5, 6, 0), "last_slot 0 is in none of the pages 1 to 8"),
        ((5, 6, 36), "last_slot 36 is in none of the pages 1 to 8"),
        ((5, 6, -4), "last_slot -4 is in none of the pages 1 to 8"),
        ((2**63 - 2, 2**63 - 1, 2**63 - 1), "last_slot 9223372036854775807 is in none of the pages 1 to 8"),
    ],
)
@pytest.mark.parametrize("others", [0, 3])
def test_a_request_that_is_wrong_is_named(order: str, request_: tuple[int, int, int], said: str, others: int) -> None:
    pool = PagedAllocator(8, 4, order=order)
    requests = zip(*[(0, 1, -1)] * others, request_, (0, 100, -1), strict=True)
    with unchanged(pool), pytest.raises(ValueError, match=f"request {others} is wrong: {said}"):
        pool.alloc_extend(*requests)


@pytest.mark.parametrize(
    ("length", "last", "said"),
    [
        (0, 8, "seq_len 0 is less than the 1 that is decoded"),
        (-(2**63), 8, "seq_len -9223372036854775808 is less than the 1"),
        (6, 9, "last_slot 9 stands at 1 in its page, where 5 tokens end at 0"),
        (6, 3, "last_slot 3 is in none of the pages 1 to 8"),
        (6, 2**63 - 1, "last_slot 9223372036854775807 is in none of the pages"),
    ],
)
def test_a_request_that_cannot_be_decoded_is_named(order: str, length: int, last: int, said: str) -> None:
    pool = PagedAllocator(8, 4, order=order)
    for convert in (list, np.array, torch.tensor):
        with unchanged(pool), pytest.raises(ValueError, match=f"request 2 is wrong: {said}"):
            pool.alloc_decode(convert([1, 5, length]), convert([-1, -1, last]))


def test_arguments_of_unequal_lengths_or_no_integers_are_refused(order: str) -> None:
    pool = PagedAllocator(8, 4, order=order)
    for arguments in (([0], [1, 2], [-1]), ([0, 0], [1, 2], [-1]), ([], [1], [-1]), ([0], [1], [])):
        with unchanged(pool), pytest.raises(ValueError, match="must have one length"):
            pool.alloc_extend(*arguments)
    for arguments in (([1, 2], [-1]), ([], [1]), ([1], [])):
        with unchanged(pool), pytest.raises(ValueError, match="must have one length"):
            pool.alloc_decode(*arguments)
    for wrong in ([1.0], [True], None, 7, [2**70]):
        error = ValueError if wrong == [2**70] else TypeError
        calls: list[tuple[str, Callable[[], Any]]] = [
            ("prefix_lens", lambda wrong=wrong: pool.alloc_extend(wrong, [1], [-1])),
            ("seq_lens", lambda wrong=wrong: pool.alloc_extend([0], wrong, [-1])),
            ("last_slots", lambda wrong=wrong: pool.alloc_extend([0], [1], wrong)),
            ("seq_lens", lambda wrong=wrong: pool.alloc_decode(wrong, [-1])),
            ("last_slots", lambda wrong=wrong: pool.alloc_decode([1], wrong)),
        ]
        for name, call in calls:
            with unchanged(pool), pytest.raises(error, match=name):
                call()
    with unchanged(pool), pytest.raises(ValueError, match="seq_lens must have one dimension"):
        pool.alloc_decode(np.ones((1, 1), np.int64), [-1])


@pytest.mark.parametrize("lengths", [[33], [2**62], [2**63 - 1] * 3, [30, 3]])
def test_requests_that_do_not_fit_are_none(order: str, lengths: list[int]) -> None:
    pool = PagedAllocator(8, 4, order=order)
    with unchanged(pool):
        assert pool.alloc_extend([0] * len(lengths), lengths, [-1] * len(lengths)) is None
        assert pool.alloc_decode([1] * 9, [-1] * 9) is None
        assert pool.alloc_pages(2**70) is None
        assert pool.alloc(2**70) is None


def test_requests_that_no_memory_holds_change_nothing() -> None:
    pool = PagedAllocator(6, 2**60)
    with unchanged(pool):
        for arguments in (([1], [2**60], [2**60]), ([0], [2**62 + 1], [-1]), ([1] * 40, [2**60] * 40, [2**60] * 40)):
            with pytest.raises((MemoryError, ValueError)):
                pool.alloc_extend(*arguments)


def test_any_slots_of_a_page_give_it_back_where_partial(order: str) -> None:
    for slots in ([5], [6, 4], [4, 5, 6, 7], [7, 6, 5, 4]):
        pool = taken_pool(order)
        assert pool.free(slots, partial=True) == len(slots)
        assert pool.free_pages.tolist() == [1]
    pool = taken_pool(order)
    with unchanged(pool):
        assert pool.free([], partial=True) == 0
    for convert in INPUTS.values():
        pool = taken_pool(order)
        assert pool.free(convert([8, 9, 20, 4, 5, 6, 7]), partial=True) == 7
        assert pool.free_pages.tolist() == ([2, 5, 1] if order == "fifo" else [1, 2, 5])
        pool.check()


def test_a_page_that_is_given_in_two_pieces_of_one_call(order: str) -> None:
    pool = taken_pool(order)
    assert pool.free([13, 4, 5, 12, 6], partial=True) == 5
    assert pool.free_pages.tolist() == ([3, 1] if order == "fifo" else [1, 3])
    pool.check()


@pytest.mark.parametrize(
    ("slots", "faults"),
    [
        ([4, 5, 4], {"given twice in one call": [1]}),
        ([3, 4], {"reserved": [0]}),
        ([100, 4], {"out of range, which is 1 to 24": [25]}),
        ([-1, 4], {"out of range, which is 1 to 24": [-1]}),
        ([2**63 - 1, 4], {"out of range, which is 1 to 24": [2**61 - 1]}),
        ([8, 4], {"already free": [2]}),
    ],
)
def test_a_wrong_partial_free_changes_nothing(order: str, slots: list[int], faults: dict[str, list[int]]) -> None:
    pool = taken_pool(order)
    pool.return_pages([2])
    with unchanged(pool), pytest.raises(FreeError) as raised:
        pool.free(slots, partial=True)
    assert raised.value.faults == faults


@pytest.mark.parametrize("partial", [1, None, "yes", np.True_])
def test_partial_is_a_bool(partial: Any) -> None:
    pool = taken_pool()
    with unchanged(pool), pytest.raises(TypeError, match="partial must be a bool"):
        pool.free([4, 5, 6, 7], partial=partial)


def test_rows_are_given_back_as_far_as_they_go(order: str) -> None:
    rows = np.array([[8, 9, 10, 11, 4, 5, 6, 7], [20, 21, 0, 0, 0, 0, 0, 0], [1, 2, 3, 4, 5, 6, 7, 8]])
    for table in (rows, torch.tensor(rows), torch.tensor(rows, dtype=torch.int32), rows.astype(np.int16).T.copy().T):
        for lengths in ([6, 2, 0], torch.tensor([6, 2, 0]), np.array([6, 2, 0], np.int8)):
            pool = taken_pool(order)
            assert pool.free_rows(table, lengths) == 8
            assert pool.free_pages.tolist() == ([2, 1, 5] if order == "fifo" else [1, 2, 5])
            pool.check()
    pool = taken_pool(order)
    with unchanged(pool):
        assert pool.free_rows(rows, [0, 0, 0]) == 0
        for nothing in (np.empty((0, 4), np.int64), np.empty((2, 0), np.int32), torch.empty(2, 0)):
            assert pool.free_rows(nothing, [0] * len(nothing)) == 0
    pool.return_pages([1])
    with unchanged(pool), pytest.raises(FreeError, match="page 1: already free"):
        pool.free_rows(np.array([[8, 9], [4, 5]]), [2, 2])
    # A part of a page in each of two rows.
    pool = taken_pool(order)
    assert pool.free_rows(np.array([[8, 9], [10, 4]]), [2, 2]) == 4
    assert pool.free_pages.tolist() == ([2, 1] if order == "fifo" else [1, 2])


@pytest.mark.parametrize(
    ("rows", "lengths", "error", "said"),
    [
        ([[4]], [1], TypeError, "slots must be a tensor or an ndarray of rows, not list"),
        (np.ma.array([[4]]), [1], TypeError, "slots must not be a masked array"),
        (np.array([[4]]), np.ma.array([1]), TypeError, "lengths must not be a masked array"),
        (np.array([4]), [1], ValueError, "slots must have two dimensions"),
        (np.array([[4.0]]), [1], TypeError, "slots must be integers"),
        (torch.ones(1, 1, device="meta"), [1], TypeError, "slots must be integers"),
        (np.array([[4, 5]]), [3], ValueError, "lengths must be 0 to 2, but that of row 0 is 3"),
        (np.array([[4, 5], [8, 9]]), [1, -1], ValueError, "lengths must be 0 to 2, but that of row 1 is -1"),
        (np.array([[4, 5]]), [1, 1], ValueError, "lengths must be one for each of the 1 rows, not 2"),
        (np.array([[4, 5]]), [1.0], TypeError, "lengths must be integers"),
        (np.array([[4, 5], [6, 7]]), [2, 0], None, ""),
        (np.array([[4, 5], [5, 7]]), [2, 1], FreeError, "page 1: given twice"),
        (np.array([[2**63]], np.uint64), [1], FreeError, "out of range"),
    ],
)
def test_wrong_rows(order: str, rows: Any, lengths: Any, error: type[Exception] | None, said: str) -> None:
    pool = taken_pool(order)
    if error is None:
        assert pool.free_rows(rows, lengths) == 2
        return
    with unchanged(pool), pytest.raises(error, match=said):
        pool.free_rows(rows, lengths)


def test_what_is_freed_in_a_group_is_free_at_its_end(order: str) -> None:
    pool = taken_pool(order)
    pool.free_group_begin()
    assert pool.free([20, 21, 22, 23]) == 4
    assert pool.return_pages([9, 7]) == 2
    assert pool.free([12, 13], partial=True) == 2
    assert pool.free_rows(np.array([[8, 9]]), [1]) == 1
    assert pool.available_size() == 0
    assert pool.free_pages.tolist() == []
    assert pool.alloc(4) is None
    pool.check()
    pool.free_group_end()
    pool.check()
    expected = {"fifo": [5, 9, 7, 3, 2], "lifo": [9, 7, 2, 3, 5], "sorted": [2, 3, 5, 7, 9]}
    assert pool.free_pages.tolist() == expected[order]
    pool.free([4, 5, 6, 7])
    assert pool.available_size() == 6 * 4


def test_a_wrong_free_in_a_group_raises_at_once_and_the_group_goes_on(order: str) -> None:
    pool = taken_pool(order)
    pool.return_pages([24])
    pool.free_group_begin()
    pool.free([20, 21, 22, 23])
    pool.return_pages([9])
    for give, reason in (
        (lambda: pool.return_pages([5]), "page 5: already given back in this group"),
        (lambda: pool.return_pages([9, 3]), "page 9: already given back in this group"),
        (lambda: pool.free([36], partial=True), "page 9: already given back in this group"),
        (lambda: pool.free([20], partial=True), "page 5: already given back in this group"),
        (lambda: pool.free([96, 97, 98, 99]), "page 24: already free"),
        (lambda: pool.free([4]), "incomplete"),
    ):
        with unchanged(pool), pytest.raises(FreeError, match=reason):
            give()
    pool.free_group_end()
    assert sorted(pool.free_pages.tolist()) == [5, 9, 24]


def test_a_page_may_be_given_part_by_part_in_a_group(order: str) -> None:
    pool = taken_pool(order)
    pool.free_group_begin()
    pool.free([20, 4], partial=True)
    pool.free([5, 8], partial=True)
    pool.free([7, 6], partial=True)
    for slots in ([5], [21, 20]):
        with unchanged(pool), pytest.raises(FreeError, match="given twice"):
            pool.free(slots, partial=True)
    with unchanged(pool), pytest.raises(FreeError, match="page 5: already given back in this group"):
        pool.free([20, 21, 22, 23])
    pool.free([21], partial=True)
    pool.free_group_end()
    assert pool.free_pages.tolist() == ([5, 1, 2] if order == "fifo" else [1, 2, 5])
    pool.check()


def test_groups_are_not_nested_and_ending_none_does_nothing(order: str) -> None:
    pool = taken_pool(order)
    with unchanged(pool):
        pool.free_group_end()
    pool.free_group_begin()
    with unchanged(pool), pytest.raises(ValueError, match="a group of frees is open"):
        pool.free_group_begin()
    pool.free_group_end()
    pool.free_group_begin()


def test_clear_drops_the_group(order: str) -> None:
    pool = taken_pool(order)
    pool.free_group_begin()
    pool.return_pages([3])
    pool.clear()
    pool.check()
    assert pool.snapshot() == PagedAllocator(24, 4, order=order).snapshot()
    pool.free_group_end()
    assert pool.available_size() == pool.size


def test_a_snapshot_holds_the_group(order: str) -> None:
    pool = taken_pool(order)
    empty = pool.snapshot()
    pool.free_group_begin()
    assert pool.snapshot() != empty
    pool.free([12, 13], partial=True)
    pool.return_pages([7, 5])
    pool.free([8, 9, 10, 11])
    snapshot = pool.snapshot()
    assert hash(snapshot) == hash(pool.snapshot())
    pool.free_group_end()
    expected = pool.free_pages.tolist()
    for other in (copy.copy(pool), pickle.loads(pickle.dumps(pool))):
        other.restore(snapshot)
        other.check()
        assert other.snapshot() == snapshot
        with unchanged(other), pytest.raises(FreeError, match="twice"):
            other.free([12], partial=True)
        other.free([14], partial=True)
        assert other.snapshot() != snapshot
        other.free_group_end()
        assert other.free_pages.tolist() == expected
    pool.restore(empty)
    pool.free_group_end()
    assert pool.available_size() == 0


def test_the_same_frees_in_other_calls_of_a_group_are_the_same_snapshot() -> None:
    pools = [taken_pool("lifo") for _ in range(2)]
    for pool in pools:
        pool.free_group_begin()
    pools[0].free([4, 5, 6, 7, 8, 9, 10, 11])
    pools[1].free([8, 9, 10, 11])
    pools[1].free([4, 5, 6, 7])
    assert pools[0].snapshot() == pools[1].snapshot()


@pytest.mark.parametrize(
    ("free", "released", "group"),
    [
        ([1, 1], [], None),
        ([0], [], None),
        ([25], [], None),
        ([-1], [], None),
        ([1], [1], None),
        ([1], [2, 2], None),
        ([1], [], ([1], [], [])),
        ([1], [], ([2], [2], [])),
        ([1], [], ([], [0], [])),
        ([1], [], ([2], [], [12])),
    ],
)
def test_a_damaged_snapshot_is_refused(order: str, free: list[int], released: list[int], group: Any) -> None:
    pool = taken_pool(order)
    ids = (np.array(each, np.int32).tobytes() for each in (free, released))
    held = group and (*(np.array(each, np.int32).tobytes() for each in group[:2]), np.array(group[2]).tobytes())
    with unchanged(pool), pytest.raises(ValueError, match="damaged"):
        pool.restore(PagedSnapshot(24, 4, order, *ids, held))


def test_only_sorted_order_releases_pages() -> None:
    pool = taken_pool("fifo")
    with unchanged(pool), pytest.raises(ValueError, match="damaged"):
        pool.restore(PagedSnapshot(24, 4, "fifo", b"", np.array([1], np.int32).tobytes(), None))


def test_free_pages_is_a_copy(order: str) -> None:
    pool = PagedAllocator(4, 1, order=order)
    with unchanged(pool):
        pool.free_pages.fill_(0)
    assert pool.free_pages.dtype is torch.int64
    with pytest.raises(AttributeError):
        pool.free_pages = [1]


def test_arguments_of_a_pool_that_are_refused() -> None:
    for wrong in ("best", "FIFO", None, 0, ["fifo"]):
        with pytest.raises(ValueError, match='order must be "fifo", "lifo" or "sorted"'):
            PagedAllocator(4, 4, order=wrong)
    with pytest.raises(RuntimeError):
        PagedAllocator(4, 4, device="abacus")
    with pytest.raises(ValueError, match="device"):
        PagedAllocator(4, 4, device="meta")
    for sizes in ((2**30, 1), (4, 2**62), (2**29, 2**40)):
        with pytest.raises(ValueError, match=r"num_pages|more slots"):
            PagedAllocator(*sizes)
    pool = PagedAllocator(4, 4)
    with pytest.raises(ValueError, match="stays so"):
        pool.__init__(4, 4, order="lifo")


@pytest.mark.parametrize("page_size", [1, 3, 16])
@pytest.mark.parametrize("num_pages", [30, 200])
def test_ten_thousand_operations_beside_the_oracle(order: str, page_size: int, num_pages: int) -> None:
    random = np.random.Generator(np.random.PCG64([page_size, num_pages]))
    ours = Ours(num_pages, page_size, order)
    oracle = PagedOracle(num_pages, page_size, order)
    traffic = Traffic(ours, oracle, page_size, lambda below: int(random.integers(below)))
    weights = np.array(list(OPERATIONS.values()))
    for step, chosen in enumerate(random.choice(len(weights), 10_000, p=weights / weights.sum())):
        list(OPERATIONS)[chosen](traffic)
        traffic.same_pages_are_free()
        if step % 500 == 0:
            ours.pool.check()
    assert min(traffic.counts) > 100, traffic.counts


@pytest.mark.compiled  # Only compiled kernels are atomic.
def test_six_threads_that_serve_requests_never_hold_the_same_slot(order: str) -> None:
    pool = PagedAllocator(200, 4, order=order)
    in_use: dict[int, int] = {}
    faults: list[Any] = []

    def work(seed: int) -> None:
        random = np.random.Generator(np.random.PCG64(seed))
        held: list[list[int]] = []
        for _ in range(150):
            lengths = random.integers(0, 12, 3).tolist()
            slots = pool.alloc_extend([0] * 3, lengths, [-1] * 3)
            if slots is not None:
                held += [part.tolist() for part in slots.split(lengths) if len(part)]
            after = torch.tensor([len(request) + 1 for request in held])
            slots = pool.alloc_decode(after, np.array([request[-1] for request in held]))
            if slots is not None:
                for request, slot in zip(held, slots.tolist(), strict=True):
                    request.append(slot)
            for request in held:
                faults.extend(slot for slot in request if in_use.setdefault(slot, seed) != seed)
            while len(held) > 4:
                request = held.pop(int(random.integers(len(held))))
                for slot in request:
                    del in_use[slot]
                pool.free(torch.tensor(request), partial=True)
        for request in held:
            for slot in request:
                del in_use[slot]
            pool.free(request, partial=True)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    pool.check()
    assert not faults
    assert pool.available_size() == pool.size
