"""What the contract suite needs to treat both allocators alike, and the kinds of input that they take."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from kvpool import HostAllocator, OwnerLaneAllocator, PagedAllocator

INPUTS: dict[str, Callable[[list[int]], Any]] = {
    "list": list,
    "tuple": tuple,
    "int64 tensor": lambda values: torch.tensor(values, dtype=torch.int64),
    "int32 tensor": lambda values: torch.tensor(values, dtype=torch.int32),
    "strided tensor": lambda values: torch.tensor(values, dtype=torch.int64).repeat_interleave(3)[::3],
    "int64 ndarray": lambda values: np.array(values, np.int64),
    "int32 ndarray": lambda values: np.array(values, np.int32),
    "uint64 ndarray": lambda values: np.array(values, np.uint64),
    "big-endian ndarray": lambda values: np.array(values, ">i8"),
    "strided ndarray": lambda values: np.repeat(np.array(values, np.int64), 2)[::2],
    "read-only ndarray": lambda values: np.frombuffer(np.array(values, np.int64).tobytes(), np.int64),
    "list of numpy ints": lambda values: [np.int32(value) for value in values],
}


@dataclass(frozen=True)
class Kind:
    """One configuration of an allocator: how to build a pool of 24 pages, and what its page ids are."""

    name: str
    page_size: int
    build: Callable[[], Any]
    page_ids: range
    policies: tuple[str, ...]

    def take(self, pool: Any, n: int, policy: str | None = None) -> torch.Tensor | None:
        if isinstance(pool, OwnerLaneAllocator):
            return pool.alloc_pages_with_owners([i % pool.cp_size for i in range(n)])
        if isinstance(pool, PagedAllocator):
            return pool.alloc(n * pool.page_size)
        method = {"fifo": pool.alloc, "contiguous": pool.alloc_contiguous_preferred}
        return method.get(policy or "fifo", pool.alloc_fewest_runs)(n * pool.page_size)

    def slots(self, page_ids: list[int]) -> list[int]:
        return [page * self.page_size + offset for page in page_ids for offset in range(self.page_size)]


def _host(page_size: int) -> Kind:
    return Kind(
        f"host-{page_size}",
        page_size,
        lambda: HostAllocator(24, page_size),
        range(24),
        ("fifo", "contiguous", "fewest_runs"),
    )


def _lanes(page_size: int, cp_size: int, selection: str) -> Kind:
    return Kind(
        f"lanes-{page_size}-cp{cp_size}-{selection}",
        page_size,
        lambda: OwnerLaneAllocator(24 // cp_size, page_size, cp_size, selection=selection),
        range(1, 25),
        (selection,),
    )


def _paged(page_size: int, order: str) -> Kind:
    return Kind(
        f"paged-{page_size}-{order}",
        page_size,
        lambda: PagedAllocator(24, page_size, order=order),
        range(1, 25),
        (order,),
    )


HOST = [_host(page_size) for page_size in (1, 64)]
LANES = [
    _lanes(page_size, cp_size, selection)
    for page_size in (1, 64)
    for cp_size in (1, 3, 8)
    for selection in ("fifo", "contiguous")
]
PAGED = [_paged(page_size, order) for page_size in (1, 64) for order in ("fifo", "lifo", "sorted")]
KINDS = HOST + LANES + PAGED
