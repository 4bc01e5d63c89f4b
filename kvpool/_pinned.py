"""Host-to-device copies that never wait: pinned host buffers, each with the event that says when it is free again."""

from collections import deque
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
import torch


class Event(Protocol):
    """What a copy leaves behind in its stream."""

    def query(self) -> bool:
        """Tell, without waiting, whether the copy is done."""


class Runtime(Protocol):
    """The four things asked of a device; the tests put one in its place whose copies they finish by hand."""

    def host_buffer(self, size: int) -> torch.Tensor:
        """Return a one-dimensional int64 host tensor to copy from."""

    def result(self, size: int) -> torch.Tensor:
        """Return a new one-dimensional int64 tensor on the device."""

    def copy(self, target: torch.Tensor, source: torch.Tensor) -> None:
        """Issue a copy to the device; return before it is done."""

    def record(self) -> Event:
        """Return an event behind the copy just issued."""


class CudaRuntime:
    """A CUDA device and its current stream."""

    def __init__(self, device: torch.device, pin_memory: bool) -> None:
        self.device = device
        self.pin_memory = pin_memory

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
    """One host buffer as torch and as numpy see it, and the event behind the last copy from it."""

    tensor: torch.Tensor
    array: npt.NDArray[np.int64]
    copied: Event


class PinnedCopier:
    """Sends arrays to a device as int64, with one non-blocking copy each and never a synchronisation.

    Host buffers wait in a queue, the oldest copy first. A send takes the oldest if its copy is done, and otherwise
    makes another rather than wait: there come to be as many as copies were ever in flight at once. One that is too
    small is replaced.
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
        size = sum(map(len, arrays))
        result = self._runtime.result(size)
        if size:
            tensor, array = self._free_buffer(size)
            np.concatenate(arrays, out=array[:size])
            self._runtime.copy(result, tensor[:size])
            self._buffers.append(HostBuffer(tensor, array, self._runtime.record()))
        return result

    def _free_buffer(self, size: int) -> tuple[torch.Tensor, npt.NDArray[np.int64]]:
        if self._buffers and self._buffers[0].copied.query():
            tensor, array, _ = self._buffers.popleft()
            if len(array) >= size:
                return tensor, array
        tensor = self._runtime.host_buffer(max(size, self._smallest))
        return tensor, tensor.numpy()
