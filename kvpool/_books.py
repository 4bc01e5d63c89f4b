"""The invariants of the structures under the allocators, asserted over a copy of their state with plain numpy."""

from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from kvpool.runs import page_runs

WORD_PAGES = 64
CHUNK_PAGES = 512
LONG_RUN = 64
TOO_HIGH, LENGTHS_UNKNOWN = 1, 2

BLOCK_PAGES = 16
NOTHING = -1
NOWHERE = 2**32 - 1

# What a page of a PagedAllocator is.
FREE, HELD, RESERVED = 1, 2, 3

Int64Array = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]


def check_order(state: dict[str, Any], is_free: Bools) -> None:
    """Assert that the blocks of a FIFO order hold the free pages, each at its place, and are few."""
    reserved = np.flatnonzero(is_free[: state["num_reserved"]])
    assert reserved.size == 0, f"reserved, and free, are {reserved.tolist()}"
    pages = np.asarray(state["pages"]).reshape(-1, BLOCK_PAGES)
    place, live = np.asarray(state["place"]), np.asarray(state["live"])
    order: list[int] = []
    linked: list[int] = []
    before, block = NOTHING, int(state["first"])
    while block != NOTHING:
        assert block not in linked, f"block {block} is linked twice"
        linked.append(block)
        assert before in (NOTHING, state["previous"][block]), (
            f"block {block} follows {before} and says {state['previous'][block]}"
        )
        start = int(state["first_start"]) if block == state["first"] else 0
        stop = int(state["last_stop"]) if block == state["last"] else BLOCK_PAGES
        held = [(int(page), slot) for slot, page in enumerate(pages[block]) if start <= slot < stop and page >= 0]
        assert len(held) == live[block], f"block {block} counts {live[block]} pages, holds {held}"
        assert held, f"block {block} is linked and empty"
        for page, slot in held:
            assert place[page] == block * BLOCK_PAGES + slot, (
                f"page {page} stands at {slot} of block {block}, and says {place[page]}"
            )
            order.append(page)
        before, block = block, int(state["next"][block])
    assert before == state["last"], f"the last block is {before}, not {state['last']}"
    assert len(order) == state["length"], f"the order counts {state['length']} pages, holds {len(order)}"
    assert np.array_equal(np.sort(order), np.flatnonzero(is_free)), (
        f"the order holds {order}, free are {np.flatnonzero(is_free).tolist()}"
    )
    nowhere = np.flatnonzero(place == NOWHERE)
    assert np.array_equal(nowhere, np.flatnonzero(~is_free)), (
        f"nowhere are {nowhere.tolist()}, not free are {np.flatnonzero(~is_free).tolist()}"
    )
    for left, right in pairwise(linked[1:-1]):
        assert live[left] + live[right] > BLOCK_PAGES, f"blocks {left} and {right} fit into one"
    spare = []
    block = int(state["spare"])
    while block != NOTHING:
        assert block not in spare, f"block {block} is spare twice"
        spare.append(block)
        block = int(state["next"][block])
    assert sorted(linked + spare) == list(range(state["unused"])), (
        f"{state['unused']} blocks have been used, linked are {linked}, spare {spare}"
    )


