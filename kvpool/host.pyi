"""The host tier (L2): one pool of pages, handed out in FIFO order or by runs of consecutive pages."""

from typing import Any, Self

import torch

from kvpool._arguments import Int64Array, Integers
from kvpool.snapshots import HostSnapshot, HostStats

class HostAllocator:
    """A pool of `num_pages` pages of `page_size` token slots; page ids run from 0 to `num_pages - 1`."""

    def __init__(self, num_pages: int, page_size: int = 64, *, num_reserved: int = 0) -> None: ...
    @property
    def num_pages(self) -> int: ...
    @property
    def page_size(self) -> int: ...
    @property
    def num_reserved(self) -> int: ...
    @property
    def size(self) -> int: ...
    @classmethod
    def from_size_gb(cls, size_gb: float, *, bytes_per_token: int = 100_000, page_size: int = 64) -> Self:
        """Build the pool that `size_gb` (1e9 bytes) of host memory holds, rounded down to whole pages."""

    def available_size(self) -> int:
        """Return how many slots are free. O(1)."""

    def free_page_ids(self, *, after: int | None = None, limit: int | None = None) -> Int64Array:
        """Return ids of free pages in FIFO order: a copy; those after a free page, and so many at most."""

    def largest_run(self) -> int:
        """Return the length of the longest run of free pages, in pages. O(log N)."""

    def alloc(self, need_size: int) -> torch.Tensor | None:
        """Return the slots of the first pages in FIFO order, `need_size` in all; None if they do not fit. O(n)."""

    def alloc_contiguous_preferred(self, need_size: int) -> torch.Tensor | None:
        """Return `need_size` slots in one run where one is free, else as `alloc`; None if they do not fit."""

    def alloc_fewest_runs(self, need_size: int) -> torch.Tensor | None:
        """Return `need_size` slots in as few runs as any choice of pages has, ascending; None if they do not fit."""

    def alloc_pages(self, num_pages: int, policy: str = "fifo") -> Int64Array | None:
        """Return page ids by "fifo", "contiguous", "fewest_runs" or "one_run"; None if they do not fit."""

    def alloc_runs(self, num_pages: int, policy: str = "fewest_runs") -> tuple[Int64Array, Int64Array] | None:
        """Return what `alloc_pages` would as transfer descriptors: (starts, lengths) of its runs, int64 ndarrays."""

    def alloc_runs_many(
        self, num_pages: Integers, policy: str = "fewest_runs"
    ) -> list[tuple[Int64Array, Int64Array]] | None:
        """Return the (starts, lengths) of many requests, as `alloc_runs` of each in turn; None if one does not fit."""

    def take_pages(self, page_ids: Integers) -> int:
        """Take these very pages out of the free ones, all or none; return how many. TakeError for one not free."""

    def free(self, slots: Integers, *, front: bool = False) -> int:
        """Give slots back, whole pages in any order; return how many. FreeError, and no change, for a wrong page."""

    def return_pages(self, page_ids: Integers, *, front: bool = False) -> int:
        """Give pages back by their ids; return how many. As `free` otherwise."""

    def snapshot(self) -> HostSnapshot:
        """Return the state of the pool: immutable, and equal by content to another of the same. O(N)."""

    def restore(self, snapshot: HostSnapshot) -> None:
        """Bring the pool back to the state of a snapshot; what was handed out since is free again. O(N)."""

    def stats(self) -> HostStats:
        """Return figures of the pool as it is, and of the calls made since it was built. O(N / 64)."""

    def resize(self, num_pages: int) -> None:
        """Make this a pool of `num_pages` pages; a ValueError names pages that would go and are in use. O(N)."""

    def clear(self) -> None:
        """Make the pool as newly built: every page free, in ascending order. O(N)."""

    def check(self) -> None:
        """Assert every invariant of the books, saying what was found where one fails. O(N)."""

    def __reduce__(self) -> tuple[Any, ...]: ...
