"""SGLang's own device allocators and PagedAllocator side by side, address for address, where SGLang is installed.

`make peers` runs this in an environment that has it. The engine's classes are imported as they are; each line of SIDES
is one of its settings, and the order of PagedAllocator that is to have its addresses.
"""

import numpy as np
import pytest
import torch

from benchmarks import peers
from tests.paged_traffic import OPERATIONS, Ours, Traffic

STEPS = 10_000
PAGED = ("sglang.srt.mem_cache.allocator.paged", "PagedTokenToKVPoolAllocator")
TOKEN = ("sglang.srt.mem_cache.allocator.token", "TokenToKVPoolAllocator")
SIDES = [
    ("fifo", TOKEN, 1, False),
    ("sorted", TOKEN, 1, True),
    *(("lifo", PAGED, page_size, False) for page_size in (1, 4, 16, 64)),
    *(("sorted", PAGED, page_size, True) for page_size in (4, 16, 64)),
]


def listed(slots: torch.Tensor | None) -> list[int] | None:
    return None if slots is None else slots.tolist()


class Theirs:
    """An allocator of the engine, on the CPU."""

    def __init__(self, source: tuple[str, str], num_pages: int, page_size: int, need_sort: bool) -> None:
        kind = peers.class_of("sglang", *source)
        self.paged = source == PAGED
        sizes = (num_pages * page_size, page_size) if self.paged else (num_pages,)
        self.pool = kind(*sizes, torch.float16, "cpu", None, need_sort)
        self.pool.debug_mode = True
        self.page_size = page_size
        self.begin, self.end, self.clear = self.pool.free_group_begin, self.pool.free_group_end, self.pool.clear

    def alloc(self, pages: int) -> list[int] | None:
        return listed(self.pool.alloc(pages * self.page_size))

    def extend(self, prefixes: list[int], lengths: list[int], lasts: list[int]) -> list[int] | None:
        size = sum(lengths) - sum(prefixes)
        if not self.paged:
            return self.alloc(size)
        before, after = torch.tensor(prefixes, dtype=torch.int64), torch.tensor(lengths, dtype=torch.int64)
        return listed(self.pool.alloc_extend(before, before, after, after, torch.tensor(lasts), size))

    def decode(self, lengths: list[int], lasts: list[int]) -> list[int] | None:
        # Pages of one slot are the other class's, which knows no requests; this one takes none for them.
        if self.page_size == 1:
            return self.alloc(len(lengths))
        after = torch.tensor(lengths, dtype=torch.int64)
        return listed(self.pool.alloc_decode(after, after, torch.tensor(lasts)))

    def free(self, slots: list[int]) -> None:
        self.pool.free(torch.tensor(slots, dtype=torch.int64))

    def return_pages(self, page_ids: list[int]) -> None:
        self.pool.free_page_ids(torch.tensor(page_ids, dtype=torch.int64))

    def free_sets(self) -> tuple[list[int], list[int]]:
        free = self.pool.free_pages.tolist()
        everything = self.pool.get_all_free_pages().tolist()
        assert everything[: len(free)] == free
        assert self.pool.available_size() == len(everything) * self.page_size
        return free, sorted(everything[len(free) :])


@pytest.mark.parametrize(("order", "source", "page_size", "need_sort"), SIDES)
@pytest.mark.parametrize("num_pages", [24, 300])
def test_ten_thousand_operations(
    order: str, source: tuple[str, str], page_size: int, need_sort: bool, num_pages: int
) -> None:
    try:
        theirs = Theirs(source, num_pages, page_size, need_sort)
    except peers.MissingPeerError as missing:
        pytest.skip(str(missing))
    random = np.random.Generator(np.random.PCG64([page_size, num_pages]))

    def draw(below: int) -> int:
        return int(random.integers(below))

    ours = Ours(num_pages, page_size, order)
    traffic = Traffic(ours, theirs, page_size, draw)
    weights = np.array(list(OPERATIONS.values()))
    for step, chosen in enumerate(random.choice(len(weights), STEPS, p=weights / weights.sum())):
        list(OPERATIONS)[chosen](traffic)
        traffic.same_pages_are_free()
        if step % 1_000 == 999:
            ours.pool.check()
        if step % 3_000 == 2_999:
            traffic.clear()
    assert min(traffic.counts) > 100, traffic.counts
