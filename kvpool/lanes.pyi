"""The device tier (L1) under context parallelism: one pool of logical pages, dealt to ranks in lanes."""

from typing import Any

import torch

from kvpool._arguments import Int64Array, Integers
from kvpool.snapshots import LaneSnapshot

LaneStats = tuple[list[int], list[int], list[int]]

class OwnerLaneAllocator:
    """A pool that `cp_size` ranks share, `physical_pages` pages of `page_size` slots on each."""

    def __init__(
        self,
        physical_pages: int,
        page_size: int = 64,
        cp_size: int = 8,
        *,
        device: str | torch.device = "cpu",
        selection: str = "contiguous",
    ) -> None: ...
    @property
    def physical_pages(self) -> int: ...
    @property
    def page_size(self) -> int: ...
    @property
    def cp_size(self) -> int: ...
    @property
    def device(self) -> torch.device: ...
    @property
    def selection(self) -> str: ...
    @property
    def num_pages(self) -> int:
        """Pages of all lanes, free or not, without the padding page."""

    @property
    def size(self) -> int:
        """Slots of all lanes, free or not, without the padding page."""

    @property
    def free_pages(self) -> torch.Tensor:
        """The free sets: a fresh CPU int64 tensor of logical page ids, lane by lane, ascending. O(c P)."""

    @free_pages.setter
    def free_pages(self, page_ids: Integers) -> None: ...
    @property
    def release_pages(self) -> torch.Tensor:
        """The released sets, as `free_pages`."""

    @release_pages.setter
    def release_pages(self, page_ids: Integers) -> None: ...
    def available_size(self) -> int:
        """Return how many slots are free or released, in all lanes."""

    def schedulable_size(self) -> int:
        """Return how many slots a balanced request can have: `cp_size` times what the shortest lane has."""

    def alloc_pages_with_owners(self, owners: Integers) -> torch.Tensor | None:
        """Return the slots of one page for each entry of `owners`, owned by that rank, in request order, or None."""

    def select_pages(self, owners: Integers) -> Int64Array | None:
        """Return the page ids that `alloc_pages_with_owners` would take, in request order, or None; nothing changes."""

    def free(self, slots: Integers) -> int:
        """Give slots back, whole pages in any order; return how many. FreeError, and no change, for a wrong page."""

    def return_pages(self, page_ids: Integers) -> int:
        """Give pages back by their ids; return how many. As `free` otherwise."""

    def merge_released(self) -> None:
        """Make the released pages of every lane free. O(c P / 64)."""

    def compute_owner_lane_stats(self, owners: Integers) -> LaneStats:
        """Return (required, available, deficits) of a request, each a list of `cp_size` page counts."""

    def compute_owner_lane_free_room_stats(
        self, owners: Integers, *, target_ratio: float, trigger_ratio: float
    ) -> LaneStats:
        """Return (required, available, deficits) of a request that shall leave room in the lanes."""

    def compute_owner_lane_capacity_pages(self) -> list[int]:
        """Return the pages of each lane, free or not."""

    def snapshot(self) -> LaneSnapshot:
        """Return the state of the pool: immutable, and equal by content to another of the same. O(c P)."""

    def restore(self, snapshot: LaneSnapshot) -> None:
        """Bring the pool back to the state of a snapshot; what was handed out since is free again. O(c P)."""

    def clear(self) -> None:
        """Make the pool as newly built: every page free, none released. O(c P)."""

    def check(self) -> None:
        """Assert every invariant of the books, saying what was found where one fails. O(c P)."""

    def __reduce__(self) -> tuple[Any, ...]: ...
