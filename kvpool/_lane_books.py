"""The invariants of the arrays that `_kernels` describes, asserted over a copy of them with plain numpy."""

import numpy as np
import numpy.typing as npt

from kvpool import _kernels
from kvpool._kernels import CHUNK_PAGES, CHUNK_WORDS, CHUNKS, FREE, HOST_BASE, LANES, LEAVES, TAKEN, WINDOW
from kvpool.runs import page_runs

Int64Array = npt.NDArray[np.int64]


def check_host_books(index: Int64Array, queue: npt.NDArray[np.int32]) -> None:
    """Assert that bits, tickets, order and summaries of a host pool tell the same story."""
    num_pages = queue.size // 3
    tickets, ring = queue[:num_pages], queue[num_pages:]
    is_free = check_run_index(index, HOST_BASE, num_pages, "host pool")
    window = np.arange(index[_kernels.HEAD], index[_kernels.HEAD] + index[WINDOW]) % ring.size
    live = window[tickets[ring[window]] == window]
    order = ring[live]
    assert index[WINDOW] <= 2 * order.size, f"{index[WINDOW]} entries in the window for {order.size} free pages"
    assert np.array_equal(np.sort(order), np.flatnonzero(is_free)), (
        f"the order holds {order.tolist()}, free are {np.flatnonzero(is_free).tolist()}"
    )
    taken = np.flatnonzero(tickets == TAKEN)
    assert np.array_equal(taken, np.flatnonzero(~is_free)), (
        f"without a ticket are {taken.tolist()}, not free are {np.flatnonzero(~is_free).tolist()}"
    )


def check_lane_books(index: Int64Array, physical_pages: int) -> None:
    """Assert that no page of a lane pool is both free and released, and that counts and summaries are right."""
    lanes, stride = int(index[LANES]), int(index[_kernels.STRIDE])
    first = _kernels.LANE_SCRATCH + 2 * lanes
    for rank in range(lanes):
        free = check_run_index(index, first + rank * stride, physical_pages, f"free set of rank {rank}")
        released = check_run_index(
            index, first + (lanes + rank) * stride, physical_pages, f"released set of rank {rank}"
        )
        both = np.flatnonzero(free & released)
        assert both.size == 0, f"rank {rank}: both free and released are {both.tolist()}"


def check_run_index(index: Int64Array, base: int, num_pages: int, name: str) -> npt.NDArray[np.bool_]:
    """Assert that a run index is right; return which pages are in the set."""
    chunks, leaves = int(index[base + CHUNKS]), int(index[base + LEAVES])
    words = base + _kernels.INDEX_HEADER
    flags = words + chunks * CHUNK_WORDS
    lengths = flags + chunks
    tree = lengths + chunks
    assert chunks == -(-num_pages // CHUNK_PAGES), f"{name}: {chunks} chunks for {num_pages} pages"
    assert leaves == 1 << (chunks - 1).bit_length(), f"{name}: {leaves} leaves for {chunks} chunks"
    bits = np.unpackbits(index[words:flags].view(np.uint8), bitorder="little").astype(np.bool_)
    beyond = np.flatnonzero(bits[num_pages:]) + num_pages
    assert beyond.size == 0, f"{name}: holds pages beyond the last: {beyond.tolist()}"
    assert index[base + FREE] == bits.sum(), f"{name}: counts {index[base + FREE]} pages, holds {bits.sum()}"
    summaries = index[tree : tree + 6 * leaves].reshape(-1, 3)
    for chunk in range(chunks):
        flag, summary = int(index[flags + chunk]), summaries[leaves + chunk]
        pages, inside = _runs_of_chunk(bits[chunk * CHUNK_PAGES : (chunk + 1) * CHUNK_PAGES])
        right = (summary >= pages).all() if flag & _kernels.SUMMARY else (summary == pages).all()
        assert right, f"{name}: chunk {chunk} (flags {flag}) says {summary.tolist()}, has {pages}"
        assert flag & _kernels.LENGTHS or index[lengths + chunk] == inside, (
            f"{name}: chunk {chunk} says {index[lengths + chunk]:b} of the lengths inside it, which are {inside:b}"
        )
    half = leaves * CHUNK_PAGES
    for node in range(1, leaves):
        if node & (node - 1) == 0:
            half //= 2
        left, right = summaries[2 * node].tolist(), summaries[2 * node + 1].tolist()
        expected = (
            left[0] if left[0] < half else half + right[0],
            max(left[1], right[1], left[2] + right[0]),
            right[2] if right[2] < half else half + left[2],
        )
        summary = tuple(summaries[node].tolist())
        assert summary == expected, f"{name}: node {node} says {summary}, its children {left} and {right}"
    return bits[:num_pages]


def _runs_of_chunk(bits: npt.NDArray[np.bool_]) -> tuple[tuple[int, int, int], int]:
    """Return the leading, longest and trailing run of a chunk, and the lengths of those at neither end as bits."""
    starts, lengths = page_runs(np.flatnonzero(bits))
    if starts.size == 0:
        return (0, 0, 0), 0
    leading = int(lengths[0]) if starts[0] == 0 else 0
    trailing = int(lengths[-1]) if starts[-1] + lengths[-1] == CHUNK_PAGES else 0
    inside = lengths[(starts > 0) & (starts + lengths < CHUNK_PAGES)]
    return (leading, int(lengths.max()), trailing), int(np.bitwise_or.reduce(1 << (np.minimum(inside, 64) - 1)))
