"""The device tier's selections, lane statistics and page sets, one behaviour a test."""

import copy
import pickle
from typing import Any

import numpy as np
import pytest
import torch

from kvpool import LaneSnapshot, OwnerLaneAllocator
from tests.kvpool.pools import INPUTS
from tests.kvpool.test_contract import unchanged


def logical(cp_size: int, owner: int, physical: list[int]) -> list[int]:
    return [(index - 1) * cp_size + owner + 1 for index in physical]


def pool_with_free(physical: dict[int, list[int]], selection: str = "contiguous") -> OwnerLaneAllocator:
    """Lanes of 600 pages of one slot; the given physical pages of each owner are free."""
    pool = OwnerLaneAllocator(600, 1, 3, selection=selection)
    pool.free_pages = [page for owner, pages in physical.items() for page in logical(3, owner, pages)]
    return pool


def test_the_padding_page_is_never_handed_out() -> None:
    pool = OwnerLaneAllocator(4, 2, 3)
    slots = pool.alloc_pages_with_owners([0, 1, 2] * 4)
    assert sorted(slots.tolist()) == list(range(2, 26))


def test_slots_come_in_request_order() -> None:
    pool = OwnerLaneAllocator(8, 1, 4)
    assert pool.alloc_pages_with_owners([2, 0, 2, 3, 0]).tolist() == [3, 1, 7, 4, 5]


@pytest.mark.parametrize("convert", INPUTS.values(), ids=INPUTS.keys())
def test_owners_of_every_kind_of_input(convert: Any) -> None:
    owners = [2, 0, 2, 1, 0]
    pool = OwnerLaneAllocator(8, 1, 4)
    assert pool.select_pages(convert(owners)).tolist() == [3, 1, 7, 2, 5]
    assert pool.compute_owner_lane_stats(convert(owners))[0] == [2, 1, 2, 0]
    assert pool.alloc_pages_with_owners(convert(owners)).tolist() == [3, 1, 7, 2, 5]


@pytest.mark.parametrize("owners", [[0, 3], [-1], np.array([0, 2**40]), torch.tensor([7]), [2**70]])
def test_an_owner_that_is_no_rank_is_refused(owners: Any) -> None:
    pool = OwnerLaneAllocator(8, 1, 3)
    for method in (pool.alloc_pages_with_owners, pool.select_pages, pool.compute_owner_lane_stats):
        with unchanged(pool), pytest.raises(ValueError, match="owners"):
            method(owners)
    with unchanged(pool), pytest.raises(ValueError, match="owners"):
        pool.compute_owner_lane_free_room_stats(owners, target_ratio=0, trigger_ratio=0)


@pytest.mark.parametrize("owners", [[0.0], [True], np.array([1.0]), torch.tensor([True]), "01", 1, None])
def test_owners_that_are_no_integers_are_refused(owners: Any) -> None:
    pool = OwnerLaneAllocator(8, 1, 3)
    for method in (pool.alloc_pages_with_owners, pool.select_pages, pool.compute_owner_lane_stats):
        with unchanged(pool), pytest.raises(TypeError, match="owners"):
            method(owners)


def test_contiguous_takes_the_lowest_stretch_that_serves_the_whole_demand() -> None:
    pool = pool_with_free({1: [2, 3, 9, 10, 11, 511, 512, 513, 514]})
    assert pool.alloc_pages_with_owners([1, 1, 1]).tolist() == logical(3, 1, [9, 10, 11])
    assert pool.alloc_pages_with_owners([1, 1, 1]).tolist() == logical(3, 1, [511, 512, 513])
    assert pool.alloc_pages_with_owners([1, 1, 1]).tolist() == logical(3, 1, [2, 3, 514])


def test_contiguous_does_not_count_released_pages_to_a_stretch() -> None:
    pool = pool_with_free({0: [4, 5, 20, 21, 22, 30]})
    pool.release_pages = logical(3, 0, [6])
    assert pool.alloc_pages_with_owners([0, 0, 0]).tolist() == logical(3, 0, [20, 21, 22])


def test_fifo_takes_the_lowest_free_pages_even_where_a_stretch_is_free() -> None:
    pool = pool_with_free({0: [2, 9, 10, 11]}, "fifo")
    assert pool.alloc_pages_with_owners([0, 0, 0]).tolist() == logical(3, 0, [2, 9, 10])


