"""Devices in the place of CUDA: one whose copies the tests finish by hand, and one whose copies are done at once."""

from collections.abc import Callable
from typing import Any
from unittest import mock

import pytest
import torch

from kvpool import PagedAllocator


class DeviceTensor(torch.Tensor):
    """A tensor on the tests' device."""


class FakeEvent:
    """An event whose copy is done when the test says so, or when it is waited for."""

    def __init__(self, device: "FakeDevice", target: torch.Tensor, source: torch.Tensor) -> None:
        self.device, self.target, self.source, self.done = device, target, source, False

    def query(self) -> bool:
        self.device.asked()
        return self.done

    def synchronize(self) -> None:
        self.device.waits += 1
        # Copies of one stream are done in their order.
        for event in self.device.events[: self.device.events.index(self) + 1]:
            event.finish()

    def finish(self) -> None:
        """Copy what the source holds now, as late as a real device can."""
        if not self.done:
            self.target.copy_(self.source)
            self.done = True


class FakeDevice:
    """A device that touches a host buffer only when a test finishes the copy."""

    def __init__(self) -> None:
        self.host_buffers: list[torch.Tensor] = []
        self.events: list[FakeEvent] = []
        self.issued: tuple[torch.Tensor, torch.Tensor] | None = None
        #: Whether each copy is done when it is issued, as for what follows in its stream.
        self.in_order = False
        #: How often an event was waited for.
        self.waits = 0
        #: What happens whenever an event is asked whether it is done.
        self.asked: Callable[[], object] = lambda: None

    @classmethod
    def as_cuda(cls, monkeypatch: pytest.MonkeyPatch) -> "FakeDevice":
        """Put a device in the place of CUDA's."""
        device = cls()
        monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
        monkeypatch.setattr("kvpool._pinned.CudaRuntime", lambda *arguments: device)
        return device

    def tensor(self, values: object, dtype: torch.dtype = torch.int64) -> torch.Tensor:
        """Return a tensor on the device."""
        return torch.tensor(values, dtype=dtype).as_subclass(DeviceTensor)

    def holds(self, values: object) -> bool:
        return isinstance(values, DeviceTensor)

    def host_buffer(self, size: int) -> torch.Tensor:
        self.host_buffers.append(torch.empty(size, dtype=torch.int64))
        return self.host_buffers[-1]

    def result(self, size: int) -> torch.Tensor:
        return torch.full((size,), -1, dtype=torch.int64).as_subclass(DeviceTensor)

    def copy(self, target: torch.Tensor, source: torch.Tensor) -> None:
        assert self.issued is None, "two copies without an event between them"
        # What a stream reads of its device it reads in its order: what is written there later does not come along.
        self.issued = target, source.clone() if self.holds(source) else source

    def record(self) -> FakeEvent:
        assert self.issued is not None, "an event before its copy"
        self.events.append(FakeEvent(self, *self.issued))
        self.issued = None
        if self.in_order:
            self.events[-1].finish()
        return self.events[-1]

    def finish(self, count: int | None = None) -> None:
        """Finish the first `count` copies, or all, in their order."""
        for event in self.events[:count]:
            event.finish()


class Done:
    """An event whose copy is done."""

    def query(self) -> bool:
        return True

    def synchronize(self) -> None:
        pass


class PromptDevice:
    """A device that holds every tensor, and whose copies are done when they are issued."""

    def holds(self, values: object) -> bool:
        return isinstance(values, torch.Tensor)

    def host_buffer(self, size: int) -> torch.Tensor:
        return torch.empty(size, dtype=torch.int64)

    def result(self, size: int) -> torch.Tensor:
        return torch.empty(size, dtype=torch.int64)

    def copy(self, target: torch.Tensor, source: torch.Tensor) -> None:
        target.copy_(source)

    def record(self) -> Done:
        return Done()

    @classmethod
    def pool(cls, *sizes: int, **options: Any) -> PagedAllocator:
        """Build a pool of one rank on such a device."""
        with (
            mock.patch("torch.cuda.is_available", return_value=True),
            mock.patch("kvpool._pinned.CudaRuntime", return_value=cls()),
        ):
            return PagedAllocator(*sizes, device="cuda", **options)
