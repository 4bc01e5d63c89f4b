"""The device tier (L1) of one rank: one pool of pages, at the addresses that an engine's own has."""

from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from kvpool._arguments import Int64Array, Integers
from kvpool.snapshots import PagedSnapshot

class PagedAllocator:
    """A pool of `num_pages` pages of `page_size` token slots, with ids from 1 on; page 0 is padding."""

    def __init__(
        self, num_pages: int, page_size: int, *, device: str | torch.device = "cpu", order: str = "fifo"
    ) -> None: ...
    @property
    def num_pages(self) -> int: ...
    @property
    def page_size(self) -> int: ...
    @property
    def size(self) -> int: ...
    @property
    def device(self) -> torch.device: ...
    @property
    def order(self) -> str: ...
    @property
    def free_pages(self) -> torch.Tensor:
        """The ids of the free pages, the next to be handed out first: a fresh CPU int64 tensor. O(N)."""

    def available_size(self) -> int:
        """Return how many slots are free or released. O(1)."""

    def alloc(self, need_size: int) -> torch.Tensor | None:
        """Return the slots of the next pages, `need_size` slots in all; None if they do not fit. O(n)."""

    def alloc_pages(self, num_pages: int) -> Int64Array | None:
        """Return the ids of the next `num_pages` pages, a fresh int64 ndarray; None if they do not fit. O(n)."""

    def alloc_extend(self, prefix_lens: Integers, seq_lens: Integers, last_slots: Integers) -> torch.Tensor | None:
        """Return the slots of requests that grow from `prefix_lens` to `seq_lens` tokens; None if they do not fit."""

    def alloc_decode(self, seq_lens: Integers, last_slots: Integers) -> torch.Tensor | None:
        """Return one slot for each request, the last of its `seq_lens` tokens; None if they do not fit."""

    def free(self, slots: Integers, *, partial: bool = False, deferred: bool = False) -> int:
        """Give slots back, whole pages in any order; return how many. FreeError, and no change, for a wrong page."""

    def free_rows(self, slots: torch.Tensor | npt.NDArray[np.integer[Any]], lengths: Integers) -> int:
        """Give back the first `lengths[i]` slots of each row i of a two-dimensional table; return how many in all."""

    def return_pages(self, page_ids: Integers, *, deferred: bool = False) -> int:
        """Give pages back by their ids, in this order also in a "lifo" pool; return how many. As `free` otherwise."""

    def free_group_begin(self) -> None:
        """Begin a group of frees: pages that are given back from here on become free at its end, together."""

    def free_group_end(self) -> None:
        """End the group of frees: its pages become free as those of one call, if a group is open. O(n log n)."""

    def snapshot(self) -> PagedSnapshot:
        """Return the state of the pool: immutable, and equal by content to another of the same. O(N)."""

    def restore(self, snapshot: PagedSnapshot) -> None:
        """Bring the pool back to the state of a snapshot; what was handed out since is free again. O(N)."""

    def clear(self) -> None:
        """Make the pool as newly built: all pages free, ascending, no group open, and nothing outstanding. O(N)."""

    def check(self) -> None:
        """Assert every invariant of the books, saying what was found where one fails. O(N)."""

    def __reduce__(self) -> tuple[Any, ...]: ...
