"""What `inspect.signature` says of the public types: an extension type cannot tell what its `__init__` takes."""

import inspect
from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import torch

from kvpool._types import Tokens


class ClassSignature:
    """The value of a type's `__signature__`, which is no subclass's that is built in another way."""

    def __init__(self, like: Callable[..., None]) -> None:
        self.like = like

    def __get__(self, instance: object, owner: type) -> inspect.Signature:
        named = next(kind for kind in owner.__mro__ if vars(kind).get("__signature__") is self)
        if instance is not None or owner.__init__ != named.__init__ or owner.__new__ != named.__new__:  # type: ignore[misc]
            raise AttributeError("__signature__")
        # Worked out when it is asked for, as importing kvpool is to take no time.
        return inspect.signature(self.like)


def host_allocator(num_pages: int, page_size: int = 64, *, num_reserved: int = 0) -> None:
    """Of HostAllocator."""


def owner_lane_allocator(
    physical_pages: int,
    page_size: int = 64,
    cp_size: int = 8,
    *,
    device: str | torch.device = "cpu",
    selection: str = "contiguous",
) -> None:
    """Of OwnerLaneAllocator."""


def page_counts(num_pages: int) -> None:
    """Of PageCounts."""


def paged_allocator(num_pages: int, page_size: int, *, device: str | torch.device = "cpu", order: str = "fifo") -> None:
    """Of PagedAllocator."""


def token_buffer(tokens: Tokens = (), dtype: npt.DTypeLike = np.int64) -> None:
    """Of TokenBuffer."""


def request_tokens(origin: Tokens) -> None:
    """Of RequestTokens."""


def token_table(max_requests: int, max_tokens: int, dtype: npt.DTypeLike = np.int32) -> None:
    """Of TokenTable."""