@pytest.mark.parametrize("selection", ["fifo", "contiguous"])
def test_released_pages_are_reused_last(selection: str) -> None:
    pool = pool_with_free({0: [7, 9]}, selection)
    pool.release_pages = logical(3, 0, [1, 2, 3, 8])
    assert pool.alloc_pages_with_owners([0] * 4).tolist() == logical(3, 0, [7, 9, 1, 2])
    assert pool.release_pages.tolist() == logical(3, 0, [3, 8])
    assert pool.free_pages.tolist() == []


def test_a_freed_page_is_free_only_after_the_merge() -> None:
    pool = OwnerLaneAllocator(3, 2, 2)
    slots = pool.alloc_pages_with_owners([0, 1])
    pool.free(slots)
    assert pool.release_pages.tolist() == [1, 2]
    assert pool.free_pages.tolist() == [3, 5, 4, 6]
    assert pool.alloc_pages_with_owners([0]).tolist() == [6, 7]
    pool.merge_released()
    pool.check()
    assert pool.release_pages.tolist() == []
    assert pool.free_pages.tolist() == [1, 5, 2, 4, 6]


def test_select_pages_is_what_alloc_takes() -> None:
    for selection in ("fifo", "contiguous"):
        pool = pool_with_free({0: [1, 4, 5], 2: [3, 7, 8, 9]}, selection)
        owners = [2, 0, 2, 0, 2]
        with unchanged(pool):
            chosen = pool.select_pages(owners)
        assert chosen.dtype == np.int64
        assert pool.alloc_pages_with_owners(owners).tolist() == chosen.tolist()


def test_lane_statistics() -> None:
    pool = pool_with_free({0: [1, 2], 1: [5], 2: []})
    pool.release_pages = logical(3, 1, [6, 7])
    assert pool.compute_owner_lane_stats([0, 0, 0, 1, 2]) == ([3, 1, 1], [2, 3, 0], [1, 0, 1])
    assert pool.compute_owner_lane_stats([]) == ([0, 0, 0], [2, 3, 0], [0, 0, 0])
    assert pool.compute_owner_lane_capacity_pages() == [600, 600, 600]
    assert pool.available_size() == 5
    assert pool.schedulable_size() == 0
    for numbers in pool.compute_owner_lane_stats([0]):
        assert all(type(number) is int for number in numbers)


def test_a_request_that_does_not_fit_asks_for_no_memory() -> None:
    pool = OwnerLaneAllocator(1, 2**50, 2)
    pool.alloc_pages_with_owners([])
    snapshot = pool.snapshot()
    assert pool.alloc_pages_with_owners([0] * 20) is None
    assert pool.alloc_pages_with_owners([0, 0]) is None
    with pytest.raises(ValueError, match="owners"):
        pool.alloc_pages_with_owners([5] * 20)
    with pytest.raises((MemoryError, ValueError)):
        pool.alloc_pages_with_owners([0, 1])
    assert pool.snapshot() == snapshot


@pytest.mark.parametrize(
    "page_bits",
    [
        b"",
        b"\xff" * 8,
        b"\xff" * 8 * 10_000,
        b"\xff" * 64 + b"\x00" * 64,
        b"\x01" + b"\x00" * 63 + b"\x01" + b"\x00" * 63,
    ],
    ids=["none", "too few", "too many", "beyond the last page", "in both sets"],
)
def test_a_damaged_snapshot_is_refused(page_bits: bytes) -> None:
    pool = OwnerLaneAllocator(4, 1, 1)
    with unchanged(pool), pytest.raises(ValueError, match="damaged"):
        pool.restore(LaneSnapshot(4, 1, 1, page_bits))


def test_a_copy_of_a_pool_shares_nothing_with_it() -> None:
    pool = OwnerLaneAllocator(700, 2, 3, selection="fifo")
    pool.free(pool.alloc_pages_with_owners([0, 1, 1]))
    for other in (copy.copy(pool), copy.deepcopy(pool), pickle.loads(pickle.dumps(pool))):
        assert (other.snapshot(), other.selection, other.device) == (pool.snapshot(), "fifo", pool.device)
        with unchanged(pool):
            other.alloc_pages_with_owners([0, 1, 2])
        other.check()


