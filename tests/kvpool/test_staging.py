"""BatchStager, and the pinned copies under it on a device whose copies the tests finish by hand."""

from typing import Any

import numpy as np
import pytest
import torch

from kvpool import BatchStager, OwnerLaneAllocator, RequestTokens, TokenBuffer
from kvpool._pinned import PinnedCopier
from tests.kvpool.devices import FakeDevice
from tests.kvpool.tokens import EMPTY, INPUTS, REFUSED, REFUSED_IDS, Convert

TOKENS = [5, 6, 7]
cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


@pytest.mark.parametrize("convert", INPUTS.values(), ids=INPUTS.keys())
def test_stages_every_input(convert: Convert) -> None:
    batch = BatchStager(10).stage([convert(TOKENS), convert([]), convert([8])])
    assert batch.tolist() == [*TOKENS, 8]
    assert batch.dtype == torch.int64
    assert batch.device == torch.device("cpu")


@pytest.mark.parametrize("empty", EMPTY.values(), ids=EMPTY.keys())
def test_stages_nothing(empty: Any) -> None:
    for parts in ([], [empty()], [empty(), empty()]):
        batch = BatchStager(1).stage(parts)
        assert batch.shape == (0,)
        assert batch.dtype == torch.int64


def test_takes_the_parts_from_any_iterable() -> None:
    stager = BatchStager(10)
    assert stager.stage(TokenBuffer([length]) for length in range(3)).tolist() == [0, 1, 2]
    assert stager.stage(np.array([[1, 2], [3, 4]])).tolist() == [1, 2, 3, 4]
    request = RequestTokens([1, 2])
    request.append(3)
    assert stager.stage((request.fill_ids, request.output)).tolist() == [1, 2, 3, 3]


def test_a_result_owns_its_memory() -> None:
    stager = BatchStager(10)
    source = np.arange(10)
    first = stager.stage([source])
    second = stager.stage([TOKENS])
    source[:] = 0
    second[:] = -1
    assert first.tolist() == list(range(10))
    assert first.untyped_storage().nbytes() == 80
    first[:] = 9
    assert stager.stage([TOKENS]).tolist() == TOKENS


def test_refuses_a_batch_over_capacity_and_takes_the_next() -> None:
    stager = BatchStager(3)
    for parts in ([[1, 2], [3, 4]], [[1, 2, 3, 4]], [[1]] * 4):
        with pytest.raises(ValueError, match="a batch holds at most 3 tokens, not 4"):
            stager.stage(parts)
    assert stager.stage([[1, 2], [3]]).tolist() == [1, 2, 3]


