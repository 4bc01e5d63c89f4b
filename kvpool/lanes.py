"""The device tier (L1) under context parallelism: one pool of logical pages, dealt to ranks in lanes."""

import bisect
import math
import threading
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from kvpool._arguments import (
    Int64Array,
    Integers,
    as_int64,
    as_returned,
    as_slots,
    check_returned,
    pages_of_slots,
    positive_int,
    real_number,
    repeated,
)

LaneStats = tuple[list[int], list[int], list[int]]


@dataclass(frozen=True, slots=True)
class LaneSnapshot:
    """An immutable picture of an OwnerLaneAllocator, equal to another of the same geometry and page states."""

    physical_pages: int
    page_size: int
    cp_size: int
    free_pages: bytes
    release_pages: bytes


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
    the CPU; slots are returned on `device`, by one host-to-device copy. Every method is atomic, and a call that raises
    has changed nothing. Costs are given for n owners of a request, c lanes and P pages of a lane.

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
    _free: list[list[int]]
    _released: list[list[int]]

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
        if selection not in ("contiguous", "fifo"):
            raise ValueError(f'selection must be "contiguous" or "fifo", not {selection!r}')
        self.selection = selection
        self._lock = threading.RLock()
        self.clear()

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
        with self._lock:
            return torch.from_numpy(self._logical(self._free))

    @free_pages.setter
    def free_pages(self, page_ids: Integers) -> None:
        with self._lock:
            self._free = self._replacement("free_pages", page_ids, self._released)

    @property
    def release_pages(self) -> torch.Tensor:
        """The released sets, as `free_pages`."""
        with self._lock:
            return torch.from_numpy(self._logical(self._released))

    @release_pages.setter
    def release_pages(self, page_ids: Integers) -> None:
        with self._lock:
            self._released = self._replacement("release_pages", page_ids, self._free)

    def available_size(self) -> int:
        """Return how many slots are free or released, in all lanes."""
        with self._lock:
            return sum(self._available()) * self.page_size

    def schedulable_size(self) -> int:
        """Return how many slots a balanced request can have: `cp_size` times what the shortest lane has."""
        with self._lock:
            return min(self._available()) * self.cp_size * self.page_size

    def alloc_pages_with_owners(self, owners: Integers) -> torch.Tensor | None:
        """Return the slots of one page for each entry of `owners`, owned by that rank, in request order.

        The first entry of a rank gets the first page taken from its lane, and so on. None, and no lane has changed,
        when any lane is too short. Raises ValueError for an owner outside `[0, cp_size)`.
        """
        ranks = self._ranks(owners)
        with self._lock:
            page_ids = self._select(ranks)
            if page_ids is None:
                return None
            for page in page_ids.tolist():
                lane, index = (page - 1) % self.cp_size, (page - 1) // self.cp_size
                (self._free if index in self._free[lane] else self._released)[lane].remove(index)
        return as_slots(page_ids, self.page_size).to(self.device)

    def select_pages(self, owners: Integers) -> Int64Array | None:
        """Return the page ids that `alloc_pages_with_owners` would take, in request order, or None; nothing changes."""
        ranks = self._ranks(owners)
        with self._lock:
            return self._select(ranks)

    def free(self, slots: Integers) -> int:
        """Give slots back, whole pages in any order; return how many slots were freed.

        The pages join the released sets of their lanes. `slots` is copied before this returns; a device tensor is
        waited for. Raises FreeError, having changed nothing, for a page that is out of range, reserved, incomplete,
        given twice, free or released already.
        """
        array = as_returned(slots, "slots", self.page_size)
        page_ids, incomplete, twice = pages_of_slots(array, self.page_size)
        self._give_back(page_ids, incomplete, twice)
        return array.size

    def return_pages(self, page_ids: Integers) -> int:
        """Give pages back by their ids; return how many. As `free` otherwise."""
        pages = as_returned(page_ids, "page_ids", 1)
        self._give_back(pages, pages[:0], repeated(pages))
        return pages.size

    def merge_released(self) -> None:
        """Make the released pages of every lane free."""
        with self._lock:
            self._free = [sorted(free + released) for free, released in zip(self._free, self._released, strict=True)]
            self._released = [[] for _ in range(self.cp_size)]

    def compute_owner_lane_stats(self, owners: Integers) -> LaneStats:
        """Return (required, available, deficits) of a request, each a list of `cp_size` page counts.

        `available` counts free and released pages; a deficit is what a lane lacks.
        """
        ranks = self._ranks(owners)
        return self._stats(ranks, target_room=0, trigger_room=0)

    def compute_owner_lane_free_room_stats(
        self, owners: Integers, *, target_ratio: float, trigger_ratio: float
    ) -> LaneStats:
        """Return (required, available, deficits) of a request that shall leave room in the lanes.

        A lane that keeps `ceil(capacity * trigger_ratio)` pages has no deficit; the deficit of another is what it lacks
        to keep `ceil(capacity * target_ratio)`. A ratio of 0 or less is no room; one that is not a finite number raises
        TypeError or ValueError.
        """
        ranks = self._ranks(owners)
        target_room = self._room(target_ratio, "target_ratio")
        trigger_room = self._room(trigger_ratio, "trigger_ratio")
        return self._stats(ranks, target_room, trigger_room)

    def compute_owner_lane_capacity_pages(self) -> list[int]:
        """Return the pages of each lane, free or not."""
        return [self.physical_pages] * self.cp_size

    def snapshot(self) -> LaneSnapshot:
        """Return an immutable picture of the pool, equal by content to another of the same state. O(c P)."""
        with self._lock:
            sets = [self._logical(pages).tobytes() for pages in (self._free, self._released)]
        return LaneSnapshot(self.physical_pages, self.page_size, self.cp_size, *sets)

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
        free = self._lanes(np.frombuffer(snapshot.free_pages, np.int64))
        released = self._lanes(np.frombuffer(snapshot.release_pages, np.int64))
        with self._lock:
            self._free, self._released = free, released

    def clear(self) -> None:
        """Make the pool as newly built: every page free, none released. O(c P)."""
        with self._lock:
            self._free = [list(range(self.physical_pages)) for _ in range(self.cp_size)]
            self._released = [[] for _ in range(self.cp_size)]

    def check(self) -> None:
        """Assert every invariant of the books, saying what was found where one fails. O(c P)."""
        with self._lock:
            for rank, (free, released) in enumerate(zip(self._free, self._released, strict=True)):
                for name, pages in (("free", free), ("released", released)):
                    assert pages == sorted(set(pages)), f"rank {rank}: {name} pages not ascending: {pages}"
                    assert all(0 <= page < self.physical_pages for page in pages), f"rank {rank}: {name} {pages}"
                both = set(free) & set(released)
                assert not both, f"rank {rank}: pages both free and released: {both}"

    def _ranks(self, owners: Integers) -> Int64Array:
        ranks = as_int64(owners, "owners")
        outside = (ranks < 0) | (ranks >= self.cp_size)
        if outside.any():
            raise ValueError(f"owners must be ranks from 0 to {self.cp_size - 1}, but include {ranks[outside][0]}")
        return ranks

    def _room(self, ratio: object, name: str) -> int:
        return max(0, math.ceil(self.physical_pages * real_number(ratio, name)))

    def _available(self) -> list[int]:
        return [len(free) + len(released) for free, released in zip(self._free, self._released, strict=True)]

    def _stats(self, ranks: Int64Array, target_room: int, trigger_room: int) -> LaneStats:
        required = np.bincount(ranks, minlength=self.cp_size).tolist()
        with self._lock:
            available = self._available()
        deficits = [
            0 if has >= needs + trigger_room else max(0, needs + target_room - has)
            for needs, has in zip(required, available, strict=True)
        ]
        return required, available, deficits

    def _select(self, ranks: Int64Array) -> Int64Array | None:
        page_ids = np.empty(ranks.size, np.int64)
        for rank in range(self.cp_size):
            positions = np.flatnonzero(ranks == rank)
            indexes = self._select_in_lane(rank, positions.size)
            if indexes is None:
                return None
            page_ids[positions] = np.array(indexes, np.int64) * self.cp_size + rank + 1
        return page_ids

    def _select_in_lane(self, rank: int, demand: int) -> list[int] | None:
        free, released = self._free[rank], self._released[rank]
        if demand > len(free) + len(released):
            return None
        if self.selection == "contiguous":
            for first in range(len(free) - demand + 1):
                if demand and free[first + demand - 1] - free[first] == demand - 1:
                    return free[first : first + demand]
        return free[:demand] + released[: max(0, demand - len(free))]

    def _logical(self, lanes: list[list[int]]) -> Int64Array:
        pages = [np.array(lane, np.int64) * self.cp_size + rank + 1 for rank, lane in enumerate(lanes)]
        return np.concatenate(pages)

    def _lanes(self, page_ids: Int64Array) -> list[list[int]]:
        owner, index = (page_ids - 1) % self.cp_size, (page_ids - 1) // self.cp_size
        return [np.sort(index[owner == rank]).tolist() for rank in range(self.cp_size)]

    def _replacement(self, name: str, page_ids: Integers, other: list[list[int]]) -> list[list[int]]:
        pages = as_int64(page_ids, name)
        outside = pages[(pages < 1) | (pages > self.num_pages)]
        if outside.size:
            raise ValueError(f"{name} must be page ids from 1 to {self.num_pages}, but include {outside[0]}")
        if (twice := repeated(pages)).size:
            raise ValueError(f"{name} must not repeat a page, but page {twice[0]} is repeated")
        if (both := np.intersect1d(pages, self._logical(other))).size:
            raise ValueError(f"{name} must not overlap the other set, but page {both[0]} is in it")
        return self._lanes(pages)

    def _give_back(self, page_ids: Int64Array, incomplete: Int64Array, twice: Int64Array) -> None:
        def is_free(pages: Int64Array) -> npt.NDArray[np.bool_]:
            return np.isin(pages, np.concatenate((self._logical(self._free), self._logical(self._released))))

        with self._lock:
            check_returned(page_ids, incomplete, twice, range(1, self.num_pages + 1), is_free)
            for page in page_ids.tolist():
                bisect.insort(self._released[(page - 1) % self.cp_size], (page - 1) // self.cp_size)
