"""The host tier (L2): one pool of pages, handed out in FIFO order or by runs of consecutive pages."""

import math
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Self

import numpy as np
import numpy.typing as npt
import torch

from kvpool._arguments import (
    Int64Array,
    Integers,
    as_returned,
    as_slots,
    check_returned,
    count,
    pages_for,
    pages_of_slots,
    positive_int,
    real_number,
    repeated,
)
from kvpool.runs import page_runs


@dataclass(frozen=True, slots=True)
class HostSnapshot:
    """An immutable picture of a HostAllocator, equal to another of the same geometry and FIFO order."""

    num_pages: int
    page_size: int
    free_order: bytes


class HostAllocator:
    """A pool of `num_pages` pages of `page_size` token slots; page ids run from 0 to `num_pages - 1`.

    Allocation, in slots:  `alloc`, `alloc_contiguous_preferred`, `alloc_fewest_runs`, `free`
    Allocation, in pages:  `alloc_pages`, `alloc_runs`, `return_pages`
    What is free:          `available_size`, `free_page_ids`, `largest_run`
    The whole state:       `snapshot`, `restore`, `clear`, `check`

    Results are fresh and own exactly their own elements: torch.int64 tensors of slots, each page's slots ascending, or
    int64 ndarrays of page ids. A request that does not fit returns None. Every method is atomic, and a call that
    raises has changed nothing. Costs are given for n pages of a request and N pages of the pool.

    >>> pool = HostAllocator(num_pages=4, page_size=2)
    >>> pool.alloc(4)
    tensor([0, 1, 2, 3])
    >>> pool.free([2, 3])
    2
    >>> pool.free_page_ids()
    array([2, 3, 1])
    >>> pool.alloc_contiguous_preferred(6) is None, pool.alloc_fewest_runs(6)
    (False, None)
    """

    num_pages: int
    page_size: int
    _order: list[int]
    _free: set[int]

    def __init__(self, num_pages: int, page_size: int = 64) -> None:
        self.num_pages = positive_int(num_pages, "num_pages")
        self.page_size = positive_int(page_size, "page_size")
        self._lock = threading.RLock()
        self.clear()

    @classmethod
    def from_size_gb(cls, size_gb: float, *, bytes_per_token: int = 100_000, page_size: int = 64) -> Self:
        """Build the pool that `size_gb` (1e9 bytes) of host memory holds, rounded down to whole pages.

        >>> HostAllocator.from_size_gb(220).num_pages
        34375
        """
        token_bytes = positive_int(bytes_per_token, "bytes_per_token")
        page_bytes = token_bytes * positive_int(page_size, "page_size")
        num_pages = math.floor(real_number(size_gb, "size_gb") * 1e9 / page_bytes)
        if num_pages < 1:
            raise ValueError(f"size_gb must hold at least one page of {page_bytes} bytes, but is {size_gb}")
        return cls(num_pages, page_size)

    @property
    def size(self) -> int:
        """Slots of the whole pool, free or not."""
        return self.num_pages * self.page_size

    def available_size(self) -> int:
        """Return how many slots are free."""
        return len(self._order) * self.page_size

    def free_page_ids(self) -> Int64Array:
        """Return the ids of the free pages in FIFO order, the next to be handed out first: a copy. O(N)."""
        with self._lock:
            return np.array(self._order, np.int64)

    def largest_run(self) -> int:
        """Return the length of the longest run of free pages, in pages."""
        return max((length for _, length in self._free_runs()), default=0)

    def alloc(self, need_size: int) -> torch.Tensor | None:
        """Return the slots of the first pages in FIFO order, `need_size` slots in all; None if they do not fit."""
        return self._alloc(need_size, self._fifo)

    def alloc_contiguous_preferred(self, need_size: int) -> torch.Tensor | None:
        """Return `need_size` slots in one run where one is free, else as `alloc`; None if they do not fit.

        The first pages in FIFO order are preferred if they are one ascending run; then the lowest-addressed run that is
        long enough, from its low end. The pages that stay free keep their order.
        """
        return self._alloc(need_size, self._contiguous)

    def alloc_fewest_runs(self, need_size: int) -> torch.Tensor | None:
        """Return `need_size` slots in as few runs as any choice of pages has, ascending; None if they do not fit.

        The smallest run that is long enough, from its low end (the lowest on a tie). Where there is none, the largest
        runs whole while each fits in what is still needed, and the remainder from the smallest unused run that holds
        it. The pages that stay free keep their order.
        """
        return self._alloc(need_size, self._fewest_runs)

    def alloc_pages(self, num_pages: int, policy: str = "fifo") -> Int64Array | None:
        """Return `num_pages` page ids by a policy: "fifo", "contiguous" or "fewest_runs"; None if they do not fit."""
        policies = {"fifo": self._fifo, "contiguous": self._contiguous, "fewest_runs": self._fewest_runs}
        if policy not in policies:
            raise ValueError(f'policy must be "fifo", "contiguous" or "fewest_runs", not {policy!r}')
        return self._take(count(num_pages, "num_pages"), policies[policy])

    def alloc_runs(self, num_pages: int, policy: str = "fewest_runs") -> tuple[Int64Array, Int64Array] | None:
        """Return what `alloc_pages` would as transfer descriptors: (starts, lengths) of its runs, int64 ndarrays."""
        page_ids = self.alloc_pages(num_pages, policy)
        return None if page_ids is None else page_runs(page_ids)

    def free(self, slots: Integers) -> int:
        """Give slots back, whole pages in any order; return how many slots were freed.

        The pages join the FIFO order by their first slot in the call. `slots` is copied before this returns; a device
        tensor is waited for. Raises FreeError, having changed nothing, for a page that is out of range, incomplete,
        given twice or already free.
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

    def snapshot(self) -> HostSnapshot:
        """Return an immutable picture of the pool, equal by content to another of the same state. O(N)."""
        return HostSnapshot(self.num_pages, self.page_size, self.free_page_ids().astype(np.int32).tobytes())

    def restore(self, snapshot: HostSnapshot) -> None:
        """Bring the pool back to the state of a snapshot; what was handed out since is free again. O(N).

        Raises TypeError for anything but a snapshot of a HostAllocator, ValueError for one of another geometry.
        """
        if not isinstance(snapshot, HostSnapshot):
            raise TypeError(f"snapshot must be a HostSnapshot, not {type(snapshot).__name__}")
        if (snapshot.num_pages, snapshot.page_size) != (self.num_pages, self.page_size):
            raise ValueError(
                f"the snapshot is of {snapshot.num_pages} pages of {snapshot.page_size} slots, "
                f"the pool has {self.num_pages} of {self.page_size}"
            )
        order = np.frombuffer(snapshot.free_order, np.int32).tolist()
        with self._lock:
            self._order = order
            self._free = set(order)

    def clear(self) -> None:
        """Make the pool as newly built: every page free, in ascending order. O(N)."""
        with self._lock:
            self._order = list(range(self.num_pages))
            self._free = set(self._order)

    def check(self) -> None:
        """Assert every invariant of the books, saying what was found where one fails. O(N)."""
        with self._lock:
            assert len(self._order) == len(self._free), f"{len(self._order)} in order, {len(self._free)} free"
            assert set(self._order) == self._free, f"order and free set differ: {self._free ^ set(self._order)}"
            assert all(0 <= page < self.num_pages for page in self._free), f"ids out of range: {self._free}"

    def _alloc(self, need_size: object, choose: Callable[[int], list[int]]) -> torch.Tensor | None:
        page_ids = self._take(pages_for(need_size, self.page_size), choose)
        return None if page_ids is None else as_slots(page_ids, self.page_size)

    def _take(self, num_pages: int, choose: Callable[[int], list[int]]) -> Int64Array | None:
        with self._lock:
            if num_pages > len(self._order):
                return None
            page_ids = choose(num_pages)
            self._free.difference_update(page_ids)
            self._order = [page for page in self._order if page in self._free]
        return np.array(page_ids, np.int64)

    def _fifo(self, num_pages: int) -> list[int]:
        return self._order[:num_pages]

    def _contiguous(self, num_pages: int) -> list[int]:
        head = self._order[:num_pages]
        if not head or head == list(range(head[0], head[0] + num_pages)):
            return head
        for start, length in self._free_runs():
            if length >= num_pages:
                return list(range(start, start + num_pages))
        return head

    def _fewest_runs(self, num_pages: int) -> list[int]:
        runs = self._free_runs()
        chosen: list[int] = []
        while num_pages:
            long_enough = [run for run in runs if run[1] >= num_pages]
            if long_enough:
                start, length = min(long_enough, key=lambda run: (run[1], run[0]))
            else:
                start, length = max(runs, key=lambda run: (run[1], -run[0]))
                runs.remove((start, length))
            taken = min(length, num_pages)
            chosen.extend(range(start, start + taken))
            num_pages -= taken
        return sorted(chosen)

    def _free_runs(self) -> list[tuple[int, int]]:
        with self._lock:
            free = np.array(sorted(self._order), np.int64)
        starts, lengths = page_runs(free)
        return list(zip(starts.tolist(), lengths.tolist(), strict=True))

    def _give_back(self, page_ids: Int64Array, incomplete: Int64Array, twice: Int64Array) -> None:
        def is_free(pages: Int64Array) -> npt.NDArray[np.bool_]:
            return np.array([page in self._free for page in pages.tolist()], np.bool_)

        with self._lock:
            check_returned(page_ids, incomplete, twice, range(self.num_pages), is_free)
            self._order.extend(page_ids.tolist())
            self._free.update(page_ids.tolist())
