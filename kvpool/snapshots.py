"""Snapshots of a pool's state, whole and in figures."""

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class HostSnapshot:
    """The immutable state of a HostAllocator, equal to another of the same geometry and FIFO order."""

    num_pages: int
    page_size: int
    free_order: bytes
    num_reserved: int = 0


def _set_state(snapshot: HostSnapshot, state: list[Any]) -> None:
    """Take the pickled fields; pools of versions before 0.3 had no reserved pages."""
    fields = HostSnapshot(*state)
    for name in HostSnapshot.__slots__:
        object.__setattr__(snapshot, name, getattr(fields, name))


# Not in the class, where Python 3.10 would replace it.
HostSnapshot.__setstate__ = _set_state  # type: ignore[attr-defined]


@dataclass(frozen=True, slots=True)
class HostStats:
    """A HostAllocator in figures: how much is free and in how many runs, and what has been asked of it.

    `free` and `longest_run` are pages. `allocations` counts the calls that were served, by whichever method, and
    `refusals` those that returned None; `clear` and `restore` leave them, a copy of a pool begins at 0.
    """

    free: int
    runs: int
    longest_run: int
    allocations: int
    refusals: int


@dataclass(frozen=True, slots=True)
class PageCountsSnapshot:
    """An immutable snapshot of a PageCounts, equal to another of the same counts: a uint32 a page."""

    counts: bytes


@dataclass(frozen=True, slots=True)
class LaneSnapshot:
    """The immutable state of an OwnerLaneAllocator, equal to another of the same geometry and page states."""

    physical_pages: int
    page_size: int
    cp_size: int
    page_bits: bytes


@dataclass(frozen=True, slots=True)
class PagedSnapshot:
    """The immutable state of a PagedAllocator, equal to another of the same geometry, order and page states.

    `group` is None, or what the group of frees that is open has: page ids that came as slots, those that came as page
    ids, and the slots of pages that were given in part.
    """

    num_pages: int
    page_size: int
    order: str
    free_pages: bytes
    released_pages: bytes
    group: tuple[bytes, bytes, bytes] | None
