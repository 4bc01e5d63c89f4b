"""Copies to and from a device that never wait: pinned host buffers, each with the event that says when it is done."""

from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
import torch


class Event(Protocol):
    """What a copy leaves behind in its stream."""

    def query(self) -> bool:
        """Tell, without waiting, whether the copy is done."""

    def synchronize(self) -> None:
        """Wait until the copy is done."""


class Runtime(Protocol):
    """The five things asked of a device; the tests put one in its place whose copies they finish by hand."""

    def holds(self, values: object) -> bool:
        """Tell whether that is a tensor on the device."""

    def host_buffer(self, size: int) -> torch.Tensor:
        """Return a one-dimensional int64 host tensor to copy from, or to."""

    def result(self, size: int) -> torch.Tensor:
        """Return a new one-dimensional int64 tensor on the device."""

    def copy(self, target: torch.Tensor, source: torch.Tensor) -> None:
        """Issue a copy to the device, or from it; return before it is done."""

    def record(self) -> Event:
        """Return an event behind the copy just issued."""


class CudaRuntime:
    """A CUDA device and its current stream."""

    def __init__(self, device: torch.device, pin_memory: bool) -> None:
        self.device = device
        self.pin_memory = pin_memory

    def holds(self, values: object) -> bool:
        """Tell whether that is a tensor on the device, of which a stream of the device reads."""
        if not isinstance(values, torch.Tensor) or values.device.type != "cuda":
            return False
        index = self.device.index
        return values.device.index == (torch.cuda.current_device() if index is None else index)

    def host_buffer(self, size: int) -> torch.Tensor:
        """Return page-locked memory, or ordinary memory where that is not wanted."""
        return torch.empty(size, dtype=torch.int64, pin_memory=self.pin_memory)

    def result(self, size: int) -> torch.Tensor:
        """Return a new tensor on the device."""
        return torch.empty(size, dtype=torch.int64, device=self.device)

    def copy(self, target: torch.Tensor, source: torch.Tensor) -> None:
        """Issue a copy on the device's current stream."""
        target.copy_(source, non_blocking=True)

    def record(self) -> Event:
        """Return an event recorded on the device's current stream."""
        event = torch.cuda.Event()  # type: ignore[no-untyped-call]
        event.record(torch.cuda.current_stream(self.device))
        return event


class HostBuffer(NamedTuple):
    """One host buffer as torch and as numpy see it, and the event behind the last copy from it, if any."""

    tensor: torch.Tensor
    array: npt.NDArray[np.int64]
    copied: Event | None


class Arrival:
    """Elements of a device tensor on their way to the host: `array` holds them once `copied` is done."""

    __slots__ = ("_buffers", "array", "copied", "source")

    def __init__(self, buffer: HostBuffer, source: torch.Tensor, copied: Event) -> None:
        self.array = buffer.array[: source.numel()]
        self.copied = copied
        # Not to be used for anything else while it is being read.
        self.source = source
        self._buffers = [buffer]

    def take_buffer(self) -> HostBuffer | None:
        """Return the host buffer, which `array` is a view of, to the first who asks for it."""
        try:
            return self._buffers.pop()
        except IndexError:
            return None


class PinnedCopier:
    """Copies int64 elements to and from a device, with one non-blocking copy each and never a synchronisation.

    Host buffers wait in a queue. A copy takes the first that no copy in flight has, and where there is none makes
    another rather than wait: there come to be as many as copies were ever in flight at once. One that is too small is
    replaced. Safe from several threads: a buffer belongs to the copy that took it out of the queue.
    """

    def __init__(self, runtime: Runtime, smallest: int = 1) -> None:
        """Take the device to send to, and the least number of elements that a host buffer is made for."""
        self._runtime = runtime
        self._smallest = smallest
        self._buffers: deque[HostBuffer] = deque()

    def send(self, *arrays: npt.NDArray[Any]) -> torch.Tensor:
        """Return a new tensor on the device that, once the copy is done, holds the arrays one after the other.

        They are arrays of integers that fit int64, and have been read when this returns. O(n) for n elements.
        """

        def fill(elements: npt.NDArray[np.int64]) -> bool:
            if arrays:
                np.concatenate(arrays, out=elements)
            return True

        sent = self.send_filled(sum(map(len, arrays)), fill)
        assert sent is not None
        return sent

    def send_filled(self, size: int, fill: Callable[[npt.NDArray[np.int64]], bool]) -> torch.Tensor | None:
        """Return a new tensor of what `fill` writes into the `size` elements of a host buffer.

        All memory is at hand before `fill` is called. Where that returns False or raises nothing is sent.
        """
        result = self._runtime.result(size)
        if size == 0:
            return result if fill(np.empty(0, np.int64)) else None
        buffer = self._free_buffer(size)
        filled = False
        try:
            filled = fill(buffer.array[:size])
        finally:
            if not filled:
                # Nothing is in flight from it: it is the next to be taken.
                self._buffers.appendleft(buffer)
        if not filled:
            return None
        # Should the device refuse, the buffer is not used again: whether it is being read is not known.
        self._runtime.copy(result, buffer.tensor[:size])
        self._buffers.append(buffer._replace(copied=self._runtime.record()))
        return result

    def holds(self, values: object) -> bool:
        """Tell whether that is a tensor on the device, as `receive` takes it."""
        return self._runtime.holds(values)

    def receive(self, source: torch.Tensor) -> Arrival:
        """Send for the elements of a one-dimensional tensor of integers on the device; O(1) on the host.

        What is written to the tensor from here on does not arrive. `release` follows once the elements have been read.
        """
        size = source.numel()
        buffer = self._free_buffer(size)
        # Should the device refuse, the buffer is not used again: whether it is being written to is not known.
        self._runtime.copy(buffer.tensor[:size], source)
        return Arrival(buffer, source, self._runtime.record())

    def release(self, arrival: Arrival) -> None:
        """Use the buffer of elements that have arrived, and have been read, for other copies."""
        buffer = arrival.take_buffer()
        if buffer is not None:
            self._buffers.append(buffer._replace(copied=None))

    def _free_buffer(self, size: int) -> HostBuffer:
        # Around the queue once: a copy that has stalled does not keep the buffers of later ones from being used.
        for _ in range(len(self._buffers)):
            try:
                oldest = self._buffers.popleft()
            except IndexError:
                break
            if oldest.copied is None or oldest.copied.query():
                return oldest if len(oldest.array) >= size else self._new_buffer(size)
            self._buffers.append(oldest)
        return self._new_buffer(size)

    def _new_buffer(self, size: int) -> HostBuffer:
        tensor = self._runtime.host_buffer(max(size, self._smallest))
        return HostBuffer(tensor, tensor.numpy(), None)


def device_copier(device: torch.device, pin_memory: bool = True, smallest: int = 1) -> PinnedCopier | None:
    """Return what sends to a CUDA device, and None for the CPU, to which nothing has to be sent.

    Another kind of device, and a CUDA device that is not there, is a ValueError.
    """
    if device.type == "cpu":
        return None
    if device.type != "cuda":
        raise ValueError(f"device must be a CPU or CUDA device, not {device}")
    if not torch.cuda.is_available():
        raise ValueError(f"device {device} is not there: torch finds no CUDA device")
    return PinnedCopier(CudaRuntime(device, pin_memory), smallest)
