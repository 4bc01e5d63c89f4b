"""What the benchmarks do: seeded, fixed workloads, built with numpy alone.

No code of kvpool takes part, so that every commit is given the same work. A workload is never edited, only added to:
`tests/benchmarks/test_workloads.py` pins the SHA-256 of each beside the versions of the benchmarks that use it.

All randomness is raw 64-bit output of PCG64, which numpy keeps stable; the streams of its distributions, `shuffle` and
`choice` may change with a version. Page ids are `int64` arrays, counted from 0.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np


def draws(count: int, *seed: int) -> np.ndarray:
    """Return `count` seeded 64-bit draws."""
    return np.random.PCG64(seed).random_raw(count)


def shuffled(count: int, *seed: int) -> np.ndarray:
    """Return a seeded permutation of `0 .. count - 1`."""
    return np.argsort(draws(count, *seed), kind="stable").astype(np.int64)


# FIFO orders of an all-free pool. Each takes (num_pages, demand, seed) and returns the pages in the order in which
# they are to become free, or None where a pool of that size has no such order.


def contiguous_fifo(num_pages: int, demand: int, seed: int) -> np.ndarray | None:
    """Order the pages ascending: the first pages in FIFO order are one run."""
    return np.arange(num_pages) if demand <= num_pages else None


def random_fragmented(num_pages: int, demand: int, seed: int) -> np.ndarray | None:
    """Order the pages by a seeded shuffle: the first pages in FIFO order are scattered."""
    return shuffled(num_pages, seed) if demand <= num_pages else None


def fragmented_prefix_later_run(num_pages: int, demand: int, seed: int) -> np.ndarray | None:
    """Order `demand` pages without neighbours first, then a run of `demand` pages, then the rest ascending.

    The first ones are every second page from the top down, outside the run, which starts at
    `min(max(1, num_pages // 3), num_pages - demand)`.
    """
    if demand > num_pages:
        return None
    start = min(max(1, num_pages // 3), num_pages - demand)
    scattered = np.arange(num_pages - 1, -1, -2)
    scattered = scattered[(scattered < start) | (scattered >= start + demand)][:demand]
    if len(scattered) < demand:
        return None
    head = np.concatenate((scattered, np.arange(start, start + demand)))
    rest = np.ones(num_pages, dtype=bool)
    rest[head] = False
    return np.concatenate((head, np.flatnonzero(rest)))


HOST_PATTERNS: dict[str, Callable[[int, int, int], np.ndarray | None]] = {
    "contiguous_fifo": contiguous_fifo,
    "random_fragmented": random_fragmented,
    "fragmented_prefix_later_run": fragmented_prefix_later_run,
}


# Free sets of a lane. Each takes (lane_pages, demand, seed, rank) and returns the indices of the free physical pages,
# ascending, or None where a lane of that size has no such set. Index i is physical page i + 1.


def sequential(lane_pages: int, demand: int, seed: int, rank: int) -> np.ndarray | None:
    """Leave all pages free."""
    return np.arange(lane_pages) if demand <= lane_pages else None


def random(lane_pages: int, demand: int, seed: int, rank: int) -> np.ndarray | None:
    """Leave a seeded half of the pages free, another one for each rank."""
    keys = draws(lane_pages, seed, rank)
    free = np.flatnonzero(keys < np.partition(keys, lane_pages // 2)[lane_pages // 2])
    return free if demand <= len(free) else None


def owner_fragmented_later_run(lane_pages: int, demand: int, seed: int, rank: int) -> np.ndarray | None:
    """Leave `demand` consecutive pages free, and elsewhere every second page.

    The stretch starts at index `min(max(4, 3 * demand), lane_pages - demand)`; the pages beside it are taken.
    """
    if demand > lane_pages:
        return None
    start = min(max(4, 3 * demand), lane_pages - demand)
    free = np.arange(lane_pages) % 2 == 0
    free[max(0, start - 1) : start + demand + 1] = False
    free[start : start + demand] = True
    return np.flatnonzero(free)


FREE_PATTERNS: dict[str, Callable[[int, int, int, int], np.ndarray | None]] = {
    "sequential": sequential,
    "random": random,
    "owner_fragmented_later_run": owner_fragmented_later_run,
}


# Owners of the pages of one request. Each takes (pages, cp_size) and returns the rank of each page.


def round_robin(pages: int, cp_size: int) -> np.ndarray:
    """Give the pages to the ranks in turn."""
    return np.arange(pages) % cp_size


def one_rank(pages: int, cp_size: int) -> np.ndarray:
    """Give all pages to rank 0."""
    return np.zeros(pages, dtype=np.int64)


def zigzag(pages: int, cp_size: int) -> np.ndarray:
    """Deal `2 * cp_size` nearly equal segments to ranks 0, 1, … cp_size - 1, cp_size - 1, … 1, 0.

    Where the pages do not divide evenly the first segments have one page more.
    """
    short, longer = divmod(pages, 2 * cp_size)
    lengths = np.full(2 * cp_size, short)
    lengths[:longer] += 1
    ranks = np.arange(cp_size)
    return np.repeat(np.concatenate((ranks, ranks[::-1])), lengths)


OWNER_PATTERNS: dict[str, Callable[[int, int], np.ndarray]] = {
    "round_robin": round_robin,
    "one_rank": one_rank,
    "zigzag": zigzag,
}


# A pool kept 90 % full by requests of random sizes.


def churn_operations(num_pages: int, steps: int, seed: int) -> np.ndarray:
    """Return the calls of a churn: `n > 0` allocates n pages, `n < 0` frees the live allocation number `-n - 1`.

    The live allocations are a list: a new one is appended, and the last one takes the place of the one freed. Sizes
    are 1 to 512 pages, small ones more often (a seeded power of two bounds a seeded size, 51 pages on average). Before
    each of `steps` allocations, live ones chosen by the seed are freed until 90 % of the pool holds it.
    """
    bounds, sizes, victims = draws(3 * steps, seed).reshape(3, steps)
    pages = 1 + sizes % (np.uint64(1) << (bounds % np.uint64(10)))
    limit = num_pages * 9 // 10
    operations: list[int] = []
    live: list[int] = []
    used = 0
    for size, draw in zip(pages.tolist(), victims.tolist(), strict=True):
        while used + size > limit:
            victim = draw % len(live)
            operations.append(-victim - 1)
            used -= live[victim]
            live[victim] = live[-1]
            live.pop()
        operations.append(size)
        live.append(size)
        used += size
    return np.array(operations, dtype=np.int64)


class ChurnedPool(NamedTuple):
    """A pool that FIFO allocation has churned, and what comes next.

    `free`: the free pages in FIFO order. `live`: the page ids of each live allocation. `tail`: the next calls, encoded
    as by `churn_operations`.
    """

    free: np.ndarray
    live: list[np.ndarray]
    tail: np.ndarray


def churned_pool(num_pages: int, steps: int, tail_steps: int, seed: int) -> ChurnedPool:
    """Return a pool that has gone through `steps` allocations of a churn in FIFO order, before `tail_steps` more."""
    operations = churn_operations(num_pages, steps + tail_steps, seed)
    tail = np.flatnonzero(operations > 0)[steps - 1] + 1
    done = operations[:tail]
    # Each page is appended when it becomes free, and taken from the front: one array holds the whole queue.
    queue = np.empty(num_pages + int(done[done > 0].sum()), dtype=np.int64)
    queue[:num_pages] = np.arange(num_pages)
    head, end = 0, num_pages
    live: list[np.ndarray] = []
    for operation in done.tolist():
        if operation > 0:
            live.append(queue[head : head + operation].copy())
            head += operation
        else:
            pages = live[-operation - 1]
            live[-operation - 1] = live[-1]
            live.pop()
            queue[end : end + len(pages)] = pages
            end += len(pages)
    return ChurnedPool(queue[head:end].copy(), live, operations[tail:])


def aged_tenth(num_pages: int, seed: int) -> np.ndarray:
    """Return a tenth of the pages, in a scattered order: what is free in a pool that has been full.

    Each block of 640 pages has free stretches of 32, 16, 8, 4, 2, 1 and 1 pages, each within a 64-page part of its own
    and apart from the others, so that the longest run is the same in a pool of any size.
    """
    lengths = np.array([32, 16, 8, 4, 2, 1, 1])
    blocks = num_pages // 640
    places, offsets = draws(2 * blocks * 10, seed).reshape(2, blocks, 10)
    parts = np.argsort(places, axis=1, kind="stable")[:, : len(lengths)]
    # 1 .. 64 - length: a stretch never touches the part before its own.
    shifts = 1 + (offsets[:, : len(lengths)] % (64 - lengths).astype(np.uint64)).astype(np.int64)
    starts = (np.arange(blocks)[:, None] * 640 + parts * 64 + shifts).ravel()
    repeats = np.tile(lengths, blocks)
    first = np.cumsum(repeats) - repeats
    pages = np.repeat(starts - first, repeats) + np.arange(int(repeats.sum()))
    return pages[shuffled(len(pages), seed, 1)]


# Requests of a batch.


def request_lengths(count: int, most: int, seed: int) -> np.ndarray:
    """Return the seeded lengths of `count` requests, 1 to `most` tokens."""
    return 1 + (draws(count, seed) % np.uint64(most)).astype(np.int64)


# Token ids of requests: int64, as of a vocabulary of 151,936 entries.

VOCABULARY = 151_936


def token_ids(count: int, *seed: int) -> np.ndarray:
    """Return `count` seeded token ids."""
    return (draws(count, *seed) % np.uint64(VOCABULARY)).astype(np.int64)


class TokenBatch(NamedTuple):
    """The tokens of a batch: a row a request."""

    prompts: np.ndarray
    decoded: np.ndarray


def token_batch(requests: int, prompt_tokens: int, decode_tokens: int, seed: int) -> TokenBatch:
    """Return the prompts of a batch of equal requests, and the tokens that are decoded for each, one a step."""
    return TokenBatch(
        np.stack([token_ids(prompt_tokens, seed, request, 0) for request in range(requests)]),
        np.stack([token_ids(decode_tokens, seed, request, 1) for request in range(requests)]),
    )


def differing_at_nine_tenths(tokens: np.ndarray) -> np.ndarray:
    """Return the same tokens but one, which stands where nine tenths of them have gone before."""
    other = tokens.copy()
    place = len(tokens) * 9 // 10
    other[place] = (other[place] + 1) % VOCABULARY
    return other
