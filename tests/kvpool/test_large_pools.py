"""Seeded traces over pools of many chunks beside the oracle: runs that cross chunks, fill them, and go stale."""

import numpy as np
import pytest

from kvpool import HostAllocator, OwnerLaneAllocator
from oracle import HostOracle, LaneOracle, runs

POLICIES = ("fifo", "contiguous", "fewest_runs")


@pytest.mark.parametrize("policies", [POLICIES, *((policy,) for policy in POLICIES)], ids="-".join)
@pytest.mark.parametrize("num_pages", [513, 2048, 3000])
@pytest.mark.parametrize("scattered", [False, True])
def test_host_addresses_are_the_oracles(policies: tuple[str, ...], num_pages: int, scattered: bool) -> None:
    random = np.random.Generator(np.random.PCG64([num_pages, len(policies), scattered]))
    pool, oracle = HostAllocator(num_pages, 1), HostOracle(num_pages)
    held: list[list[int]] = []
    for step in range(260):
        if held and (random.random() < 0.45 or len(oracle.free) < num_pages // 10):
            pages = held.pop(int(random.integers(len(held))))
            if scattered:
                # A part goes back now, every other page of it, so that free runs stay short.
                pages, rest = pages[::2], pages[1::2]
                held += [rest] if rest else []
            pool.return_pages(pages)
            oracle.free += pages
        else:
            size = int(random.choice([1, 2, 3, 8, 17, 64, 200, 511, 512, 513, 700]))
            policy = policies[int(random.integers(len(policies)))]
            expected, result = oracle.take(size, policy), pool.alloc_pages(size, policy)
            assert (result is None) == (expected is None)
            if expected is not None:
                assert result.tolist() == expected
                held.append(expected)
        if step % 5 == 0:
            assert pool.largest_run() == max(map(len, runs(sorted(oracle.free))), default=0)
        if step % 20 == 0:
            pool.check()
            assert pool.free_page_ids().tolist() == oracle.free
    pool.check()


@pytest.mark.parametrize("selection", ["fifo", "contiguous"])
@pytest.mark.parametrize("cp_size", [1, 3])
def test_lane_addresses_are_the_oracles(selection: str, cp_size: int) -> None:
    random = np.random.Generator(np.random.PCG64([cp_size, len(selection)]))
    pool, oracle = OwnerLaneAllocator(1100, 1, cp_size, selection=selection), LaneOracle(1100, cp_size, selection)
    held: list[int] = []
    for step in range(150):
        action = random.random()
        if held and action < 0.4:
            held = random.permutation(held).tolist()
            size = int(random.integers(1, len(held) + 1))
            pages, held = held[:size], held[size:]
            pool.return_pages(pages)
            oracle.give_back(pages)
        elif action < 0.5:
            pool.merge_released()
            oracle.merge_released()
        else:
            owners = random.integers(0, cp_size, int(random.choice([1, 9, 100, 700]))).tolist()
            chosen, expected = pool.select_pages(owners), oracle.take(owners)
            result = pool.alloc_pages_with_owners(owners)
            assert (result is None) == (chosen is None) == (expected is None)
            if expected is not None:
                assert result.tolist() == chosen.tolist() == expected
                held += expected
        if step % 10 == 0:
            pool.check()
            assert pool.free_pages.tolist() == [page for lane in oracle.free for page in lane]
            assert pool.release_pages.tolist() == [page for lane in oracle.released for page in lane]


def test_fewest_runs_is_as_few_as_any_choice_of_pages() -> None:
    random = np.random.Generator(np.random.PCG64(11))
    for _ in range(200):
        pool = HostAllocator(600, 1)
        pool.alloc_pages(600)
        pool.return_pages(np.flatnonzero(random.random(600) < random.random()))
        free = pool.free_page_ids()
        if free.size == 0:
            continue
        need = int(random.integers(1, free.size + 1))
        longest_first = np.sort([len(run) for run in runs(np.sort(free).tolist())])[::-1]
        fewest = int(np.searchsorted(np.cumsum(longest_first), need) + 1)
        starts, _ = pool.alloc_runs(need)
        assert len(starts) == fewest
