"""The host tier (L2): one pool of pages, handed out in FIFO order or by runs of consecutive pages."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Self

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
    count,
    out_of_range,
    pages_for,
    positive_int,
    real_number,
    return_in_any_order,
)
from kvpool._books import check_host_books
from kvpool._kernels import host_give, host_take_contiguous, host_take_fewest_runs, host_take_fifo
from kvpool.runs import page_runs

MAX_PAGES = 2**30 - 1
_POLICIES = {"fifo": host_take_fifo, "contiguous": host_take_contiguous, "fewest_runs": host_take_fewest_runs}


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

    `num_pages`, `page_size` and `size` (slots of the whole pool, free or not) say what was built. Results are fresh and
    own exactly their own elements: torch.int64 tensors of slots, each page's slots ascending, or int64 ndarrays of page
    ids. A request that does not fit returns None. Every method is atomic, and a call that raises has changed nothing.
    Costs are given for n pages of a request and N pages of the pool. They are amortised: a call now and then also pays
    for the pages that others took from the middle of the order, once for each.

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
    size: int

    def __init__(self, num_pages: int, page_size: int = 64) -> None:
        self.num_pages = positive_int(num_pages, "num_pages")
        self.page_size = positive_int(page_size, "page_size")
        if self.num_pages > MAX_PAGES:
            raise ValueError(f"num_pages must be at most {MAX_PAGES}, but is {self.num_pages}")
        self.size = self.num_pages * self.page_size
        if self.size > INT64_MAX:
            raise ValueError(f"{self.num_pages} pages of {self.page_size} slots are more slots than int64 counts")
        self._index, self._queue = _kernels.host_arrays(self.num_pages)
        self.clear()

    @classmethod
    def from_size_gb(cls, size_gb: float, *, bytes_per_token: int = 100_000, page_size: int = 64) -> Self:
        """Build the pool that `size_gb` (1e9 bytes) of host memory holds, rounded down to whole pages.

        >>> HostAllocator.from_size_gb(220).num_pages
        34375
        """
        token_bytes = positive_int(bytes_per_token, "bytes_per_token")
        page_bytes = token_bytes * positive_int(page_size, "page_size")
        size = real_number(size_gb, "size_gb") * 1e9 / page_bytes
        if size > MAX_PAGES:
            raise ValueError(f"size_gb must hold at most {MAX_PAGES} pages of {page_bytes} bytes, but is {size_gb}")
        num_pages = math.floor(size)
        if num_pages < 1:
            raise ValueError(f"size_gb must hold at least one page of {page_bytes} bytes, but is {size_gb}")
        return cls(num_pages, page_size)

    def available_size(self) -> int:
        """Return how many slots are free. O(1)."""
        return int(self._index[_kernels.HOST_BASE + _kernels.FREE]) * self.page_size

    def free_page_ids(self) -> Int64Array:
        """Return the ids of the free pages in FIFO order, the next to be handed out first: a copy. O(N)."""
        return np.array(_kernels.host_order(self._index, self._queue), np.int64)

    def largest_run(self) -> int:
        """Return the length of the longest run of free pages, in pages. O(log N)."""
        return int(_kernels.host_largest_run(self._index))

    def alloc(self, need_size: int) -> torch.Tensor | None:
        """Return the slots of the first pages in FIFO order, `need_size` slots in all; None if they do not fit. O(n).

        Raises ValueError for a size that is negative or not whole pages, TypeError for one that is no integer.
        """
        return self._alloc(need_size, host_take_fifo)

    def alloc_contiguous_preferred(self, need_size: int) -> torch.Tensor | None:
        """Return `need_size` slots in one run where one is free, else as `alloc`; None if they do not fit.

        The first pages in FIFO order are preferred if they are one ascending run; then the lowest-addressed run that is
        long enough, from its low end. The pages that stay free keep their order. Errors as `alloc`. O(n + log N).
        """
        return self._alloc(need_size, host_take_contiguous)

    def alloc_fewest_runs(self, need_size: int) -> torch.Tensor | None:
        """Return `need_size` slots in as few runs as any choice of pages has, ascending; None if they do not fit.

        The smallest run that is long enough, from its low end (the lowest on a tie). Where there is none, the largest
        runs whole while each fits in what is still needed, and the remainder from the smallest unused run that holds
        it. The pages that stay free keep their order. Errors as `alloc`. O(N / 512) to find the run that fits, and
        O(n log n + r log N) for r runs.
        """
        return self._alloc(need_size, host_take_fewest_runs)

    def alloc_pages(self, num_pages: int, policy: str = "fifo") -> Int64Array | None:
        """Return `num_pages` page ids by a policy: "fifo", "contiguous" or "fewest_runs"; None if they do not fit.

        A fresh int64 ndarray in the order of the method that the policy belongs to, at its cost without the slots.
        Raises ValueError for a negative number or an unknown policy, TypeError for a number that is no integer.
        """
        take = _POLICIES.get(policy) if isinstance(policy, str) else None
        if take is None:
            raise ValueError(f'policy must be "fifo", "contiguous" or "fewest_runs", not {policy!r}')
        wanted = count(num_pages, "num_pages")
        if wanted > self.num_pages:
            return None
        page_ids = empty(wanted, INT64)
        if wanted and not take(self._index, self._queue, page_ids, 1):
            return None
        return page_ids

    def alloc_runs(self, num_pages: int, policy: str = "fewest_runs") -> tuple[Int64Array, Int64Array] | None:
        """Return what `alloc_pages` would as transfer descriptors: (starts, lengths) of its runs, int64 ndarrays.

        >>> starts, lengths = HostAllocator(num_pages=8).alloc_runs(3)
        >>> starts.tolist(), lengths.tolist()
        ([0], [3])
        """
        page_ids = self.alloc_pages(num_pages, policy)
        return None if page_ids is None else page_runs(page_ids)

    def free(self, slots: Integers) -> int:
        """Give slots back, whole pages in any order; return how many slots were freed.

        The pages join the FIFO order by their first slot in the call. `slots` is copied before this returns; a device
        tensor is waited for. Raises FreeError, having changed nothing, for a page that is out of range, incomplete,
        given twice or already free; TypeError for what are no integers. O(n), or O(n log n) for slots that are not in
        the order of their pages.
        """
        if type(slots) is torch.Tensor and slots.dtype is torch.int64:
            # The short way, for a contiguous tensor of the CPU; what the kernel does not take goes the longer one.
            try:
                array = slots.numpy()
                if host_give(self._index, self._queue, array, self.page_size):
                    return array.size
            except (TypeError, RuntimeError):
                pass
        return self._give_back(slots, "slots", self.page_size)

    def return_pages(self, page_ids: Integers) -> int:
        """Give pages back by their ids; return how many. As `free` otherwise."""
        return self._give_back(page_ids, "page_ids", 1)

    def snapshot(self) -> HostSnapshot:
        """Return an immutable picture of the pool, equal by content to another of the same state. O(N)."""
        return HostSnapshot(self.num_pages, self.page_size, _kernels.host_order(self._index, self._queue).tobytes())

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
        order = np.frombuffer(snapshot.free_order, np.int32).copy()
        free = np.zeros(self.num_pages, np.bool_)
        free[order[(order >= 0) & (order < self.num_pages)]] = True
        if np.count_nonzero(free) != order.size:
            raise ValueError("the snapshot is damaged: it repeats a page, or holds one that the pool has not")
        _kernels.host_restore(self._index, self._queue, order)

    def clear(self) -> None:
        """Make the pool as newly built: every page free, in ascending order. O(N)."""
        _kernels.host_restore(self._index, self._queue, np.arange(self.num_pages, dtype=np.int32))

    def check(self) -> None:
        """Assert every invariant of the books, saying what was found where one fails. O(N)."""
        check_host_books(*_kernels.host_copy(self._index, self._queue))

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuilt, (type(self), self.snapshot())

    def _alloc(self, need_size: int, take: Callable[..., bool]) -> torch.Tensor | None:
        if type(need_size) is not int or need_size < 0 or need_size % self.page_size:
            need_size = pages_for(need_size, self.page_size) * self.page_size
        if need_size > self.size:
            return None
        try:
            slots = empty(need_size, INT64)
        except (MemoryError, ValueError):
            if need_size > self.available_size():
                return None
            raise
        if need_size and not take(self._index, self._queue, slots, self.page_size):
            return None
        return from_numpy(slots)

    def _give_back(self, slots: Integers, name: str, page_size: int) -> int:
        try:
            array = as_int64(slots, name)
        except BeyondInt64Error as error:
            raise out_of_range(error, page_size) from None
        if not host_give(self._index, self._queue, array, page_size):
            return_in_any_order(
                array,
                page_size,
                range(self.num_pages),
                accept=lambda page_ids: bool(host_give(self._index, self._queue, page_ids, 1)),
                is_free=lambda page_ids: self._queue[page_ids] != _kernels.TAKEN,
            )
        return array.size


def _rebuilt(kind: type[HostAllocator], snapshot: HostSnapshot) -> HostAllocator:
    """Build the pool of a snapshot: what pickle and copy make of an allocator."""
    pool = kind(snapshot.num_pages, snapshot.page_size)
    pool.restore(snapshot)
    return pool
