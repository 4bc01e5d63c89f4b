"""The replay of a trace: what it asks of an allocator, and each allocator at it."""

import itertools

import pytest
from asv_runner.discovery import get_benchmark_from_name

from benchmarks import bench_replay, peers, synthetic_traces
from benchmarks.replay import ALLOCATORS, build_pool, make_plan, replay
from benchmarks.traces import PrefixTrace, Request

KVPOOL = ["kvpool_fifo", "kvpool_contiguous", "kvpool_fewest_runs", "kvpool_pages"]


def prefix_trace(*chains, block_tokens=64):
    requests = [Request(float(i), len(chain) * block_tokens, 1, chain) for i, chain in enumerate(chains)]
    return PrefixTrace("t", block_tokens, requests)


def steps(plan):
    return [(list(evicted), blocks) for evicted, blocks in plan.steps]


def test_blocks_are_found_up_to_the_first_that_is_lacking():
    plan = make_plan(prefix_trace([1, 2, 3], [1, 2, 4], [1, 9, 3]), num_pages=100)
    assert steps(plan) == [([], 3), ([], 1), ([], 2)]
    assert (plan.requests, plan.blocks, plan.missed, plan.miss_rate) == (3, 9, 6, 6 / 9)


def test_the_end_of_the_chain_used_longest_ago_is_evicted_first():
    chains = [[1, 2], [3, 4], [1, 2], [5, 6, 7], [3]]
    plan = make_plan(prefix_trace(*chains), num_pages=5, max_fill=1.0)
    # 1 to 4 were allocated as 0 to 3. For 5 to 7 the chain [3, 4] goes, its end first, for it was used before [1, 2];
    # then 3 is lacking, and the end of [1, 2] makes room.
    assert steps(plan) == [([], 2), ([], 2), ([3, 2], 3), ([1], 1)]


def test_what_is_longer_than_the_pool_is_left_out():
    plan = make_plan(prefix_trace([1, 2], [3, 4, 5, 6], [1, 2]), num_pages=4, max_fill=0.75)
    assert steps(plan) == [([], 2)]
    assert (plan.too_long, plan.missed) == (1, 6)


def test_blocks_have_to_be_whole_pages():
    with pytest.raises(ValueError, match="blocks of 64 tokens are not whole pages of 48"):
        make_plan(prefix_trace([1]), page_size=48)


@pytest.mark.parametrize("trace", [synthetic_traces.conversation(800), synthetic_traces.agentic(6)])
def test_a_plan_fills_the_pool_to_its_limit_and_frees_each_block_once(trace):
    plan = make_plan(trace, num_pages=20_000, max_fill=0.5)
    limit = 10_000 // plan.block_pages
    live: set[int] = set()
    numbers = itertools.count()
    fullest = 0
    for evicted, blocks in plan.steps:
        assert live.issuperset(evicted.tolist())
        live.difference_update(evicted.tolist())
        live.update(itertools.islice(numbers, blocks))
        assert len(live) <= limit
        fullest = max(fullest, len(live))
    assert fullest == limit


@pytest.mark.parametrize("name", ALLOCATORS)
def test_a_replay_leaves_free_what_the_cache_does_not_hold(name):
    plan = make_plan(synthetic_traces.conversation(150), num_pages=6_000)
    try:
        pool = build_pool(name, plan.block_pages, 6_000)
    except peers.MissingPeerError as missing:
        pytest.skip(str(missing))
    outcome = replay(plan, pool)
    held = sum(blocks - len(evicted) for evicted, blocks in plan.steps)
    rest = pool.try_alloc(6_000 - held * plan.block_pages)
    assert rest is not None
    assert pool.try_alloc(plan.block_pages) is None
    assert len(outcome.runs) == len(plan.steps)
    assert outcome.runs.min() >= 1
    assert 0 < outcome.allocator_seconds < outcome.wall_seconds


def test_a_replay_counts_the_runs_of_each_allocation():
    # Block 0 is evicted for block 3, then 1 and 2 for the last request: FIFO gives it the pages 1 and 0.
    plan = make_plan(prefix_trace([0], [1], [2], [3], [4, 5]), num_pages=3, max_fill=1.0)
    assert steps(plan) == [([], 1), ([], 1), ([], 1), ([0], 1), ([1, 2], 2)]
    outcome = replay(plan, build_pool("kvpool_fifo", 1, 3))
    assert outcome.runs.tolist() == [1, 1, 1, 1, 1]
    plan = make_plan(prefix_trace([0, 1], [2], [3, 4]), num_pages=3, max_fill=1.0)
    # The end of the chain is freed first: page 1, then page 0.
    assert replay(plan, build_pool("kvpool_fifo", 1, 3)).runs.tolist() == [1, 1, 2]
    assert replay(plan, build_pool("kvpool_fewest_runs", 1, 3)).runs.tolist() == [1, 1, 1]


def test_a_pool_that_refuses_what_fits_stops_the_replay():
    plan = make_plan(prefix_trace([0], [1]), num_pages=10)
    with pytest.raises(RuntimeError, match="allocation 2, of 1 pages, was refused"):
        replay(plan, build_pool("kvpool_fifo", 1, 1))


def test_fewest_runs_scatters_real_traffic_least():
    plan = make_plan(synthetic_traces.agentic(8), num_pages=8_000)
    mean = {name: replay(plan, build_pool(name, 1, 8_000)).runs.mean() for name in KVPOOL}
    assert mean["kvpool_fewest_runs"] < 2
    assert mean["kvpool_fewest_runs"] < mean["kvpool_contiguous"] < mean["kvpool_fifo"] == mean["kvpool_pages"]


@pytest.mark.parametrize("allocator", ["kvpool_fewest_runs", "kvpool_pages"])
def test_the_benchmark_s_clock_runs_in_the_allocator_only(allocator):
    benchmark = bench_replay.ReplayTime()
    bench_replay.ReplayBenchmark.setup(benchmark, "conversation", allocator)
    start = benchmark.timer()
    benchmark.run()
    requests = bench_replay.REQUESTS["conversation"]
    assert benchmark.timer() - start == benchmark.outcome.allocator_seconds / requests > 0


@pytest.mark.parametrize("name", ["ReplayTime.time_allocator", "ReplayRuns.track_runs_per_alloc"])
def test_the_benchmarks_run(name):
    benchmark = get_benchmark_from_name("benchmarks", f"bench_replay.{name}-2", extra_params={"rounds": 1, "repeat": 1})
    assert benchmark._current_params == ("conversation", "fewest_runs")
    assert benchmark.do_setup() is False
    result = benchmark.do_run()
    assert (result["samples"][0] if benchmark.type == "time" else result) > 0


def test_the_miss_rate_is_that_of_the_plan():
    benchmark = get_benchmark_from_name("benchmarks", "bench_replay.ReplayCache.track_miss_rate-0")
    assert benchmark.do_setup() is False
    assert benchmark.do_run() == bench_replay.plan("conversation").miss_rate
