"""Size: the benchmarks of it run, and pools of several ranks in one process share nothing."""

import gc
import itertools
import threading

import numpy as np
import pytest
from asv_runner.discovery import disc_benchmarks, get_benchmark_from_name

from benchmarks import bench_size, pools
from kvpool import HostAllocator, OwnerLaneAllocator

NAMES = [each.name for each in disc_benchmarks("benchmarks") if each.name.startswith("bench_size.")]


@pytest.mark.compiled
@pytest.mark.parametrize("name", NAMES)
def test_every_combination_runs(name):
    once = {"repeat": 1, "number": 1, "warmup_time": 0, "min_run_count": 1, "rounds": 1}
    whole = get_benchmark_from_name("benchmarks", f"{name}-0")
    for index, values in enumerate(itertools.product(*whole._params)):
        benchmark = get_benchmark_from_name("benchmarks", f"{name}-{index}", extra_params=once)
        assert benchmark.do_setup() is False, f"{name}{values} is n/a"
        assert benchmark.do_run()["samples"][0] > 0
        benchmark.do_teardown()


def test_the_largest_pool_is_not_built_of_a_straightforward_allocator(monkeypatch):
    monkeypatch.setattr(pools.importlib.util, "find_spec", lambda name: None)
    benchmark = bench_size.HugePool()
    with pytest.raises(NotImplementedError, match="straightforward"):
        benchmark.setup(16_777_216, 8, "fifo")


def test_the_pool_shared_by_threads_is_whole_afterwards():
    running = threading.active_count()
    benchmark = bench_size.SharedPool()
    benchmark.setup(4)
    before = sorted(benchmark.pool.free_page_ids().tolist())
    benchmark.time_alloc_free(4)
    benchmark.teardown(4)
    benchmark.pool.check()
    assert sorted(benchmark.pool.free_page_ids().tolist()) == before
    assert threading.active_count() == running


def arrays_of(pool):
    """Every ndarray and tensor that a pool refers to, as memory that can be compared."""
    found, waiting, seen = [], [pool], set()
    while waiting:
        each = waiting.pop()
        if id(each) in seen or isinstance(each, (type, type(gc), type(arrays_of))):
            continue
        seen.add(id(each))
        if isinstance(each, np.ndarray):
            found.append(each)
        elif hasattr(each, "untyped_storage"):
            found.append(each.cpu().numpy())
        waiting.extend(gc.get_referents(each))
        # The collector does not look into the compiled structures, which are part of no cycle.
        waiting.extend(getattr(each, name, None) for name in ("arrays", "free", "released"))
    return found


@pytest.mark.parametrize("build", [lambda: HostAllocator(100, 4), lambda: OwnerLaneAllocator(50, 4, 2)])
def test_pools_of_several_ranks_in_a_process_share_nothing(build):
    ranks = [build() for _ in range(4)]
    used, *idle = ranks
    untouched = [pool.snapshot() for pool in idle]
    take = (
        used.alloc
        if isinstance(used, HostAllocator)
        else lambda slots: used.alloc_pages_with_owners([0] * (slots // 4))
    )
    first = take(40)
    take(8)
    used.free(first)
    assert used.snapshot() != untouched[0]
    assert [pool.snapshot() for pool in idle] == untouched
    for one, other in itertools.combinations(map(arrays_of, ranks), 2):
        assert one
        assert not any(np.shares_memory(mine, theirs) for mine in one for theirs in other)
