"""What a call costs must not grow with a pool's history: counted in steps, not timed."""

import numpy as np
import pytest

from kvpool import HostAllocator

CALLS = 100_000
SAMPLE = 2_000
SIZES = (8, 64, 512)


class Churn:
    """A pool of 34,375 pages kept 90 % full by allocations of one policy, given back oldest first or at random."""

    def __init__(self, policy: str, *, isolated_head: bool, at_random: bool) -> None:
        self.policy, self.at_random = policy, at_random
        self.random = np.random.Generator(np.random.PCG64(1))
        self.pool = HostAllocator(34_375, 1)
        self.held: list[np.ndarray] = []
        if isolated_head:
            # The neighbours of page 1 stay taken, and it is freed before all others.
            self.pool.alloc_pages(34_375)
            self.pool.return_pages([1, *range(3, 34_375)])

    def calls(self, count: int) -> float:
        """Make some calls; return the steps of one page of them."""
        steps, pages = self.pool._steps, 0
        for size in self.random.choice(SIZES, count).tolist():
            while self.held and self.pool.available_size() < 3_500 + size:
                self.pool.return_pages(
                    self.held.pop(int(self.random.integers(len(self.held))) if self.at_random else 0)
                )
            taken = self.pool.alloc_pages(size, self.policy)
            assert taken is not None
            self.held.append(taken)
            pages += size
        return (self.pool._steps - steps) / pages


@pytest.mark.compiled  # As plain Python 100,000 calls take minutes.
@pytest.mark.parametrize("at_random", [False, True], ids=["oldest first", "at random"])
@pytest.mark.parametrize(
    ("policy", "isolated_head"),
    [("fifo", False), ("contiguous", False), ("contiguous", True), ("fewest_runs", False), ("fewest_runs", True)],
)
def test_an_aged_pool_costs_what_a_young_one_does(policy: str, at_random: bool, isolated_head: bool) -> None:
    churn = Churn(policy, isolated_head=isolated_head, at_random=at_random)
    churn.calls(SAMPLE)
    young = churn.calls(SAMPLE)
    churn.calls(CALLS)
    aged = churn.calls(SAMPLE)
    assert young > 0
    assert aged <= 1.3 * young + 0.1


@pytest.mark.parametrize("policy", ["contiguous", "fewest_runs"])
def test_stale_entries_behind_a_head_that_no_call_takes_are_passed_once(policy: str) -> None:
    pool = HostAllocator(4_000, 1)
    pool.alloc_pages(4_000)
    pool.return_pages([1, *range(3, 4_000)])
    steps = []
    for _ in range(120):
        before = pool._steps
        taken = pool.alloc_pages(8, policy)
        steps.append(pool._steps - before)
        pool.return_pages(taken)
    assert pool.free_page_ids()[0] == 1
    assert max(steps[1:]) < 200


def test_a_search_for_the_smallest_run_does_not_look_at_every_run() -> None:
    pool = HostAllocator(64 * 512, 1)
    pool.alloc_pages(64 * 512)
    pool.return_pages([page for page in range(64 * 512) if page % 4])
    pool.alloc_fewest_runs(2)
    before = pool._steps
    pool.alloc_fewest_runs(2)
    assert pool._steps - before < 2 * 64
