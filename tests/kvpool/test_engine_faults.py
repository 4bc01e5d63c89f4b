"""A named test for each kind of fault that engines have had in this code, on both allocators."""

import gc
import pickle
from typing import Any

import numpy as np
import pytest
import torch

from kvpool import FreeError, HostAllocator, OwnerLaneAllocator, PagedAllocator, page_runs
from tests.kvpool.pools import INPUTS, Kind
from tests.kvpool.test_contract import unchanged


def test_freeing_a_page_twice_in_one_call(kind: Kind, pool: Any) -> None:
    slots = kind.take(pool, 2).tolist()
    page_ids = [slot // kind.page_size for slot in slots[:: kind.page_size]]
    with unchanged(pool), pytest.raises(FreeError, match="twice"):
        pool.free(slots + slots[: kind.page_size])
    with unchanged(pool), pytest.raises(FreeError, match="twice"):
        pool.return_pages([*page_ids, page_ids[0]])


def test_freeing_one_slot_of_a_page_twice_in_one_call(kind: Kind, pool: Any) -> None:
    slots = kind.take(pool, 2).tolist()
    with unchanged(pool), pytest.raises(FreeError, match="twice"):
        pool.free([*slots, slots[0]])


def test_freeing_a_page_twice_in_two_calls(kind: Kind, pool: Any) -> None:
    slots = kind.take(pool, 2)
    pool.free(slots)
    with unchanged(pool), pytest.raises(FreeError, match="already free"):
        pool.free(slots)


@pytest.mark.parametrize("convert", [INPUTS["list"], INPUTS["int64 ndarray"], INPUTS["int64 tensor"]])
def test_freeing_what_is_out_of_range(kind: Kind, pool: Any, convert: Any) -> None:
    held = kind.take(pool, 24).tolist()
    for page in (kind.page_ids.stop, kind.page_ids.stop + 1000, -1, -1000, 2**40):
        with unchanged(pool), pytest.raises(FreeError, match="out of range"):
            pool.free(convert(held + kind.slots([page])))
        with unchanged(pool), pytest.raises(FreeError, match="out of range"):
            pool.return_pages(convert([page]))


def test_freeing_what_no_int64_holds(kind: Kind, pool: Any) -> None:
    for beyond in ([2**70], [-(2**70)], np.array([2**63], np.uint64)):
        with unchanged(pool), pytest.raises(FreeError, match="out of range"):
            pool.free(beyond)
        with unchanged(pool), pytest.raises(FreeError, match="out of range"):
            pool.return_pages(beyond)


def test_freeing_the_reserved_page() -> None:
    lanes, paged = OwnerLaneAllocator(8, page_size=4, cp_size=2), PagedAllocator(8, page_size=4)
    lanes.alloc_pages_with_owners([0, 1])
    paged.alloc(8)
    for pool in (lanes, paged):
        with unchanged(pool), pytest.raises(FreeError, match="page 0: reserved"):
            pool.free([0, 1, 2, 3])
        with unchanged(pool), pytest.raises(FreeError, match="page 0: reserved"):
            pool.return_pages([1, 0])


def test_freeing_a_part_of_a_page() -> None:
    for pool in (HostAllocator(8, 4), OwnerLaneAllocator(8, 4, 1), PagedAllocator(8, 4)):
        slots = torch.arange(4, 12)
        (pool.alloc_pages_with_owners([0, 0, 0]) if isinstance(pool, OwnerLaneAllocator) else pool.alloc(32))
        for part in (slots[:3], slots[:7], slots[2:6], slots[[0, 0, 1, 2]], slots[1:]):
            with unchanged(pool), pytest.raises(FreeError, match="incomplete"):
                pool.free(part)


@pytest.mark.parametrize(
    ("base", "method"),
    [
        (HostAllocator, "alloc"),
        (HostAllocator, "alloc_contiguous_preferred"),
        (HostAllocator, "alloc_fewest_runs"),
        (PagedAllocator, "alloc"),
    ],
)
def test_a_size_that_is_negative_not_whole_pages_or_no_integer(base: Any, method: str) -> None:
    pool = base(8, 4)
    for size in (-4, -1, 1, 6, 33, np.int64(-4)):
        with unchanged(pool), pytest.raises(ValueError, match="need_size"):
            getattr(pool, method)(size)
    for size in (4.0, True, np.True_, "4", None, np.float64(4), torch.tensor(4.0)):
        with unchanged(pool), pytest.raises(TypeError, match="need_size"):
            getattr(pool, method)(size)
    assert (getattr(pool, method)(np.uint8(4)) % 4).tolist() == [0, 1, 2, 3]


def test_a_number_of_pages_that_is_negative_or_no_integer() -> None:
    pool, paged = HostAllocator(8, 4), PagedAllocator(8, 4)
    for method in (pool.alloc_pages, pool.alloc_runs, paged.alloc_pages):
        with unchanged(pool), pytest.raises(ValueError, match="num_pages"):
            method(-1)
        for size in (2.0, True, "2"):
            with unchanged(pool), pytest.raises(TypeError, match="num_pages"):
                method(size)


def test_a_live_result_does_not_keep_the_pool_alive(kind: Kind) -> None:
    pool = kind.build()
    results = [kind.take(pool, 1, policy) for policy in kind.policies for _ in range(2)]
    del pool
    gc.collect()
    storages = {slots.untyped_storage().data_ptr(): slots.untyped_storage().nbytes() for slots in results}
    assert sum(storages.values()) == sum(slots.numel() * 8 for slots in results)


def test_page_ids_own_their_memory(kind: Kind, pool: Any) -> None:
    if isinstance(pool, OwnerLaneAllocator):
        arrays = [pool.select_pages([0] * 2)]
    elif isinstance(pool, PagedAllocator):
        arrays = [pool.alloc_pages(2)]
    else:
        arrays = [pool.alloc_pages(2, policy) for policy in kind.policies] + [pool.free_page_ids()]
    for array in arrays:
        assert array.dtype == np.int64
        assert array.base is None
        assert array.flags.writeable


def test_writing_to_a_result_does_not_corrupt_the_pool(kind: Kind, pool: Any) -> None:
    held = [kind.take(pool, 2, policy) for policy in kind.policies]
    originals = [slots.clone() for slots in held]
    with unchanged(pool):
        for slots in held:
            slots.fill_(-1)
    for slots in originals:
        pool.free(slots)
    pool.check()
    assert pool.available_size() == pool.size


@pytest.mark.parametrize("method", ["free", "return_pages"])
@pytest.mark.parametrize("convert", [INPUTS["int64 tensor"], INPUTS["int64 ndarray"], INPUTS["list"]])
def test_a_caller_changing_its_tensor_after_free(kind: Kind, pool: Any, convert: Any, method: str) -> None:
    slots = kind.take(pool, 4).tolist()
    values = convert(slots if method == "free" else [slot // kind.page_size for slot in slots[:: kind.page_size]])
    getattr(pool, method)(values)
    with unchanged(pool):
        values[:] = values[:1] * len(values) if isinstance(values, list) else 0
    assert sorted(kind.take(pool, 24).tolist()) == kind.slots(list(kind.page_ids))


def test_a_lane_that_is_short_while_the_pool_is_not() -> None:
    for selection in ("fifo", "contiguous"):
        pool = OwnerLaneAllocator(4, page_size=2, cp_size=3, selection=selection)
        pool.alloc_pages_with_owners([1, 1, 1])
        with unchanged(pool):
            assert pool.available_size() == 9 * 2
            assert pool.alloc_pages_with_owners([0, 2, 1, 0, 1]) is None
            assert pool.select_pages([1, 1]) is None
        assert pool.schedulable_size() == 3 * 2


def test_slots_above_two_to_the_31st() -> None:
    page_size = 2**20
    host = HostAllocator(4096, page_size)
    host.alloc_pages(4095)
    slots = host.alloc(page_size)
    assert slots[0].item() == 4095 * page_size > 2**31
    assert host.free(slots) == page_size
    lanes = OwnerLaneAllocator(4096, page_size, cp_size=1)
    lanes.free_pages = torch.tensor([4096])
    slots = lanes.alloc_pages_with_owners([0])
    assert slots[-1].item() == 4097 * page_size - 1 > 2**31
    assert lanes.free(slots) == page_size
    assert lanes.release_pages.tolist() == [4096]


def test_an_error_goes_through_a_process_pool() -> None:
    for method, value in ((HostAllocator(4, 1).free, [0]), (OwnerLaneAllocator(4).compute_owner_lane_stats, [9])):
        with pytest.raises(ValueError, match=r"free|owners") as raised:
            method(value)
        assert str(pickle.loads(pickle.dumps(raised.value))) == str(raised.value)
    with pytest.raises(ValueError, match="must fit int64, but include 1180591620717411303424") as raised:
        page_runs([2**70])
    assert str(pickle.loads(pickle.dumps(raised.value))) == str(raised.value)
