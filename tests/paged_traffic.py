"""What an engine asks of the device tier of one rank, asked of two pools side by side, address for address."""

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
import torch

from kvpool import PagedAllocator


class Side(Protocol):
    """A pool behind what `Traffic` calls; slots and page ids are lists."""

    def alloc(self, pages: int) -> list[int] | None: ...
    def extend(self, prefixes: list[int], lengths: list[int], lasts: list[int]) -> list[int] | None: ...
    def decode(self, lengths: list[int], lasts: list[int]) -> list[int] | None: ...
    def free(self, slots: list[int]) -> None: ...
    def return_pages(self, page_ids: list[int]) -> None: ...
    def begin(self) -> None: ...
    def end(self) -> None: ...
    def clear(self) -> None: ...
    def free_sets(self) -> tuple[list[int], list[int]]:
        """Return the free pages in their order and the released ones, ascending."""


class Ours:
    """A PagedAllocator."""

    def __init__(self, num_pages: int, page_size: int, order: str, device: str = "cpu") -> None:
        self.pool = PagedAllocator(num_pages, page_size, device=device, order=order)
        self.begin, self.end, self.clear = self.pool.free_group_begin, self.pool.free_group_end, self.pool.clear

    def settled(self, slots: torch.Tensor | None) -> list[int] | None:
        return None if slots is None else slots.tolist()

    def alloc(self, pages: int) -> list[int] | None:
        return self.settled(self.pool.alloc(pages * self.pool.page_size))

    def extend(self, *arguments: list[int]) -> list[int] | None:
        return self.settled(self.pool.alloc_extend(*arguments))

    def decode(self, *arguments: list[int]) -> list[int] | None:
        return self.settled(self.pool.alloc_decode(*map(np.array, arguments)))

    def free(self, slots: list[int]) -> None:
        assert self.pool.free(torch.tensor(slots), partial=True) == len(slots)

    def return_pages(self, page_ids: list[int]) -> None:
        assert self.pool.return_pages(page_ids) == len(page_ids)

    def free_sets(self) -> tuple[list[int], list[int]]:
        snapshot = self.pool.snapshot()
        sets = (np.frombuffer(each, np.int32).tolist() for each in (snapshot.free_pages, snapshot.released_pages))
        free, released = sets
        assert self.pool.free_pages.tolist() == free + released
        assert self.pool.available_size() == len(free + released) * self.pool.page_size
        return free, released


class Traffic:
    """Requests that two pools serve alike: they begin, grow, decode, lose their end and finish.

    Each method is one operation; `draw(n)` returns a number below n.
    """

    def __init__(self, ours: Side, theirs: Side, page_size: int, draw: Callable[[int], int]) -> None:
        self.sides, self.page_size, self.draw = (ours, theirs), page_size, draw
        self.requests: list[list[int]] = []
        # Whole pages that belong to no request.
        self.blocks: list[list[int]] = []
        self.grouped = False
        #: How many calls were served, and how many refused.
        self.counts = [0, 0]

    def both(self, method: str, *arguments: Any) -> list[int] | None:
        ours, theirs = (getattr(side, method)(*arguments) for side in self.sides)
        assert ours == theirs, f"{method}{arguments}"
        self.counts[ours is None and method in ("alloc", "extend", "decode")] += 1
        return ours

    def same_pages_are_free(self) -> None:
        ours, theirs = (side.free_sets() for side in self.sides)
        assert ours == theirs

    def extend(self) -> None:
        """Some requests grow, new ones begin."""
        chosen = [request for request in self.requests if self.draw(3) == 0]
        begun: list[list[int]] = [[] for _ in range(self.draw(4))]
        chosen += begun
        growth = [self.draw(3 * self.page_size + 2) for _ in chosen]
        prefixes = [len(request) for request in chosen]
        lengths = [prefix + more for prefix, more in zip(prefixes, growth, strict=True)]
        slots = self.both("extend", prefixes, lengths, [request[-1] if request else -1 for request in chosen])
        if slots is not None:
            self.requests += begun
            for request, more in zip(chosen, growth, strict=True):
                request += slots[:more]
                del slots[:more]
            assert not slots

    def decode(self) -> None:
        chosen = [request for request in self.requests if request and self.draw(4)]
        slots = self.both("decode", [len(each) + 1 for each in chosen], [each[-1] for each in chosen])
        for request, slot in zip(chosen, slots or [], strict=slots is not None):
            request.append(slot)

    def alloc(self) -> None:
        slots = self.both("alloc", self.draw(6))
        if slots:
            self.blocks.append(slots)

    def ask_for_too_much(self) -> None:
        assert self.both("alloc", 10_000) is None

    def finish(self) -> None:
        """A request ends: its slots come back as they are, or in two parts of a group, or as their pages."""
        if not self.requests:
            return
        request = self.requests.pop(self.draw(len(self.requests)))
        way = self.draw(3)
        if way == 0:
            self.both("return_pages", [slot // self.page_size for slot in request[:: self.page_size]])
        elif way == 1 and self.grouped:
            cut = self.draw(len(request) + 1)
            for part in (request[cut:], request[:cut]):
                self.both("free", part)
        else:
            self.both("free", request)

    def cut(self) -> None:
        """A request loses its last pages, the last of which it has used in part."""
        if not self.requests:
            return
        request = self.requests[self.draw(len(self.requests))]
        kept = self.draw(len(request) // self.page_size + 1) * self.page_size
        self.both("free", request[kept:])
        del request[kept:]

    def give_blocks_back(self) -> None:
        """Several blocks in one call, in any order."""
        slots = []
        while self.blocks and self.draw(3):
            slots += self.blocks.pop(self.draw(len(self.blocks)))
        self.both("free", slots)

    def begin_or_end(self) -> None:
        self.both("end" if self.grouped else "begin")
        self.grouped = not self.grouped

    def clear(self) -> None:
        self.both("clear")
        self.requests, self.blocks, self.grouped = [], [], False


#: What an engine does, and how often beside the others.
OPERATIONS = {
    Traffic.extend: 6,
    Traffic.decode: 12,
    Traffic.alloc: 3,
    Traffic.ask_for_too_much: 1,
    Traffic.finish: 6,
    Traffic.cut: 2,
    Traffic.give_blocks_back: 2,
    Traffic.begin_or_end: 3,
}
