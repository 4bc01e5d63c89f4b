"""Allocators in a known state: the one place where benchmarks and sweeps build them and choose what to call.

What the installed kvpool does not have raises NotImplementedError, which asv shows as n/a.
"""

import importlib.util
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from benchmarks import workloads

try:
    from kvpool import HostAllocator
except ImportError:
    HostAllocator = None
try:
    from kvpool import OwnerLaneAllocator
except ImportError:
    OwnerLaneAllocator = None

try:
    from kvpool import PageCounts
except ImportError:
    PageCounts = None

try:
    from kvpool import PagedAllocator
except ImportError:
    PagedAllocator = None

HOST_METHODS = {"fifo": "alloc", "contiguous": "alloc_contiguous_preferred", "fewest_runs": "alloc_fewest_runs"}
SELECTIONS = ("contiguous", "fifo")
PAGE_ORDERS = ("fifo", "lifo", "sorted")


def feature(owner: object, name: str) -> Any:
    """Return an attribute of an allocator that some commits do not have."""
    try:
        return getattr(owner, name)
    except AttributeError:
        raise NotImplementedError(f"this kvpool has no {name}") from None


def need_indexed(reason: str) -> None:
    """Refuse a straightforward allocator: the first indexed ones were numba kernels, the later are extension types."""
    if HostAllocator is None:
        raise NotImplementedError("this kvpool has no HostAllocator")
    if not any(importlib.util.find_spec(f"kvpool.{name}") for name in ("_kernels", "_run_index")):
        raise NotImplementedError(reason)


def host_pool(num_pages: int, page_size: int) -> Any:
    """Build a host pool, all free."""
    if HostAllocator is None:
        raise NotImplementedError("this kvpool has no HostAllocator")
    return HostAllocator(num_pages, page_size)


def lane_pool(physical_pages: int, page_size: int, cp_size: int, selection: str, device: str = "cpu") -> Any:
    """Build a device pool of `cp_size` lanes, all free."""
    if OwnerLaneAllocator is None:
        raise NotImplementedError("this kvpool has no OwnerLaneAllocator")
    return OwnerLaneAllocator(physical_pages, page_size, cp_size, device=device, selection=selection)


def paged_pool(num_pages: int, page_size: int, order: str, device: str = "cpu") -> Any:
    """Build a device pool of one rank, all free."""
    if PagedAllocator is None:
        raise NotImplementedError("this kvpool has no PagedAllocator")
    return PagedAllocator(num_pages, page_size, device=device, order=order)


def page_counts(num_pages: int) -> Any:
    """Build reference counts, all 0."""
    if PageCounts is None:
        raise NotImplementedError("this kvpool has no PageCounts")
    return PageCounts(num_pages)


def arrange_host(pool: Any, free_order: np.ndarray) -> None:
    """Bring an all-free host pool to a state in which just these pages are free, in this FIFO order."""
    feature(pool, "alloc_pages")(pool.num_pages)
    feature(pool, "return_pages")(free_order)


def arrange_paged(pool: Any, page_order: np.ndarray) -> None:
    """Give the pages of an all-free pool of one rank back in this order, three quarters of them; counted from 0.

    In sorted order the last quarter of all is released, and not free.
    """
    quarter = pool.num_pages // 4
    pool.alloc_pages(pool.num_pages)
    pool.return_pages(page_order[: 2 * quarter] + 1)
    # One that does not fit has the pages that were released become free.
    pool.alloc_pages(pool.num_pages)
    pool.return_pages(page_order[2 * quarter : 3 * quarter] + 1)


def settle(pool: Any) -> None:
    """Have a pool bring its lazy books up to date, which is not what is timed."""
    feature(pool, "largest_run")()


def lane_page_ids(indexes: Sequence[np.ndarray]) -> np.ndarray:
    """Return the logical page ids of physical pages given by index, lane by lane."""
    return np.concatenate([index * len(indexes) + rank + 1 for rank, index in enumerate(indexes)])


def free_sets(pattern: str, lane_pages: int, cp_size: int, owners: np.ndarray, seed: int) -> list[np.ndarray]:
    """Return for each lane the indexes of its free pages, made for what `owners` ask of it."""
    demands = np.bincount(owners, minlength=cp_size).tolist()
    indexes = [workloads.FREE_PATTERNS[pattern](lane_pages, demand, seed, rank) for rank, demand in enumerate(demands)]
    if any(index is None for index in indexes):
        raise NotImplementedError(f"a lane of {lane_pages} pages has no {pattern} set for these owners")
    return indexes


def arrange_lanes(pool: Any, pattern: str, owners: np.ndarray, seed: int) -> None:
    """Bring each lane of a newly built pool to a free set made for what `owners` ask of it; the rest is allocated."""
    indexes = free_sets(pattern, pool.physical_pages, pool.cp_size, owners, seed)
    pool.free_pages = torch.from_numpy(lane_page_ids(indexes))


def host_method(pool: Any, method: str) -> Callable[[int], torch.Tensor | None]:
    """Return the bound method of a host pool that allocates slots."""
    return feature(pool, HOST_METHODS[method])
