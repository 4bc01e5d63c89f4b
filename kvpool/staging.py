"""Prefill batches on their way to the device."""

from collections.abc import Iterable

import numpy as np
import torch

from kvpool._arguments import positive_int
from kvpool._pinned import device_copier
from kvpool._tokens_input import INT64, UINT64, token_array, tokens_as
from kvpool._types import Tokens


class BatchStager:
    """Puts the token sequences of a batch one after the other into one int64 tensor on `device`.

    On a CUDA device the parts are gathered in a host buffer that is used again once its copy is done, and sent with one
    non-blocking copy on the current stream; no call waits for the device. `pin_memory` says whether that buffer is
    page-locked, as it must be for the copy to overlap with anything; None means yes. On the CPU the parts go straight
    into the result and nothing is pinned. A batch holds at most `capacity` tokens.

    >>> stager = BatchStager(capacity=8)
    >>> stager.stage([[11, 12], (), np.array([21])])
    tensor([11, 12, 21])
    """

    __slots__ = ("_copier", "capacity", "device")

    def __init__(self, capacity: int, device: torch.device | str = "cpu", pin_memory: bool | None = None) -> None:
        self.capacity = positive_int(capacity, "capacity")
        self.device = torch.device(device)
        if pin_memory is not None and not isinstance(pin_memory, bool):
            raise TypeError(f"pin_memory must be a bool or None, not {type(pin_memory).__name__}")
        self._copier = device_copier(self.device, pin_memory is not False, self.capacity)

    def stage(self, parts: Iterable[Tokens]) -> torch.Tensor:
        """Return the parts of a batch, of any accepted kinds, concatenated in a new tensor that owns its memory.

        Parts may be empty. A batch of more than `capacity` tokens is a ValueError; a part that holds anything but
        integers is a TypeError, and one with an integer outside int64 an OverflowError that is also a ValueError. Then
        nothing is sent. O(k) for k tokens.
        """
        arrays = [token_array(part) for part in parts]
        # Every other integer type is widened as the parts are put together.
        arrays = [tokens_as(array, INT64) if array.dtype is UINT64 else array for array in arrays]
        size = sum(map(len, arrays))
        if size > self.capacity:
            raise ValueError(f"a batch holds at most {self.capacity} tokens, not {size}")
        if self._copier is not None:
            return self._copier.send(*arrays)
        return torch.from_numpy(np.concatenate(arrays, dtype=np.int64) if arrays else np.empty(0, np.int64))