@pytest.mark.parametrize(("name", "tokens", "error"), REFUSED, ids=REFUSED_IDS)
def test_refuses_what_are_no_tokens(name: str, tokens: Any, error: type[Exception]) -> None:
    stager = BatchStager(10)
    with pytest.raises(error):
        stager.stage([[1], tokens])
    with pytest.raises(OverflowError, match="token 9223372036854775808 does not fit int64"):
        stager.stage([[1], np.array([2**63], np.uint64)])
    assert stager.stage([[1]]).tolist() == [1]


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ((0,), ValueError, "capacity must be positive"),
        ((1.0,), TypeError, "capacity must be an integer"),
        ((True,), TypeError, "capacity must be an integer"),
        ((1, "meta"), ValueError, "device must be a CPU or CUDA device, not meta"),
        ((1, "nowhere"), RuntimeError, "nowhere"),
        ((1, "cpu", 1), TypeError, "pin_memory must be a bool or None"),
    ],
)
def test_refuses_arguments(arguments: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        BatchStager(*arguments)


def test_says_that_there_is_no_cuda_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(ValueError, match="device cuda:1 is not there"):
        BatchStager(1, "cuda:1")


@pytest.mark.parametrize("pin_memory", [None, True, False])
def test_pins_nothing_on_the_cpu(pin_memory: bool | None) -> None:
    assert not BatchStager(3, "cpu", pin_memory).stage([TOKENS]).is_pinned()


def test_no_host_buffer_is_used_again_while_its_copy_is_in_flight() -> None:
    device = FakeDevice()
    copier = PinnedCopier(device, 8)
    results = [copier.send(np.array([i, i])) for i in range(4)]
    assert len(device.host_buffers) == 4
    for event in reversed(device.events):
        event.finish()
    assert [result.tolist() for result in results] == [[i, i] for i in range(4)]


def test_host_buffers_are_used_again_once_their_copies_are_done() -> None:
    device = FakeDevice()
    copier = PinnedCopier(device, 8)
    for i in range(20):
        results = [copier.send(np.arange(i % 8 + 1)), copier.send(np.array([i]), np.array([i + 1, i + 2]))]
        for event in device.events[-2:]:
            event.finish()
        assert [result.tolist() for result in results] == [list(range(i % 8 + 1)), [i, i + 1, i + 2]]
    assert len(device.host_buffers) == 2
    assert len(device.events) == 40


def test_waits_for_nothing_and_takes_the_oldest_buffer() -> None:
    device = FakeDevice()
    copier = PinnedCopier(device, 8)
    first, second = copier.send(np.array([1])), copier.send(np.array([2]))
    device.events[0].finish()
    third = copier.send(np.array([3]))
    fourth = copier.send(np.array([4]))
    assert len(device.host_buffers) == 3
    for event in device.events[1:]:
        event.finish()
    assert [result.item() for result in (first, second, third, fourth)] == [1, 2, 3, 4]


def test_a_host_buffer_that_is_too_small_is_replaced() -> None:
    device = FakeDevice()
    copier = PinnedCopier(device, 2)
    for size in (1, 5, 3, 5, 6):
        result = copier.send(np.arange(size))
        device.events[-1].finish()
        assert result.tolist() == list(range(size))
    assert [len(buffer) for buffer in device.host_buffers] == [2, 5, 6]


def test_sending_nothing_issues_no_copy() -> None:
    device = FakeDevice()
    copier = PinnedCopier(device)
    assert copier.send().shape == copier.send(np.empty(0, np.int64)).shape == (0,)
    assert device.events == device.host_buffers == []


def test_the_arrays_have_been_read_when_send_returns() -> None:
    device = FakeDevice()
    source = np.arange(3)
    result = PinnedCopier(device).send(source)
    source[:] = 9
    device.events[0].finish()
    assert result.tolist() == [0, 1, 2]


def on_a_device(monkeypatch: pytest.MonkeyPatch, capacity: int) -> tuple[BatchStager, FakeDevice]:
    """A stager for CUDA whose device is the tests'."""
    device = FakeDevice.as_cuda(monkeypatch)
    return BatchStager(capacity, "cuda"), device


def test_stages_to_a_device_again_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    stager, device = on_a_device(monkeypatch, 4)
    batches = [stager.stage([[i], TokenBuffer([i + 1], np.int32), (), np.array([i + 2], np.uint64)]) for i in range(3)]
    assert len(device.host_buffers) == len(device.events) == 3
    for event in device.events:
        event.finish()
    assert [batch.tolist() for batch in batches] == [[i, i + 1, i + 2] for i in range(3)]
    stager.stage([[1, 2, 3, 4]])
    assert len(device.host_buffers) == 3


def test_sends_nothing_to_a_device_that_it_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    stager, device = on_a_device(monkeypatch, 3)
    with pytest.raises(ValueError, match="at most 3 tokens"):
        stager.stage([[1, 2], [3, 4]])
    with pytest.raises(TypeError):
        stager.stage([[1], [2.0]])
    assert device.events == []


def test_a_buffer_that_nothing_was_sent_from_is_the_next() -> None:
    device = FakeDevice()
    copier = PinnedCopier(device)
    assert copier.send_filled(3, lambda elements: False) is None
    with pytest.raises(ZeroDivisionError):
        copier.send_filled(3, lambda elements: bool(1 // 0))
    result = copier.send(np.arange(3))
    assert len(device.host_buffers) == len(device.events) == 1
    device.events[0].finish()
    assert result.tolist() == [0, 1, 2]


def test_a_copy_that_stalls_does_not_keep_later_buffers_from_being_used() -> None:
    device = FakeDevice()
    copier = PinnedCopier(device)
    copier.send(np.arange(3))
    for _ in range(50):
        copier.send(np.arange(3))
        device.events[-1].finish()
    assert len(device.host_buffers) == 2


def test_lanes_lose_no_page_when_the_copy_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    device = FakeDevice.as_cuda(monkeypatch)
    pool = OwnerLaneAllocator(6, 4, 2, device="cuda")
    monkeypatch.setattr(device, "record", lambda: 1 // 0)
    with pytest.raises(ZeroDivisionError):
        pool.alloc_pages_with_owners([0, 1])
    assert pool.available_size() == pool.size
    pool.check()


def test_lanes_send_their_slots_through_buffers_that_are_not_reused_in_flight(monkeypatch: pytest.MonkeyPatch) -> None:
    device = FakeDevice.as_cuda(monkeypatch)
    pool, twin = OwnerLaneAllocator(6, 4, 2, device="cuda"), OwnerLaneAllocator(6, 4, 2)
    requests = [[0, 1, 1], [1], [], [0, 0, 0]]
    results = [pool.alloc_pages_with_owners(owners) for owners in requests]
    before = pool.snapshot()
    assert pool.alloc_pages_with_owners([1] * 4) is None
    assert pool.alloc_pages_with_owners([1] * 40) is None
    with pytest.raises(ValueError, match="owners"):
        pool.alloc_pages_with_owners([2])
    assert pool.snapshot() == before
    assert len(device.events) == 3
    for event in device.events:
        event.finish()
    for owners, result in zip(requests, results, strict=True):
        assert torch.equal(result, twin.alloc_pages_with_owners(owners))


def test_lanes_lose_no_page_when_the_device_has_no_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    device = FakeDevice.as_cuda(monkeypatch)
    pool = OwnerLaneAllocator(6, 4, 2, device="cuda")
    before = pool.snapshot()
    monkeypatch.setattr(device, "result", lambda size: torch.empty(-size))
    with pytest.raises(RuntimeError):
        pool.alloc_pages_with_owners([0, 1])
    assert pool.snapshot() == before


@cuda
@pytest.mark.parametrize("pin_memory", [None, True, False])
def test_stages_to_cuda(pin_memory: bool | None) -> None:
    stager = BatchStager(1000, "cuda", pin_memory)
    batches = [stager.stage([range(i, i + 900), [i]]) for i in range(50)]
    for i, batch in enumerate(batches):
        assert batch.device.type == "cuda"
        assert batch.tolist() == [*range(i, i + 900), i]


@cuda
def test_staging_never_synchronises() -> None:
    stager = BatchStager(1000, "cuda")
    stager.stage([[1]])
    torch.cuda.set_sync_debug_mode("error")
    try:
        batches = [stager.stage([range(i, i + 900)]) for i in range(50)]
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert [batch[0].item() for batch in batches] == list(range(50))
