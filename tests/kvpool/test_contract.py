"""What both allocators promise, at every page size, number of ranks, selection and kind of input."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
import torch

from kvpool import FreeError, HostAllocator, OwnerLaneAllocator, PagedAllocator
from tests.kvpool.pools import INPUTS, Kind


@contextmanager
def unchanged(pool: Any) -> Iterator[None]:
    before = pool.snapshot()
    yield
    assert pool.snapshot() == before
    pool.check()


def take_all(kind: Kind, pool: Any) -> list[int]:
    slots = kind.take(pool, 24)
    assert slots is not None
    return slots.tolist()


def test_a_new_pool_is_all_free(kind: Kind, pool: Any) -> None:
    pool.check()
    assert pool.available_size() == pool.size == 24 * kind.page_size
    assert sorted(take_all(kind, pool)) == kind.slots(list(kind.page_ids))
    assert pool.available_size() == 0
    pool.check()


def test_a_result_is_whole_pages_of_its_own_memory(kind: Kind, pool: Any) -> None:
    for policy in kind.policies:
        slots = kind.take(pool, 3, policy)
        assert slots is not None
        assert slots.dtype is torch.int64
        assert slots.shape == (3 * kind.page_size,)
        assert slots.untyped_storage().nbytes() == slots.numel() * 8
        pages = slots.reshape(3, kind.page_size)
        assert torch.equal(pages, pages[:, :1] + torch.arange(kind.page_size))


def test_allocating_nothing_is_an_empty_tensor(kind: Kind, pool: Any) -> None:
    with unchanged(pool):
        for policy in kind.policies:
            nothing = kind.take(pool, 0, policy)
            assert nothing is not None
            assert nothing.dtype is torch.int64
            assert nothing.shape == (0,)


def test_what_does_not_fit_is_none(kind: Kind, pool: Any) -> None:
    kind.take(pool, 3)
    with unchanged(pool):
        for policy in kind.policies:
            assert kind.take(pool, 22, policy) is None
            assert kind.take(pool, 1000, policy) is None


@pytest.mark.parametrize("convert", INPUTS.values(), ids=INPUTS.keys())
def test_free_takes_every_kind_of_input(kind: Kind, pool: Any, convert: Any) -> None:
    slots = take_all(kind, pool)
    assert pool.free(convert(slots)) == len(slots)
    assert pool.available_size() == pool.size
    pool.check()


@pytest.mark.parametrize("convert", INPUTS.values(), ids=INPUTS.keys())
def test_return_pages_takes_every_kind_of_input(kind: Kind, pool: Any, convert: Any) -> None:
    take_all(kind, pool)
    assert pool.return_pages(convert(list(kind.page_ids))) == 24
    assert pool.available_size() == pool.size
    pool.check()


def test_free_takes_whole_pages_with_their_slots_in_any_order(kind: Kind, pool: Any) -> None:
    slots = np.array(take_all(kind, pool))
    shuffled = np.random.Generator(np.random.PCG64(0)).permutation(slots)
    assert pool.free(shuffled) == len(slots)
    assert pool.available_size() == pool.size
    pool.check()


@pytest.mark.parametrize(
    "nothing", [[], (), np.array([]), np.empty(0, np.int32), torch.empty(0), torch.empty(0, dtype=torch.int64)]
)
def test_freeing_nothing_is_a_no_op(kind: Kind, pool: Any, nothing: Any) -> None:
    kind.take(pool, 3)
    with unchanged(pool):
        assert pool.free(nothing) == 0
        assert pool.return_pages(nothing) == 0


@pytest.mark.parametrize(
    "malformed",
    [
        7,
        None,
        "12",
        b"12",
        [1.0],
        [True],
        [np.True_],
        [torch.tensor(True)],
        [None],
        np.array([1.0]),
        np.array([True]),
        torch.tensor([1.0]),
        torch.tensor([True]),
        torch.tensor([1], device="meta"),
        torch.tensor([1.0], dtype=torch.bfloat16),
        np.ma.array([1, 2], mask=[False, True]),
        np.ma.array([1]),
        memoryview(np.array([1.0])),
        memoryview(np.zeros(1, np.float16)),
        memoryview(np.array([True])),
    ],
)
def test_what_is_no_integers_is_a_type_error(kind: Kind, pool: Any, malformed: Any) -> None:
    kind.take(pool, 3)
    with unchanged(pool):
        for method in (pool.free, pool.return_pages):
            with pytest.raises(TypeError):
                method(malformed)


def test_more_than_one_dimension_is_a_value_error(kind: Kind, pool: Any) -> None:
    slots = np.array(take_all(kind, pool))
    with unchanged(pool):
        for array in (
            slots.reshape(2, -1),
            torch.from_numpy(slots).reshape(-1, 1),
            np.int64(0) + slots[0],
            memoryview(slots.reshape(2, -1)),
        ):
            with pytest.raises((ValueError, TypeError)):
                pool.free(array)
            with pytest.raises((ValueError, TypeError)):
                pool.return_pages(array)


def test_nothing_is_freed_when_one_page_of_a_call_is_wrong(kind: Kind, pool: Any) -> None:
    slots = take_all(kind, pool)
    first_page = slots[: kind.page_size]
    pool.free(first_page)
    with unchanged(pool), pytest.raises(FreeError, match="already free") as raised:
        pool.free(slots)
    assert list(raised.value.faults.values()) == [[first_page[0] // kind.page_size]]


def test_an_error_names_every_page_and_reason(kind: Kind, pool: Any) -> None:
    slots = take_all(kind, pool)
    page_ids = [slot // kind.page_size for slot in slots[:: kind.page_size]]
    pool.return_pages(page_ids[:1])
    beyond = kind.page_ids.stop + 5
    with unchanged(pool), pytest.raises(FreeError) as raised:
        pool.return_pages([page_ids[2], page_ids[0], beyond, page_ids[1], page_ids[1], -3])
    assert sorted(raised.value.faults.values()) == sorted([[-3, beyond], [page_ids[0]], [page_ids[1]]])
    for page in (-3, beyond, page_ids[0], page_ids[1]):
        assert str(page) in str(raised.value)
    assert "out of range" in str(raised.value)
    assert "twice" in str(raised.value)
    assert "already free" in str(raised.value)


def test_a_long_error_is_cut(kind: Kind, pool: Any) -> None:
    with unchanged(pool), pytest.raises(FreeError, match="and 16 more: already free") as raised:
        pool.return_pages(kind.page_ids)
    assert raised.value.faults["already free"] == list(kind.page_ids)


def test_a_snapshot_brings_the_same_addresses_back(kind: Kind, pool: Any) -> None:
    held = kind.take(pool, 9)
    assert held is not None
    pool.free(held[3 * kind.page_size : 6 * kind.page_size])
    snapshot = pool.snapshot()
    assert snapshot == pool.snapshot()
    assert hash(snapshot) == hash(pool.snapshot())
    expected = kind.take(pool, 6)
    for _ in range(3):
        assert pool.snapshot() != snapshot
        pool.restore(snapshot)
        pool.check()
        assert pool.snapshot() == snapshot
        assert torch.equal(kind.take(pool, 6), expected)
        pool.free(held[: kind.page_size])


def test_a_snapshot_restores_into_another_pool_of_its_geometry(kind: Kind, pool: Any) -> None:
    kind.take(pool, 5)
    other = kind.build()
    other.restore(pool.snapshot())
    assert other.snapshot() == pool.snapshot()
    assert torch.equal(kind.take(other, 4), kind.take(pool, 4))


def test_a_snapshot_cannot_be_changed(kind: Kind, pool: Any) -> None:
    with pytest.raises(AttributeError):
        pool.snapshot().page_size = 3


def test_a_snapshot_of_another_geometry_is_refused(kind: Kind, pool: Any) -> None:
    others = [HostAllocator(23, kind.page_size), HostAllocator(24, 2)]
    if isinstance(pool, OwnerLaneAllocator):
        rest = (kind.page_size, pool.cp_size)
        others = [OwnerLaneAllocator(pool.physical_pages + 1, *rest), OwnerLaneAllocator(24, 2, 1)]
    if isinstance(pool, PagedAllocator):
        other_order = "lifo" if pool.order == "fifo" else "fifo"
        others = [PagedAllocator(*each, order=pool.order) for each in ((23, kind.page_size), (24, 2))]
        others.append(PagedAllocator(24, kind.page_size, order=other_order))
    for other in others:
        with unchanged(pool), pytest.raises(ValueError, match="snapshot"):
            pool.restore(other.snapshot())
    with unchanged(pool), pytest.raises(TypeError, match="snapshot"):
        pool.restore("a snapshot")


def test_clear_makes_the_pool_as_newly_built(kind: Kind, pool: Any) -> None:
    slots = take_all(kind, pool)
    pool.free(slots[: 5 * kind.page_size])
    kind.take(pool, 2)
    pool.clear()
    pool.check()
    assert pool.snapshot() == kind.build().snapshot()
    assert take_all(kind, pool) == slots


@pytest.mark.parametrize("size", [0, -1, 2.0, True, "8", None])
def test_a_malformed_geometry_is_refused(size: Any) -> None:
    error = ValueError if type(size) is int else TypeError
    for build in (
        lambda: HostAllocator(size),
        lambda: HostAllocator(4, size),
        lambda: OwnerLaneAllocator(size),
        lambda: OwnerLaneAllocator(4, size),
        lambda: OwnerLaneAllocator(4, 64, size),
        lambda: PagedAllocator(size, 64),
        lambda: PagedAllocator(4, size),
    ):
        with pytest.raises(error, match=r"pages|page_size|cp_size"):
            build()


@pytest.mark.compiled  # Only compiled kernels are atomic.
def test_six_threads_never_hold_the_same_page(kind: Kind) -> None:
    pool = kind.build()
    in_use: dict[int, int] = {}
    faults: list[Any] = []

    def work(seed: int) -> None:
        random = np.random.Generator(np.random.PCG64(seed))
        held: list[torch.Tensor] = []
        for step in range(150):
            slots = kind.take(pool, int(random.integers(1, 6)), kind.policies[step % len(kind.policies)])
            if slots is not None:
                faults.extend(slot for slot in slots.tolist() if in_use.setdefault(slot, seed) != seed)
                held.append(slots)
            while len(held) > 2 or (held and slots is None):
                back = held.pop(0)
                for slot in back.tolist():
                    del in_use[slot]
                pool.free(back)
            if step % 10 == 0 and isinstance(pool, OwnerLaneAllocator):
                pool.merge_released()
        for back in held:
            for slot in back.tolist():
                del in_use[slot]
            pool.free(back)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    pool.check()
    assert not faults
    assert not in_use
    assert pool.available_size() == pool.size