def test_free_room_statistics() -> None:
    pool = OwnerLaneAllocator(10, 1, 2)
    pool.alloc_pages_with_owners([0] * 7)

    def deficits(owners: list[int], target: float, trigger: float) -> list[int]:
        stats = pool.compute_owner_lane_free_room_stats(owners, target_ratio=target, trigger_ratio=trigger)
        assert stats[:2] == pool.compute_owner_lane_stats(owners)[:2]
        return stats[2]

    assert deficits([0], 0.5, 0.2) == [0, 0]
    assert deficits([0], 0.5, 0.21) == [3, 0]
    assert deficits([0] * 4, 0, 0) == [1, 0]
    assert deficits([0] * 4, -3, -0.5) == [1, 0]
    assert deficits([0, 0], 0, 0.5) == [0, 0]
    assert deficits([1] * 10, 0.01, 0.001) == [0, 1]


@pytest.mark.parametrize("ratio", ["0.1", None, True, float("nan"), float("inf"), 1e308, 10**400, [0.1]])
def test_a_ratio_that_is_no_number_is_refused(ratio: Any) -> None:
    pool = OwnerLaneAllocator(10, 1, 2)
    for ratios in ({"target_ratio": ratio, "trigger_ratio": 0.1}, {"target_ratio": 0.1, "trigger_ratio": ratio}):
        with unchanged(pool), pytest.raises((TypeError, ValueError), match="ratio"):
            pool.compute_owner_lane_free_room_stats([0], **ratios)


@pytest.mark.parametrize("convert", INPUTS.values(), ids=INPUTS.keys())
def test_page_sets_are_assigned_and_read_lane_by_lane(convert: Any) -> None:
    pool = OwnerLaneAllocator(10, 4, 3)
    pool.free_pages = convert([9, 2, 1, 4])
    pool.release_pages = convert([30, 3, 29])
    assert pool.free_pages.tolist() == [1, 4, 2, 9]
    assert pool.release_pages.tolist() == [29, 3, 30]
    assert pool.free_pages.dtype is torch.int64
    pool.check()
    assert pool.available_size() == 7 * 4
    pool.return_pages([5])


@pytest.mark.parametrize("name", ["free_pages", "release_pages"])
@pytest.mark.parametrize(
    ("page_ids", "error"),
    [
        ([1, 2, 1], ValueError),
        ([0], ValueError),
        ([31], ValueError),
        ([-1], ValueError),
        ([7], ValueError),
        ([2**70], ValueError),
        (torch.ones(2, 2, dtype=torch.int64), ValueError),
        ([1.0], TypeError),
        (torch.tensor([True]), TypeError),
    ],
)
def test_a_wrong_page_set_is_refused(name: str, page_ids: Any, error: type[Exception]) -> None:
    pool = OwnerLaneAllocator(10, 4, 3)
    pool.free_pages = []
    setattr(pool, "release_pages" if name == "free_pages" else "free_pages", [7, 8])
    setattr(pool, name, [3])
    with unchanged(pool), pytest.raises(error, match=name):
        setattr(pool, name, page_ids)


def test_page_sets_are_copies() -> None:
    pool = OwnerLaneAllocator(4, 1, 2)
    with unchanged(pool):
        pool.free_pages.fill_(0)
        pool.release_pages.fill_(0)


def test_an_unknown_selection_or_device_is_refused() -> None:
    with pytest.raises(ValueError, match="selection"):
        OwnerLaneAllocator(4, selection="lowest")
    with pytest.raises(RuntimeError):
        OwnerLaneAllocator(4, device="abacus")
    with pytest.raises(ValueError, match="device"):
        OwnerLaneAllocator(4, device="meta")


def test_a_lane_selects_over_many_chunks_of_its_summary() -> None:
    pool = OwnerLaneAllocator(5000, 1, 1)
    pool.free_pages = [*range(1, 4000, 2), *range(4090, 4700)]
    assert pool.alloc_pages_with_owners([0] * 600).tolist() == list(range(4090, 4690))
    assert pool.alloc_pages_with_owners([0] * 600).tolist() == list(range(1, 1200, 2))
    pool.check()


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device; the CPU runs all the same books")
def test_slots_on_a_cuda_device() -> None:
    pool = OwnerLaneAllocator(64, 64, 8, device="cuda")
    twin = OwnerLaneAllocator(64, 64, 8)
    for _ in range(5):
        owners = list(range(8))
        slots = pool.alloc_pages_with_owners(owners)
        assert slots.device.type == "cuda"
        assert slots.tolist() == twin.alloc_pages_with_owners(owners).tolist()
    assert pool.free(slots) == slots.numel()
