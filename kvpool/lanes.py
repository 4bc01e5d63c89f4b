"""The device tier (L1) under context parallelism: one pool of logical pages, dealt to ranks in lanes."""

import math
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np
import torch
from numpy import empty
from torch import from_numpy

from kvpool import _kernels
from kvpool._arguments import (
    INT64,
    INT64_MAX,
    BeyondInt64Error,
    Int64Array,
    Integers,
    as_int64,
    out_of_range,
    positive_int,
    real_number,
    repeated,
    return_in_any_order,
)
from kvpool._kernels import lane_take
from kvpool._lane_books import check_lane_books
from kvpool._pinned import PinnedCopier, device_copier

LaneStats = tuple[list[int], list[int], list[int]]
_NOBODY = np.empty(0, np.int64)


@dataclass(frozen=True, slots=True)
class LaneSnapshot:
    """An immutable picture of an OwnerLaneAllocator, equal to another of the same geometry and page states."""

    physical_pages: int
    page_size: int
    cp_size: int
    page_bits: bytes


class OwnerLaneAllocator:
    """A pool that `cp_size` ranks share, `physical_pages` pages of `page_size` slots on each.

    Logical page `p >= 1` belongs to rank `(p - 1) % cp_size`, its owner, and is physical page `(p - 1) // cp_size + 1`
    there; page 0 is padding and is never handed out. The pages of one rank are a lane, which has a free set and a
    released set (pages given back, reused last).

    Allocation:        `alloc_pages_with_owners`, `select_pages`, `free`, `return_pages`, `merge_released`
    Room in the lanes: `compute_owner_lane_stats`, `compute_owner_lane_free_room_stats`,
                       `compute_owner_lane_capacity_pages`, `available_size`, `schedulable_size`
    The page sets:     `free_pages`, `release_pages`
    The whole state:   `snapshot`, `restore`, `clear`, `check`

    `selection` is "contiguous" (the lowest stretch of consecutive physical pages of the free set that serves a lane's
    whole demand, where there is one) or "fifo" (free pages lowest address first, then released ones). The books live on
    the CPU; slots are returned on `device` (CPU or CUDA), by one host-to-device copy that nothing waits for. Every
    method is atomic, and a call that raises has changed nothing. Costs are given for n owners of a request, c lanes and
    P pages of a lane.

    >>> pool = OwnerLaneAllocator(physical_pages=4, page_size=1, cp_size=2)
    >>> pool.alloc_pages_with_owners([0, 1, 1, 0])
    tensor([1, 2, 4, 3])
    >>> pool.free([4, 3])
    2
    >>> pool.select_pages([1]), pool.release_pages
    (array([6]), tensor([3, 4]))
    """

    physical_pages: int
    page_size: int
    cp_size: int
    device: torch.device
    selection: str
    _copier: PinnedCopier | None

    def __init__(
        self,
        physical_pages: int,
        page_size: int = 64,
        cp_size: int = 8,
        *,
        device: str | torch.device = "cpu",
        selection: str = "contiguous",
    ) -> None:
        self.physical_pages = positive_int(physical_pages, "physical_pages")
        self.page_size = positive_int(page_size, "page_size")
        self.cp_size = positive_int(cp_size, "cp_size")
        self.device = torch.device(device)
        self._copier = device_copier(self.device)
        if selection not in ("contiguous", "fifo"):
            raise ValueError(f'selection must be "contiguous" or "fifo", not {selection!r}')
        self.selection = selection
        if self.size + self.page_size > INT64_MAX:
            raise ValueError(f"{self.num_pages} pages of {self.page_size} slots are more slots than int64 counts")
        self._index = _kernels.lane_array(self.physical_pages, self.cp_size)

    @property
    def num_pages(self) -> int:
        """Pages of all lanes, free or not, without the padding page."""
        return self.physical_pages * self.cp_size

    @property
    def size(self) -> int:
        """Slots of all lanes, free or not, without the padding page."""
        return self.num_pages * self.page_size

    @property
    def free_pages(self) -> torch.Tensor:
        """The free sets: a fresh CPU int64 tensor of logical page ids, lane by lane, ascending. O(c P).

        Assigning a one-dimensional integer tensor (or ndarray, or list) replaces the sets; a page in neither set counts
        as allocated. Raises ValueError, having changed nothing, for a page that is repeated, in the other set or
        outside `1 .. physical_pages * cp_size`.
        """
        return torch.from_numpy(_kernels.lane_pages(self._index, False))

    @free_pages.setter
    def free_pages(self, page_ids: Integers) -> None:
        self._assign("free_pages", page_ids, released=False)

    @property
    def release_pages(self) -> torch.Tensor:
        """The released sets, as `free_pages`."""
        return torch.from_numpy(_kernels.lane_pages(self._index, True))

    @release_pages.setter
    def release_pages(self, page_ids: Integers) -> None:
        self._assign("release_pages", page_ids, released=True)

    def available_size(self) -> int:
        """Return how many slots are free or released, in all lanes."""
        return sum(self._counts(_NOBODY)[1]) * self.page_size

    def schedulable_size(self) -> int:
        """Return how many slots a balanced request can have: `cp_size` times what the shortest lane has."""
        return min(self._counts(_NOBODY)[1]) * self.cp_size * self.page_size

    def alloc_pages_with_owners(self, owners: Integers) -> torch.Tensor | None:
        """Return the slots of one page for each entry of `owners`, owned by that rank, in request order.

        The first entry of a rank gets the first page taken from its lane, and so on. None, and no lane has changed,
        when any lane is too short. Raises ValueError for an owner outside `[0, cp_size)`, TypeError for what are no
        integers. O(n + c log P).
        """
        ranks = self._ranks(owners)
        if ranks.size > self.num_pages:
            self._counts(ranks)
            return None
        size = ranks.size * self.page_size
        if self._copier is not None:
            return self._send(self._copier, ranks, size)
        try:
            slots = empty(size, INT64)
        except (MemoryError, ValueError):
            if self.select_pages(ranks) is None:
                return None
            raise
        return from_numpy(slots) if self._choose(ranks, slots, self.page_size, commit=True) else None

    def select_pages(self, owners: Integers) -> Int64Array | None:
        """Return the page ids that `alloc_pages_with_owners` would take, in request order, or None; nothing changes."""
        ranks = self._ranks(owners)
        page_ids = empty(ranks.size, INT64)
        return page_ids if self._choose(ranks, page_ids, 1, commit=False) else None

    def free(self, slots: Integers) -> int:
        """Give slots back, whole pages in any order; return how many slots were freed.

        The pages join the released sets of their lanes. `slots` is copied before this returns; a device tensor is
        waited for. Raises FreeError, having changed nothing, for a page that is out of range, reserved, incomplete,
        given twice, free or released already. O(n), or O(n log n) for slots that are not in the order of their pages.
        """
        return self._give_back(slots, "slots", self.page_size)

    def return_pages(self, page_ids: Integers) -> int:
        """Give pages back by their ids; return how many. As `free` otherwise."""
        return self._give_back(page_ids, "page_ids", 1)

    def merge_released(self) -> None:
        """Make the released pages of every lane free. O(c P / 64)."""
        _kernels.lane_merge(self._index)

    def compute_owner_lane_stats(self, owners: Integers) -> LaneStats:
        """Return (required, available, deficits) of a request, each a list of `cp_size` page counts.

        `available` counts free and released pages; a deficit is what a lane lacks.
        """
        return self._stats(owners, target_room=0, trigger_room=0)

    def compute_owner_lane_free_room_stats(
        self, owners: Integers, *, target_ratio: float, trigger_ratio: float
    ) -> LaneStats:
        """Return (required, available, deficits) of a request that shall leave room in the lanes.

        A lane that keeps `ceil(capacity * trigger_ratio)` pages has no deficit; the deficit of another is what it lacks
        to keep `ceil(capacity * target_ratio)`. A ratio of 0 or less is no room; one that is not a finite number raises
        TypeError or ValueError.
        """
        target_room = self._room(target_ratio, "target_ratio")
        trigger_room = self._room(trigger_ratio, "trigger_ratio")
        return self._stats(owners, target_room, trigger_room)

    def compute_owner_lane_capacity_pages(self) -> list[int]:
        """Return the pages of each lane, free or not."""
        return [self.physical_pages] * self.cp_size

    def snapshot(self) -> LaneSnapshot:
        """Return an immutable picture of the pool, equal by content to another of the same state. O(c P)."""
        words = _kernels.lane_words(self._index)
        return LaneSnapshot(self.physical_pages, self.page_size, self.cp_size, words.tobytes())

    def restore(self, snapshot: LaneSnapshot) -> None:
        """Bring the pool back to the state of a snapshot; what was handed out since is free again. O(c P).

        Raises TypeError for anything but a snapshot of an OwnerLaneAllocator, ValueError for one of another geometry.
        """
        if not isinstance(snapshot, LaneSnapshot):
            raise TypeError(f"snapshot must be a LaneSnapshot, not {type(snapshot).__name__}")
        theirs = (snapshot.physical_pages, snapshot.page_size, snapshot.cp_size)
        ours = (self.physical_pages, self.page_size, self.cp_size)
        if theirs != ours:
            raise ValueError(
                "the snapshot is of {} pages of {} slots in {} lanes, the pool has {} of {} in {}".format(
                    *theirs, *ours
                )
            )
        words = np.frombuffer(snapshot.page_bits, np.int64).copy()
        rows = 2 * self.cp_size
        row_words = _kernels.CHUNK_WORDS * -(-self.physical_pages // _kernels.CHUNK_PAGES)
        if words.size != rows * row_words:
            raise ValueError(f"the snapshot is damaged: it has {words.size} words of page bits, not {rows * row_words}")
        words = words.reshape(rows, row_words)
        bits = np.unpackbits(words.view(np.uint8), axis=1, bitorder="little")
        if bits[:, self.physical_pages :].any() or (words[: self.cp_size] & words[self.cp_size :]).any():
            raise ValueError("the snapshot is damaged: it has pages beyond the last, or in both sets")
        _kernels.lane_set_words(self._index, words)

    def clear(self) -> None:
        """Make the pool as newly built: every page free, none released. O(c P)."""
        _kernels.lane_clear(self._index, self.physical_pages)

    def check(self) -> None:
        """Assert every invariant of the books, saying what was found where one fails. O(c P)."""
        check_lane_books(_kernels.lane_copy(self._index), self.physical_pages)

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuilt, (type(self), self.device, self.selection, self.snapshot())

    def _send(self, copier: PinnedCopier, ranks: Int64Array, size: int) -> torch.Tensor | None:
        """Choose pages into a pinned buffer and send their slots; where that fails they are released again."""
        taken = []

        def fill(slots: Int64Array) -> bool:
            found = self._choose(ranks, slots, self.page_size, commit=True)
            if found:
                taken.append(slots)
            return found

        try:
            return copier.send_filled(size, fill)
        except BaseException:
            for slots in taken:
                self.free(slots)
            raise

    def _choose(self, ranks: Int64Array, slots: Int64Array, page_size: int, *, commit: bool) -> bool:
        """Write the slots of a page for each rank (their ids where `page_size` is 1); False where they do not fit."""
        contiguous = self.selection == "contiguous"
        found: int = lane_take(self._index, ranks, slots, page_size, contiguous, commit)
        if found < 0:
            self._refuse(ranks)
        return found > 0

    def _ranks(self, owners: Integers) -> Int64Array:
        try:
            return as_int64(owners, "owners")
        except BeyondInt64Error as error:
            raise self._no_rank(error.value) from None

    def _refuse(self, ranks: Int64Array) -> NoReturn:
        raise self._no_rank(ranks[(ranks < 0) | (ranks >= self.cp_size)][0])

    def _no_rank(self, owner: int) -> ValueError:
        return ValueError(f"owners must be ranks from 0 to {self.cp_size - 1}, but include {owner}")

    def _room(self, ratio: object, name: str) -> int:
        room = self.physical_pages * real_number(ratio, name)
        if room > INT64_MAX:
            raise ValueError(f"{name} must be less, but is {ratio}")
        return math.ceil(room) if room > 0 else 0

    def _counts(self, ranks: Int64Array) -> tuple[list[int], list[int]]:
        counts = np.empty(2 * self.cp_size, np.int64)
        if not _kernels.lane_counts(self._index, ranks, counts):
            self._refuse(ranks)
        numbers: list[int] = counts.tolist()
        return numbers[: self.cp_size], numbers[self.cp_size :]

    def _stats(self, owners: Integers, target_room: int, trigger_room: int) -> LaneStats:
        required, available = self._counts(self._ranks(owners))
        deficits = [
            0 if has >= needs + trigger_room else max(0, needs + target_room - has)
            for needs, has in zip(required, available, strict=True)
        ]
        return required, available, deficits

    def _assign(self, name: str, page_ids: Integers, *, released: bool) -> None:
        pages = as_int64(page_ids, name).copy()
        outside = pages[(pages < 1) | (pages > self.num_pages)]
        if outside.size:
            raise ValueError(f"{name} must be page ids from 1 to {self.num_pages}, but include {outside[0]}")
        if (twice := repeated(pages)).size:
            raise ValueError(f"{name} must not repeat a page, but page {twice[0]} is repeated")
        if both := _kernels.lane_assign(self._index, released, pages):
            raise ValueError(f"{name} must not overlap the other set, but page {both} is in it")

    def _give_back(self, slots: Integers, name: str, page_size: int) -> int:
        try:
            array = as_int64(slots, name)
        except BeyondInt64Error as error:
            raise out_of_range(error, page_size) from None
        if not _kernels.lane_give(self._index, array, page_size, self.physical_pages):
            return_in_any_order(
                array,
                page_size,
                range(1, self.num_pages + 1),
                accept=lambda page_ids: bool(_kernels.lane_give(self._index, page_ids, 1, self.physical_pages)),
                is_free=lambda page_ids: _kernels.lane_is_available(self._index, page_ids),
            )
        return array.size


def _rebuilt(
    kind: type[OwnerLaneAllocator], device: torch.device, selection: str, snapshot: LaneSnapshot
) -> OwnerLaneAllocator:
    """Build the pool of a snapshot: what pickle and copy make of an allocator."""
    pool = kind(snapshot.physical_pages, snapshot.page_size, snapshot.cp_size, device=device, selection=selection)
    pool.restore(snapshot)
    return pool
