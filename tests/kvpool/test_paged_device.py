"""PagedAllocator on a device whose copies the tests finish by hand: results on their way, deferred frees."""

import copy
import pickle
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from kvpool import FreeError, PagedAllocator
from oracle import PagedOracle
from tests.kvpool.devices import FakeDevice
from tests.paged_traffic import OPERATIONS, Ours, Traffic

PAGE = 4
ORDERS = ("fifo", "lifo", "sorted")


@pytest.fixture(params=ORDERS)
def order(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> FakeDevice:
    return FakeDevice.as_cuda(monkeypatch)


def taken_pool(order: str, free: list[int], num_pages: int = 24) -> PagedAllocator:
    """A pool on the device of which just these pages are free."""
    pool = PagedAllocator(num_pages, PAGE, device="cuda", order=order)
    pool.alloc_pages(num_pages)
    pool.return_pages(free)
    return pool


def slots_of(*pages: int) -> list[int]:
    return [page * PAGE + offset for page in pages for offset in range(PAGE)]


def test_slots_are_those_of_a_pool_on_the_host(device: FakeDevice, order: str) -> None:
    ours, twin = PagedAllocator(24, PAGE, device="cuda", order=order), PagedAllocator(24, PAGE, order=order)
    calls: list[Callable[[PagedAllocator], Any]] = [
        lambda pool: pool.alloc(8),
        lambda pool: pool.return_pages([2]),
        lambda pool: pool.alloc(0),
        lambda pool: pool.alloc_extend([0, 5, 4], [30, 9, 5], [-1, 4, 99]),
        lambda pool: pool.alloc_extend([], [], []),
        lambda pool: pool.alloc_decode([1, 6, 9, 2], [-1, 4, 99, 8]),
        lambda pool: pool.alloc_decode([], []),
        lambda pool: pool.free([4, 5], partial=True),
        lambda pool: pool.alloc(4_000),
        lambda pool: pool.alloc_extend([0], [4_000], [-1]),
        lambda pool: pool.alloc_decode([1] * 30, [-1] * 30),
        lambda pool: pool.alloc(8),
    ]
    for call in calls:
        result, expected = call(ours), call(twin)
        device.finish()
        assert (result is None) == (expected is None)
        if isinstance(result, torch.Tensor):
            assert device.holds(result)
            assert torch.equal(result, expected)
        assert ours.snapshot() == twin.snapshot()
        ours.check()
    assert device.waits == 0


def test_last_slots_on_the_device_stay_there(device: FakeDevice, order: str) -> None:
    device.in_order = True
    random = np.random.Generator(np.random.PCG64(len(order)))
    ours, twin = PagedAllocator(400, PAGE, device="cuda", order=order), PagedAllocator(400, PAGE, order=order)
    lengths, lasts = np.zeros(9, np.int64), np.full(9, -1)
    for dtype in (torch.int64, torch.int32) * 20:
        after = lengths + random.integers(0, 11, 9)
        before = torch.tensor(lengths)
        result = ours.alloc_extend(before, after, device.tensor(lasts.tolist(), dtype))
        expected = twin.alloc_extend(lengths, after, lasts)
        assert torch.equal(result, expected)
        assert result.untyped_storage().nbytes() == 8 * result.numel()
        ends = np.cumsum(after - lengths)
        lasts = np.where(after > lengths, expected.numpy()[ends - 1] if len(expected) else -1, lasts)
        lengths = after + 1
        result = ours.alloc_decode(torch.tensor(lengths), device.tensor(lasts.tolist(), dtype))
        expected = twin.alloc_decode(lengths.tolist(), lasts)
        assert torch.equal(result, expected)
        assert result.untyped_storage().nbytes() == 8 * 9
        lasts = expected.numpy()
        if lengths.sum() > 1_000:
            lengths, lasts = np.zeros(9, np.int64), np.full(9, -1)
            for pool in (ours, twin):
                pool.clear()
        assert ours.snapshot() == twin.snapshot()
    assert device.waits == 0


def test_wrong_arguments_beside_last_slots_on_the_device(device: FakeDevice, order: str) -> None:
    pool = taken_pool(order, [])
    before = pool.snapshot()
    last = device.tensor([-1, 99])
    for arguments, said in (
        (([0, 5], [1, 4], last), "request 1 is wrong: seq_len 4 is less than its prefix_len 5"),
        (([0, -(2**63)], [1, 4], last), "request 1 is wrong: prefix_len -9223372036854775808 is negative"),
        (([0], [1], last), "must have one length"),
        (([0, 0], [1], last), "must have one length"),
        (([0, 0], [1, 1], device.tensor([[-1], [99]])), "last_slots must have one dimension"),
    ):
        with pytest.raises(ValueError, match=said):
            pool.alloc_extend(*arguments)
        if len(arguments[0]) == 1 or "dimension" in said:
            with pytest.raises(ValueError, match=said):
                pool.alloc_decode(*arguments[1:])
    with pytest.raises(ValueError, match="request 1 is wrong: seq_len 0 is less than the 1 that is decoded"):
        pool.alloc_decode([1, 0], last)
    for values in ([-1.0, 1.0], [True, False]):
        wrong = device.tensor(values, torch.tensor(values).dtype)
        with pytest.raises(TypeError, match="last_slots must be integers"):
            pool.alloc_decode([1, 1], wrong)
        with pytest.raises(TypeError, match="last_slots must be integers"):
            pool.alloc_extend([0, 0], [1, 1], wrong)
    assert pool.alloc_extend([0, 5], [30, 9], last) is None
    assert pool.alloc_decode([1, 1], last) is None
    assert device.events == []
    assert pool.snapshot() == before


LAST_THERE = FakeDevice().tensor([-1, 40])
GROWING: dict[str, Callable[[PagedAllocator], Any]] = {
    "alloc": lambda pool: pool.alloc(8),
    "alloc_extend": lambda pool: pool.alloc_extend([0, 5], [9, 7], [-1, 40]),
    "alloc_decode": lambda pool: pool.alloc_decode([1, 6], [-1, 40]),
    "alloc_extend, last slots there": lambda pool: pool.alloc_extend([0, 5], [9, 7], LAST_THERE),
    "alloc_decode, last slots there": lambda pool: pool.alloc_decode([1, 6], LAST_THERE),
}


@pytest.mark.parametrize("call", GROWING.values(), ids=GROWING.keys())
@pytest.mark.parametrize("failing", ["result", "host_buffer", "copy", "record"])
def test_no_page_is_lost_when_the_device_fails(
    device: FakeDevice, order: str, call: Any, failing: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pool = taken_pool(order, [3, 5, 7, 9])
    before = pool.snapshot()
    monkeypatch.setattr(device, failing, lambda *arguments: 1 // 0)
    with pytest.raises(ZeroDivisionError):
        call(pool)
    assert pool.snapshot() == before
    monkeypatch.undo()


@pytest.mark.parametrize("call", GROWING.values(), ids=GROWING.keys())
def test_pages_are_chosen_anew_where_the_pool_changes_while_they_are_sent(
    device: FakeDevice, order: str, call: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    pool = taken_pool(order, [3, 5, 7, 9, 11])
    device.in_order = True
    record, stolen = device.record, []

    def steal() -> Any:
        if not stolen:
            stolen.append(None)
            stolen[0] = pool.alloc_pages(2)
        return record()

    monkeypatch.setattr(device, "record", steal)
    result = call(pool)
    taken = {slot // PAGE for slot in result.tolist() if slot // PAGE != 10}
    assert taken.isdisjoint(stolen[0].tolist())
    assert pool.available_size() == (5 - len(taken) - 2) * PAGE
    pool.check()


def test_a_deferred_free_waits_for_nothing_nor_does_an_allocation_that_fits(device: FakeDevice, order: str) -> None:
    pool = taken_pool(order, [3, 5, 7, 9])
    assert pool.free(device.tensor(slots_of(12, 10)), deferred=True) == 8
    assert pool.free(device.tensor([88, 89, 60]), partial=True, deferred=True) == 3
    assert pool.return_pages(device.tensor([20, 19]), deferred=True) == 2
    assert pool.alloc_pages(1).tolist() == [3]
    pool.alloc_extend([0], [3], [-1])
    pool.alloc_decode([1], [-1])
    pool.alloc(4)
    assert device.waits == 0
    device.finish()
    assert pool.available_size() == 6 * PAGE
    assert device.waits == 0
    pool.check()
    expected = {"fifo": [12, 10, 22, 15, 20, 19], "lifo": [20, 19, 15, 22, 10, 12], "sorted": [10, 12, 15, 19, 20, 22]}
    assert pool.free_pages.tolist() == expected[order]


def test_what_has_arrived_is_used_at_once(device: FakeDevice, order: str) -> None:
    pool = taken_pool(order, [])
    for page in (12, 10, 15):
        pool.free(device.tensor(slots_of(page)), deferred=True)
    device.finish(2)
    assert sorted(pool.alloc_pages(2).tolist()) == [10, 12]
    assert device.waits == 0
    assert pool.alloc_pages(1).tolist() == [15]
    assert device.waits == 1


def test_an_allocation_waits_for_as_much_as_it_needs(device: FakeDevice, order: str) -> None:
    for call in (
        lambda pool: pool.alloc(12),
        lambda pool: pool.alloc_pages(3),
        lambda pool: pool.alloc_extend([0, 0], [8, 1], [-1, -1]),
        lambda pool: pool.alloc_decode([1, 1, 1], [-1, -1, -1]),
    ):
        pool = taken_pool(order, [3])
        before = device.waits
        for page in (12, 10, 15, 16):
            pool.free(device.tensor(slots_of(page)), deferred=True)
        assert call(pool) is not None
        assert device.waits == before + 2
        assert pool.available_size() == 2 * PAGE
        assert device.waits == before + 4


def test_what_does_not_fit_has_waited_for_all(device: FakeDevice, order: str) -> None:
    pool = taken_pool(order, [3])
    pool.free(device.tensor(slots_of(12, 10)), deferred=True)
    assert pool.alloc(400) is None
    assert device.waits == 1
    assert sorted(pool.free_pages.tolist()) == [3, 10, 12]


READING: dict[str, Callable[[PagedAllocator], Any]] = {
    "available_size": lambda pool: pool.available_size(),
    "free_pages": lambda pool: pool.free_pages,
    "snapshot": lambda pool: pool.snapshot(),
    "restore": lambda pool: pool.restore(PagedAllocator(24, PAGE, order=pool.order).snapshot()),
    "check": lambda pool: pool.check(),
    "copy": copy.copy,
    "pickle": pickle.dumps,
    "free": lambda pool: pool.free([]),
    "return_pages": lambda pool: pool.return_pages([21]),
    "free_rows": lambda pool: pool.free_rows(np.empty((0, 1), np.int64), []),
}


@pytest.mark.parametrize("call", READING.values(), ids=READING.keys())
def test_every_other_call_waits(device: FakeDevice, order: str, call: Any) -> None:
    pool = taken_pool(order, [3])
    pool.free(device.tensor(slots_of(12, 10)), deferred=True)
    pool.free(device.tensor(slots_of(9)), deferred=True)
    call(pool)
    assert device.waits == 2
    assert {12, 10, 9, 3} <= set(pool.free_pages.tolist())


@pytest.mark.parametrize("call", [*GROWING.values(), *READING.values()], ids=[*GROWING.keys(), *READING.keys()])
def test_a_wrong_deferred_free_is_told_before_anything_else_and_it_alone_is_dropped(
    device: FakeDevice, order: str, call: Any
) -> None:
    pool = taken_pool(order, [3, 4, 5, 6])
    pool.free(device.tensor(slots_of(12)), deferred=True)
    pool.free(device.tensor([*slots_of(10), 45]), deferred=True)
    pool.free(device.tensor(slots_of(9)), deferred=True)
    pool.return_pages(device.tensor([3, 13]), deferred=True)
    pool.return_pages(device.tensor([14]), deferred=True)
    device.finish()
    for reason in ("page 11: incomplete", "page 3: already free"):
        with pytest.raises(FreeError, match=reason):
            call(pool)
    assert sorted(pool.free_pages.tolist()) == [3, 4, 5, 6, 9, 12, 14]
    pool.check()
    assert pool.free(slots_of(10, 11, 13)) == 12


def test_the_same_page_deferred_twice_is_the_second_s_fault(device: FakeDevice, order: str) -> None:
    pool = taken_pool(order, [])
    pool.free(device.tensor([40]), partial=True, deferred=True)
    pool.return_pages(device.tensor([10]), deferred=True)
    with pytest.raises(FreeError, match="page 10: already free"):
        pool.available_size()
    assert pool.available_size() == PAGE


def test_slots_that_are_out_of_order_or_in_two_pieces(device: FakeDevice, order: str) -> None:
    pool = taken_pool(order, [])
    pool.free(device.tensor(slots_of(12, 10)[::-1]), deferred=True)
    pool.free(device.tensor([61, 80, 60, 82]), partial=True, deferred=True)
    expected = {"fifo": [10, 12, 15, 20], "lifo": [15, 20, 10, 12], "sorted": [10, 12, 15, 20]}
    assert pool.free_pages.tolist() == expected[order]


@pytest.mark.parametrize("dtype", [torch.int8, torch.int32, torch.uint8])
def test_deferred_frees_of_other_integers(device: FakeDevice, order: str, dtype: torch.dtype) -> None:
    pool = taken_pool(order, [])
    assert pool.return_pages(device.tensor([12, 10], dtype), deferred=True) == 2
    assert sorted(pool.free_pages.tolist()) == [10, 12]


def test_what_is_written_to_the_slots_later_does_not_matter(device: FakeDevice, order: str) -> None:
    pool = taken_pool(order, [])
    slots = device.tensor(slots_of(12))
    pool.free(slots, deferred=True)
    slots.fill_(0)
    del slots
    assert pool.free_pages.tolist() == [12]


@pytest.mark.parametrize(
    ("values", "error"),
    [([[4, 5], [6, 7]], ValueError), (7, ValueError), ([1.0], TypeError), ([True], TypeError), ([1j], TypeError)],
)
def test_what_are_no_slots_is_told_at_once(device: FakeDevice, order: str, values: Any, error: type[Exception]) -> None:
    pool = taken_pool(order, [3])
    before = pool.snapshot()
    for method, name in ((pool.free, "slots"), (pool.return_pages, "page_ids")):
        with pytest.raises(error, match=name):
            method(device.tensor(values, torch.tensor(values).dtype), deferred=True)
        assert method(device.tensor([], torch.float32), deferred=True) == 0
    assert device.events == []
    assert pool.snapshot() == before
    for deferred in (1, None):
        with pytest.raises(TypeError, match="deferred must be a bool"):
            pool.free([], deferred=deferred)


def test_slots_on_the_host_are_freed_at_once_or_in_their_turn(device: FakeDevice, order: str) -> None:
    pool = taken_pool(order, [])
    assert pool.free(slots_of(12), deferred=True) == 4
    with pytest.raises(FreeError, match="already free"):
        pool.free(slots_of(12), deferred=True)
    pool.free(device.tensor(slots_of(9)), deferred=True)
    given = np.array([20, 19])
    assert pool.return_pages(given, deferred=True) == 2
    given[:] = 0
    assert pool.free(torch.tensor([84]), partial=True, deferred=True) == 1
    assert pool.free(slots_of(12), deferred=True) == 4
    with pytest.raises(TypeError):
        pool.free([1.0], deferred=True)
    assert device.waits == 0
    with pytest.raises(FreeError, match="page 12: already free"):
        pool.available_size()
    expected = {"fifo": [12, 9, 20, 19, 21], "lifo": [21, 20, 19, 9, 12], "sorted": [9, 12, 19, 20, 21]}
    assert pool.free_pages.tolist() == expected[order]


def test_a_pool_on_the_host_defers_nothing(order: str) -> None:
    pool = PagedAllocator(24, PAGE, order=order)
    slots = pool.alloc(40)
    assert pool.free(slots[:8], deferred=True) == 8
    assert pool.free(slots[8:9], partial=True, deferred=True) == 1
    with pytest.raises(FreeError):
        pool.free(slots[:8], deferred=True)
    assert pool.available_size() == 17 * PAGE


def test_a_group_of_deferred_frees_waits_for_nothing(device: FakeDevice, order: str) -> None:
    pool = taken_pool(order, [3, 4])
    pool.free(device.tensor(slots_of(8)), deferred=True)
    pool.free_group_begin()
    pool.free(device.tensor(slots_of(12)), deferred=True)
    pool.return_pages(device.tensor([20, 19]), deferred=True)
    pool.free(device.tensor([40]), partial=True, deferred=True)
    pool.free_group_end()
    pool.free_group_begin()
    pool.free(device.tensor(slots_of(7)), deferred=True)
    assert sorted(pool.alloc_pages(2).tolist()) == [3, 4]
    assert device.waits == 0
    # What came before the first group is not part of it, and nothing of a group is free before its end.
    device.finish(3)
    assert pool.alloc_pages(1).tolist() == [8]
    assert device.waits == 0
    assert sorted(pool.alloc_pages(1).tolist())[0] in (10, 12, 20)
    assert device.waits == 1
    assert pool.available_size() == 3 * PAGE
    assert device.waits == 2
    pool.check()
    pool.free_group_end()
    assert pool.available_size() == 4 * PAGE
    assert 7 in pool.free_pages.tolist()
    pool.check()


def test_groups_of_deferred_frees_have_the_addresses_of_others(device: FakeDevice, order: str) -> None:
    pools = [taken_pool(order, [3, 4]) for _ in range(2)]
    for pool, deferred in zip(pools, (True, False), strict=True):
        pool.free(device.tensor(slots_of(8)), deferred=deferred)
        pool.free_group_begin()
        pool.free(device.tensor(slots_of(12, 9)), deferred=deferred)
        pool.return_pages(device.tensor([20, 19]), deferred=deferred)
        pool.free(device.tensor([41, 5]), partial=True, deferred=deferred)
        pool.free(device.tensor([40]), partial=True, deferred=deferred)
        with pytest.raises(ValueError, match="a group of frees is open"):
            pool.free_group_begin()
        pool.free_group_end()
        pool.free_group_end()
        pool.free(device.tensor(slots_of(16)), deferred=deferred)
    assert pools[0].snapshot() == pools[1].snapshot()


def test_a_wrong_deferred_free_of_a_group(device: FakeDevice, order: str) -> None:
    pool = taken_pool(order, [])
    pool.free_group_begin()
    pool.free(device.tensor([48, 49]), partial=True, deferred=True)
    pool.free(device.tensor([49, 50]), partial=True, deferred=True)
    pool.free(device.tensor([50]), partial=True, deferred=True)
    pool.return_pages(device.tensor([12]), deferred=True)
    pool.free_group_end()
    for reason in ("page 12: given twice", "page 12: already given back in this group"):
        with pytest.raises(FreeError, match=reason):
            pool.available_size()
    assert pool.free_pages.tolist() == [12]
    pool.check()


def test_clear_drops_what_is_outstanding(device: FakeDevice, order: str) -> None:
    pool = taken_pool(order, [])
    for _ in range(3):
        pool.free(device.tensor(slots_of(12)), deferred=True)
    pool.free_group_begin()
    pool.free(device.tensor(slots_of(10)), deferred=True)
    pool.clear()
    assert device.waits == 0
    assert pool.snapshot() == PagedAllocator(24, PAGE, order=order).snapshot()
    pool.free_group_end()
    assert pool.available_size() == 24 * PAGE


@pytest.mark.parametrize("failing", ["host_buffer", "copy", "record"])
def test_a_deferred_free_that_the_device_refuses_is_none(
    device: FakeDevice, order: str, failing: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pool = taken_pool(order, [])
    monkeypatch.setattr(device, failing, lambda *arguments: 1 // 0)
    with pytest.raises(ZeroDivisionError):
        pool.free(device.tensor(slots_of(12)), deferred=True)
    monkeypatch.undo()
    device.issued = None
    assert pool.available_size() == 0
    assert pool.free(slots_of(12)) == PAGE


def test_host_buffers_are_used_again_once_their_slots_have_been_read(device: FakeDevice, order: str) -> None:
    pool = taken_pool(order, [])
    for _ in range(20):
        for page in (12, 10, 9):
            pool.free(device.tensor(slots_of(page)), deferred=True)
        assert pool.available_size() == 3 * PAGE
        pool.alloc_pages(3)
    assert len(device.host_buffers) == 3
    # One for which a free was wrong as well.
    for _ in range(5):
        pool.free(device.tensor([0]), deferred=True)
        with pytest.raises(FreeError):
            pool.check()
    assert len(device.host_buffers) == 3


@pytest.mark.parametrize("call", [*GROWING.values(), *READING.values()], ids=[*GROWING.keys(), *READING.keys()])
def test_what_an_interrupted_call_has_not_carried_out_the_next_one_does(
    device: FakeDevice, order: str, call: Any
) -> None:
    pool = taken_pool(order, [3, 4, 5, 6])
    for page in (12, 10, 9):
        pool.free(device.tensor(slots_of(page)), deferred=True)
    device.finish()
    asked: list[None] = []

    def interrupt() -> None:
        asked.append(None)
        if len(asked) == 2:
            raise ZeroDivisionError

    device.asked = interrupt
    with pytest.raises(ZeroDivisionError):
        call(pool)
    assert len(asked) == 2
    assert pool.available_size() == 7 * PAGE
    pool.check()


@pytest.mark.parametrize("call", [*GROWING.values(), *READING.values()], ids=[*GROWING.keys(), *READING.keys()])
def test_calls_that_are_made_while_another_looks_what_has_arrived(device: FakeDevice, order: str, call: Any) -> None:
    pool = taken_pool(order, [3, 4, 5, 6])
    for page in (12, 10, 9):
        pool.free(device.tensor(slots_of(page)), deferred=True)
    device.finish()
    device.in_order = True
    busy = False

    def back() -> None:
        nonlocal busy
        if not busy:
            busy = True
            assert pool.available_size() == 7 * PAGE
            busy = False

    device.asked = back
    call(pool)
    pool.check()
    device.asked = lambda: None
    assert device.waits == 0


@pytest.mark.compiled  # Only compiled code is atomic.
def test_threads_that_free_and_allocate_lose_nothing(device: FakeDevice, order: str) -> None:
    pool = PagedAllocator(200, PAGE, device="cuda", order=order)
    lock = threading.Lock()
    record, issue, faults = device.record, device.copy, []

    def copy_and_record(target: torch.Tensor, source: torch.Tensor) -> None:
        lock.acquire()
        issue(target, source)

    def recorded() -> Any:
        try:
            event = record()
            event.finish()
            return event
        finally:
            lock.release()

    device.copy, device.record = copy_and_record, recorded

    def work(seed: int) -> None:
        random = np.random.Generator(np.random.PCG64(seed))
        held: list[torch.Tensor] = []
        for _ in range(150):
            slots = pool.alloc(int(random.integers(1, 6)) * PAGE)
            if slots is not None:
                held.append(slots)
            while len(held) > 3:
                pool.free(held.pop(0), deferred=True)
            if random.random() < 0.1 and pool.available_size() < 0:
                faults.append(None)
        for slots in held:
            pool.free(slots, deferred=True)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert pool.available_size() == pool.size
    pool.check()


class Deferring(Ours):
    """A PagedAllocator on the device whose frees are all deferred, and settled before its next addresses matter."""

    def __init__(self, num_pages: int, page_size: int, order: str, device: FakeDevice) -> None:
        super().__init__(num_pages, page_size, order, device="cuda")
        self.device = device

    def settled(self, slots: torch.Tensor | None) -> list[int] | None:
        self.device.finish()
        self.device.events.clear()
        return super().settled(slots)

    def alloc(self, pages: int) -> list[int] | None:
        self.pool.available_size()
        return super().alloc(pages)

    def extend(self, *arguments: list[int]) -> list[int] | None:
        self.pool.available_size()
        return super().extend(*arguments)

    def decode(self, *arguments: list[int]) -> list[int] | None:
        self.pool.available_size()
        return super().decode(*arguments)

    def free(self, slots: list[int]) -> None:
        assert self.pool.free(self.device.tensor(slots), partial=True, deferred=True) == len(slots)

    def return_pages(self, page_ids: list[int]) -> None:
        assert self.pool.return_pages(self.device.tensor(page_ids), deferred=True) == len(page_ids)


def test_deferred_frees_beside_the_oracle(device: FakeDevice, order: str) -> None:
    random = np.random.Generator(np.random.PCG64(len(order)))
    ours, oracle = Deferring(60, PAGE, order, device), PagedOracle(60, PAGE, order)
    traffic = Traffic(ours, oracle, PAGE, lambda below: int(random.integers(below)))
    weights = np.array(list(OPERATIONS.values()))
    for step, chosen in enumerate(random.choice(len(weights), 3_000, p=weights / weights.sum())):
        list(OPERATIONS)[chosen](traffic)
        if step % 10 == 0:
            traffic.same_pages_are_free()
            ours.pool.check()
    assert min(traffic.counts) > 30, traffic.counts
