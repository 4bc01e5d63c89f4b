"""Pictures of a pool's state."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class HostSnapshot:
    """An immutable picture of a HostAllocator, equal to another of the same geometry and FIFO order."""

    num_pages: int
    page_size: int
    free_order: bytes
