"""Pictures of a pool's state."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class HostSnapshot:
    """An immutable picture of a HostAllocator, equal to another of the same geometry and FIFO order."""

    num_pages: int
    page_size: int
    free_order: bytes


@dataclass(frozen=True, slots=True)
class LaneSnapshot:
    """An immutable picture of an OwnerLaneAllocator, equal to another of the same geometry and page states."""

    physical_pages: int
    page_size: int
    cp_size: int
    page_bits: bytes