def check_run_index(state: dict[str, Any], name: str) -> Bools:
    """Assert that the summaries of a set of pages tell what its bits do; return which pages are in the set."""
    num_pages, chunks, leaves = state["num_pages"], state["chunks"], state["leaves"]
    flags, summaries = np.asarray(state["flags"]), state["summaries"]
    assert chunks == -(-num_pages // CHUNK_PAGES), f"{name}: {chunks} chunks for {num_pages} pages"
    assert leaves == 1 << max(chunks - 1, 0).bit_length(), f"{name}: {leaves} leaves for {chunks} chunks"
    words = np.asarray(state["words"], np.uint64)
    bits = np.unpackbits(words.view(np.uint8), bitorder="little").astype(np.bool_)
    beyond = np.flatnonzero(bits[num_pages:]) + num_pages
    assert beyond.size == 0, f"{name}: holds pages beyond the last: {beyond.tolist()}"
    assert state["free"] == bits.sum(), f"{name}: counts {state['free']} pages, holds {bits.sum()}"
    begin, length = page_runs(np.flatnonzero(bits))
    unknown = {chunk + offset for chunk in np.flatnonzero(flags & LENGTHS_UNKNOWN).tolist() for offset in (-1, 0, 1)}
    for chunk in range(chunks):
        summary, runs = summaries[leaves + chunk], _runs_of_chunk(bits, chunk)
        right = all(map(int.__ge__, summary, runs)) if flags[chunk] & TOO_HIGH else summary[:3] == runs
        assert right, f"{name}: chunk {chunk} (flags {flags[chunk]}) says {summary[:3]}, has {runs}"
        beginning = np.minimum(length[begin // CHUNK_PAGES == chunk], LONG_RUN)
        unnamed = [n for n in set(beginning.tolist()) if not summary[3] >> (n - 1) & 1]
        assert not unnamed or chunk in unknown, f"{name}: chunk {chunk} does not name runs of {unnamed}"
    half = leaves * CHUNK_PAGES
    for node in range(1, leaves):
        if node & (node - 1) == 0:
            half //= 2
        left, other = summaries[2 * node], summaries[2 * node + 1]
        expected = (
            left[0] if left[0] < half else half + other[0],
            max(left[1], other[1], left[2] + other[0]),
            other[2] if other[2] < half else half + left[2],
            left[3] | other[3],
        )
        assert summaries[node] == expected, (
            f"{name}: node {node} says {summaries[node]}, its children {left} and {other}"
        )
    return bits[:num_pages]


def check_counts(counts: npt.NDArray[np.uint32], num_held: int) -> None:
    """Assert that as many pages have a holder as is said."""
    held = np.count_nonzero(counts)
    assert held == num_held, f"counts say that {num_held} pages are held, and hold {held}"


def check_lane(rank: int, free: dict[str, Any], released: dict[str, Any]) -> None:
    """Assert that the sets of a lane are right, and that no page is in both."""
    is_free = check_run_index(free, f"free set of rank {rank}")
    is_released = check_run_index(released, f"released set of rank {rank}")
    both = np.flatnonzero(is_free & is_released)
    assert both.size == 0, f"rank {rank}: both free and released are {both.tolist()}"


def check_page_set(state: dict[str, Any], name: str) -> Int64Array:
    """Assert that the levels of a set of pages agree; return its pages, ascending."""
    starts, words = state["starts"], np.asarray(state["words"])
    levels = [words[start:stop] for start, stop in pairwise(starts)]
    assert starts[-1] == words.size, f"{name}: levels end at {starts[-1]}, there are {words.size} words"
    pages = np.flatnonzero(np.unpackbits(levels[0].view(np.uint8), bitorder="little"))
    assert pages.size == state["count"], f"{name}: counts {state['count']} pages, holds {pages.size}"
    assert not pages.size or pages[-1] < state["num_pages"], f"{name}: pages beyond the last: {pages.tolist()}"
    for level, (below, above) in enumerate(pairwise(levels), start=1):
        holding = np.zeros(64 * len(above), np.bool_)
        holding[: len(below)] = below != 0
        wrong = np.flatnonzero(np.packbits(holding, bitorder="little").view(np.uint64) != above)
        assert not wrong.size, f"{name}: level {level} is wrong at words {wrong.tolist()}"
    return pages


def check_free_pages(state: dict[str, Any], held: Int64Array) -> None:
    """Assert that the pages in the order are those that are free, and those of the open group those that are held."""
    num_pages, states = state["num_pages"], np.asarray(state["states"])
    assert states[0] == RESERVED, f"page 0 is {states[0]}, not reserved"
    wrong = np.flatnonzero(states[1:] > HELD) + 1
    assert not wrong.size, f"pages {wrong.tolist()} are neither taken, free nor held"
    if state["ring"] is None:
        free, released = (check_page_set(state[name], f"{name} pages") for name in ("free", "released"))
        both = np.intersect1d(free, released)
        assert not both.size, f"both free and released are {both.tolist()}"
        order = np.concatenate([free, released])
    else:
        assert 0 <= state["head"] < max(num_pages, 1), f"the first page stands at {state['head']} of {num_pages}"
        assert 0 <= state["length"] <= num_pages, f"the order counts {state['length']} of {num_pages} pages"
        order = np.roll(np.asarray(state["ring"]), -state["head"])[: state["length"]]
    assert order.size == state["length"], f"the order counts {state['length']} pages, holds {order.size}"
    expected = np.flatnonzero(states == FREE)
    assert np.array_equal(np.sort(order), expected), f"the order holds {order.tolist()}, free are {expected.tolist()}"
    expected = np.flatnonzero(states == HELD)
    assert np.array_equal(np.sort(held), expected), f"the group has {held.tolist()}, held are {expected.tolist()}"


def _runs_of_chunk(bits: Bools, chunk: int) -> tuple[int, int, int]:
    """Return the leading, longest and trailing run of a chunk."""
    starts, lengths = page_runs(np.flatnonzero(bits[chunk * CHUNK_PAGES : (chunk + 1) * CHUNK_PAGES]))
    if starts.size == 0:
        return 0, 0, 0
    leading = int(lengths[0]) if starts[0] == 0 else 0
    trailing = int(lengths[-1]) if starts[-1] + lengths[-1] == CHUNK_PAGES else 0
    return leading, int(lengths.max()), trailing
