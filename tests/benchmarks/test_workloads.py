"""The workloads of the suite: that they are what the benchmarks say, and that they never change."""

import ast
import hashlib
import inspect

import numpy as np
import pytest
from asv_runner.discovery import disc_benchmarks

from benchmarks import (
    bench_calls,
    bench_host,
    bench_lanes,
    bench_paged,
    bench_replay,
    bench_size,
    bench_token_memory,
    bench_tokens,
    stages,
    token_calls,
    workloads,
)


def digest(*arrays):
    """The SHA-256 of arrays: shapes, and values as little-endian int64."""
    whole = hashlib.sha256()
    for array in arrays:
        array = np.asarray(array)
        whole.update(f"{array.shape}".encode())
        whole.update(array.astype("<i8").tobytes())
    return whole.hexdigest()


def owners():
    return [
        workloads.OWNER_PATTERNS[pattern](pages, bench_lanes.CP_SIZE)
        for pattern in bench_lanes.OWNERS
        for pages in bench_lanes.CALLS
    ]


def fresh_orders():
    return [
        order(bench_host.NUM_PAGES, pages * calls, bench_host.SEED)
        for order in workloads.HOST_PATTERNS.values()
        for pages, calls in bench_host.FRESH_CALLS.items()
    ]


def churned():
    state = bench_host.churned()
    return [state.free, *state.live, state.tail]


def paged_requests():
    batches = [*bench_paged.BATCHES, bench_paged.ENDED]
    lengths = [workloads.request_lengths(each, bench_paged.MOST_TOKENS, bench_paged.SEED) for each in batches]
    traces = [*bench_paged.CALLS.items(), *bench_paged.PREFILLS.values(), [bench_paged.STEPS]]
    return [workloads.shuffled(bench_paged.NUM_PAGES, bench_paged.SEED), *lengths, *traces]


def free_set(pattern, lane_pages, demand):
    return [
        workloads.FREE_PATTERNS[pattern](lane_pages, demand, bench_lanes.SEED, rank)
        for rank in range(bench_lanes.CP_SIZE)
    ]


def free_sets():
    demand = 64 // bench_lanes.CP_SIZE * bench_lanes.CALLS[64]
    return [each for name in workloads.FREE_PATTERNS for each in free_set(name, bench_lanes.LANE_PAGES, demand)]


def replayed(trace):
    steps = bench_replay.plan(trace).steps
    return [*(evicted for evicted, _ in steps), [blocks for _, blocks in steps]]


def token_batches():
    batches = [bench_tokens.batch_tokens(batch) for batch in bench_tokens.BATCHES]
    differing = [workloads.differing_at_nine_tenths(tokens) for tokens in batches[1].prompts]
    return [*(array for batch in batches for array in batch), *differing]


def token_sequences():
    sizes = [*bench_tokens.CONVERTED_TOKENS, bench_token_memory.TOKENS]
    requests = [
        workloads.token_ids(bench_token_memory.TOKENS, bench_tokens.SEED, request)
        for request in range(bench_token_memory.REQUESTS)
    ]
    return [*(workloads.token_ids(size, bench_tokens.SEED) for size in sizes), *requests]


def code(*parts):
    """What is done, as bytes: code without names of files, comments and docstrings."""
    texts = []
    for part in parts:
        tree = ast.parse(inspect.getsource(part))
        for node in ast.walk(tree):
            if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)) and ast.get_docstring(node) is not None:
                node.body = node.body[1:] or [ast.Pass()]
        texts.append(ast.unparse(tree))
    return [np.frombuffer("\n".join(texts).encode(), np.uint8)]


def single_calls():
    """Which calls are made, and how often: what each is, its line in `counted_calls` says."""
    names = "\n".join(bench_calls.CALLS).encode()
    return [np.frombuffer(names, np.uint8), list(bench_calls.CALLS.values()), list(bench_calls.RETURNS.items())]


def stage_code():
    """What the containers of the stages do."""
    containers = ("list", "array", "array_slices", "kvpool", "kvpool_single")
    parts = [*(stages.CONTAINERS[name] for name in containers), stages.Floor, stages.Request]
    parts += [stages.walk, stages.doubling, stages.from_list, stages.from_array, stages.from_buffer]
    return code(*parts)


STAGES = ("Ingest", "PrefixMatch", "PrefillConcat", "PrefillPerreqSlice", "BatchTorchTensor", "BatchTorchTensorCuda")
STAGES += ("DecodeAppend", "FinishConcat", "CacheFinishedReq")
STAGE_VERSIONS = {
    f"bench_tokens.{stage}.time_batch": "2" if stage in ("PrefixMatch", "CacheFinishedReq", "DecodeAppend") else "1"
    for stage in STAGES
}

TOKEN_CALLS = ("PrefixMatchFrom.time_match", "Listing.time_list", "Drafts.time_steps", "TableRows.time_rows")
TOKEN_CALL_VERSIONS = {f"bench_tokens.{name}": "2" for name in TOKEN_CALLS}

# Each workload: what makes it, its SHA-256, and the versions of the benchmarks that are given it. Whoever changes one
# of them starts a new line on the graph, and has to say so here; a test compares this with what the benchmarks declare.
PINNED = {
    "calls": (
        lambda: [
            list(calls.items())
            for calls in (
                bench_host.FRESH_CALLS,
                bench_host.CHURNED_CALLS,
                bench_host.GROWTH_CALLS,
                bench_lanes.CALLS,
            )
        ],
        "103384b94cd5c2ba9f7e12c04574f947f92ff80f945281a9bb2679c91fddddbc",
        {},
    ),
    "orders of a fresh pool": (
        fresh_orders,
        "6eae2920e1ea857421478da6ddfb069fac3c47010ba3914a9d8677998f7bbea2",
        {"bench_host.FreshAlloc.time_alloc": "2"},
    ),
    "churned pool": (
        churned,
        "8c1088b6665c2a6eaac472d127b8dfbada4a9900336542298b136a5e96640ac0",
        {
            "bench_host.ChurnedAlloc.time_alloc": "2",
            "bench_host.Churn.time_churn": "2",
            "bench_host.Free.time_free": "2",
            "bench_pages.PageCalls.time_calls": "2",
            "bench_pages.PoolReads.time_calls": "2",
            "bench_pages.CountCalls.time_retain_release": "2",
            "bench_size.SharedPool.time_alloc_free": "2",
        },
    ),
    "churn from a fresh pool": (
        lambda: [workloads.churn_operations(bench_host.NUM_PAGES, bench_host.CHURN_STEPS, bench_host.SEED)],
        "49492d2ead30f3b7ade7ce88fe8e68f19d0fb26999dd2d66f5236778ded709df",
        {
            "bench_memory.HostRuns.track_runs_per_alloc": "1",
            "bench_memory.HostRuns.track_scattered_share": "1",
            "bench_memory.HostRetention.track_retained_bytes": "2",
            "bench_memory.Books.track_book_bytes_per_page": "2",
        },
    ),
    "shuffled pool": (
        lambda: [workloads.random_fragmented(bench_host.NUM_PAGES, 1, bench_host.SEED)],
        "0f28b4967dc581f4fc081880f3ecd8277fddc30fc913ed0bef11e8d4e7fa9db5",
        {"bench_memory.HostAten.track_aten_ops": "1"},
    ),
    "shuffled pool of one rank, and requests": (
        paged_requests,
        "ab72a102fe7ff76b72db880a63147420f3e52d8ed3f5ab32595bb8050258b1ef",
        {
            "bench_paged.PagedAlloc.time_alloc": "2",
            "bench_paged.PagedDecode.time_decode": "2",
            "bench_paged.PagedExtend.time_extend": "2",
            "bench_paged.PagedFree.time_free": "2",
            "bench_paged.PagedReads.time_calls": "2",
            "bench_paged.PagedBooks.track_book_bytes_per_page": "1",
            "bench_memory.PagedRetention.track_retained_bytes": "1",
            "bench_paged.PagedCuda.time_step": "1",
        },
    ),
    "aged pools": (
        lambda: [workloads.aged_tenth(num_pages, bench_host.SEED) for num_pages in bench_host.Growth.params[0]],
        "dbe40dae0c2381620b21e8fff31adcdbdc2748ca361e0eb39656198521430cae",
        {"bench_host.Growth.time_alloc_free": "2"},
    ),
    "owners": (
        owners,
        "2ae9abc569885ac92cd097d676bdf78fbba1410d22919e5204a91b3c316831f5",
        {
            "bench_lanes.LaneSelect.time_select_only": "2",
            "bench_lanes.LaneAlloc.time_alloc_pages": "2",
            "bench_lanes.LaneStats.time_stats": "2",
            "bench_lanes.LaneStats.time_free_room_stats": "2",
            "bench_lanes.LaneFree.time_free": "2",
            "bench_lanes.LaneAllocCuda.time_alloc_pages": "2",
            "bench_memory.LaneAten.track_aten_ops": "1",
            "bench_memory.LaneRetention.track_retained_bytes": "1",
        },
    ),
    "free sets": (
        free_sets,
        "1519553eff759969906bf00056375f306b2f9cf67dd3e7391df3af45460ed899",
        {"bench_lanes.LaneFreeSets.time_alloc_pages": "2"},
    ),
    "random free set of short lanes": (
        lambda: free_set("random", 8_192, 64 // bench_lanes.CP_SIZE * bench_lanes.CALLS[64]),
        "1ccb70cc7ec5c6c6e6432476d6380d1ed5182044e20b1d184a5f6b21b4ccd725",
        {"bench_lanes.LaneSmall.time_alloc_pages": "2"},
    ),
    "aged pool of a rack": (
        lambda: [workloads.aged_tenth(num_pages, bench_host.SEED) for num_pages in bench_size.HugePool.params[0]],
        "800fe42f45c4d7fe1772e81520477b6a3fc66128405dd1f349d9c7cb957e3154",
        {"bench_size.HugePool.time_alloc_free": "2"},
    ),
    "aged pool of the slowest calls": (
        lambda: [workloads.aged_tenth(bench_size.SLOWEST_PAGES, bench_size.SEED)],
        "38508776a172b1f440ff52762e74fa4a4b8e952c3aa96d55f080cfaa272827d7",
        {"bench_size.SlowestCalls.time_in_ten_thousand": "1", "bench_size.SlowestCalls.time_longest": "1"},
    ),
    "more lanes": (
        lambda: [
            workloads.random(bench_size.LANE_PAGES // lanes, bench_size.LANE_REQUEST // lanes, bench_size.SEED, rank)
            for lanes in bench_size.Lanes.params[0]
            for rank in range(lanes)
        ],
        "b9bfd79ff9edfbae990637a42a867035cb2e7db66bfd62b80c74d25fc8f6ff02",
        {"bench_size.Lanes.time_alloc_free": "2", "bench_size.Lanes.time_stats": "2"},
    ),
    "conversation": (
        lambda: replayed("conversation"),
        "2e74ba8eb301a0df0a13818e38e6b3771e21a6666ee5cd753bcc82842d8916c9",
        {
            "bench_replay.ReplayTime.time_allocator": "2",
            "bench_replay.ReplayRuns.track_runs_per_alloc": "1",
            "bench_replay.ReplayCache.track_miss_rate": "1",
        },
    ),
    "agentic sessions": (
        lambda: replayed("agentic"),
        "3fbe0a8807ee2f33651dbd1f283d5d89db3c64fd67c30d0760baf3fafbdcb102",
        {
            "bench_replay.ReplayRuns.track_runs_per_alloc": "1",
            "bench_replay.ReplayCache.track_miss_rate": "1",
        },
    ),
    "token batches": (
        token_batches,
        "ee01e09039157e40dabacf37107df3a756b2da0f35e7e1d80b695ed44b3fcc7d",
        STAGE_VERSIONS,
    ),
    "token sequences": (
        token_sequences,
        "3e06ceb77ff6385f15aed079721824db33f1db762de249c9f8152ab0fd2fbc6c",
        {
            "bench_tokens.Roads.time_tensor": "1",
            "bench_tokens.RoadsCuda.time_tensor": "1",
            "bench_token_memory.TokenBytes.track_bytes_per_token": "2",
            "bench_token_memory.TokenPeakMemory.peakmem_requests": "1",
        },
    ),
    "tokens of single calls": (
        lambda: [
            *(workloads.token_ids(size, token_calls.SEED) for size in (token_calls.LENGTH, token_calls.CONTEXT)),
            *(workloads.token_ids(size, token_calls.SEED) for size in bench_tokens.PrefixMatchFrom.params[0]),
            *(workloads.token_ids(2 * size, token_calls.SEED) for size in bench_tokens.Listing.params[0]),
            workloads.token_ids(token_calls.DRAFTED, token_calls.SEED, 1),
        ],
        "8f0fc2fd63ff64059573fd8dae155a3107ad31e891f1df895472495871a56775",
        TOKEN_CALL_VERSIONS,
    ),
    "code of single calls": (
        lambda: code(token_calls),
        "c1a57c2d885f21a93b380bf2b79038feb68ffd3de2a25ca61aa3d4be72c42ce9",
        TOKEN_CALL_VERSIONS,
    ),
    # What an engine's container does at each stage is work that the figures mean, as much as the tokens are.
    "code of the stages": (
        stage_code,
        "2d0b31ed0aefe922b7a33496bea22df5b5a6778665f1156b5f45d8232d1d50e4",
        STAGE_VERSIONS | {"bench_tokens.Roads.time_tensor": "1", "bench_tokens.RoadsCuda.time_tensor": "1"},
    ),
    # What a call is of is said by its line in `counted_calls`, which is never edited.
    "calls that nothing else times": (
        single_calls,
        "d8f02a8283f1d4bda5346a1b99d6d9a508436f83080c37f7b81482a67ff66b66",
        {"bench_calls.Calls.time_calls": "2", "bench_calls.LaneReturn.time_return": "2"},
    ),
}
# No workload of their own: a constant loop, an import, the building of a pool, calls that are counted elsewhere.
WITHOUT_WORKLOAD = {
    "bench_canary.Canary.time_python_loop": "1",
    "bench_import.Import.timeraw_import": "1",
    "bench_memory.PeakMemory.peakmem_host_pool": "1",
    "bench_memory.LeftBehind.track_bytes_per_call": "1",
}


@pytest.mark.parametrize("name", PINNED)
def test_workload_is_pinned(name):
    build, pinned, _ = PINNED[name]
    assert digest(*build()) == pinned, (
        "this workload has changed, and with it what a line of the graph means: "
        "leave it and add another, or raise the version of each benchmark that uses it"
    )


def test_each_benchmark_names_its_workload():
    expected = dict(WITHOUT_WORKLOAD)
    for _, _, versions in PINNED.values():
        expected |= versions
    modules = {name.split(".")[0] for name in expected}
    actual = {benchmark.name: benchmark.version for benchmark in disc_benchmarks("benchmarks")}
    assert {name: version for name, version in actual.items() if name.split(".")[0] in modules} == expected


def runs(page_ids):
    """The runs of an array of page ids, in its order, as (first, length)."""
    starts = np.flatnonzero(np.diff(page_ids, prepend=-2) != 1)
    return list(zip(page_ids[starts].tolist(), np.diff(starts, append=len(page_ids)).tolist(), strict=True))


class TestHostOrders:
    @pytest.mark.parametrize("pattern", workloads.HOST_PATTERNS)
    @pytest.mark.parametrize(("num_pages", "demand"), [(64, 1), (64, 7), (1_000, 100), (34_375, 10_240)])
    def test_every_page_is_free_once(self, pattern, num_pages, demand):
        order = workloads.HOST_PATTERNS[pattern](num_pages, demand, 0)
        assert order.dtype == np.int64
        assert np.array_equal(np.sort(order), np.arange(num_pages))

    def test_contiguous_fifo_ascends(self):
        assert workloads.contiguous_fifo(5, 2, 0).tolist() == [0, 1, 2, 3, 4]

    def test_random_fragmented_follows_its_seed(self):
        first, again, other = (workloads.random_fragmented(1_000, 8, seed) for seed in (0, 0, 1))
        assert np.array_equal(first, again)
        assert not np.array_equal(first, other)
        assert len(runs(first)) > 990

    @pytest.mark.parametrize(("num_pages", "demand"), [(8, 1), (9, 3), (64, 7), (1_000, 100), (34_375, 512)])
    def test_fragmented_prefix_later_run(self, num_pages, demand):
        order = workloads.fragmented_prefix_later_run(num_pages, demand, 0)
        start = min(max(1, num_pages // 3), num_pages - demand)
        later_run = range(start, start + demand)
        prefix, run, rest = np.split(order, [demand, 2 * demand])
        every_second = [page for page in range(num_pages - 1, -1, -2) if page not in later_run]
        assert prefix.tolist() == every_second[:demand]
        assert np.all(np.diff(np.sort(prefix)) > 1)
        assert run.tolist() == list(later_run)
        assert np.all(np.diff(rest) > 0)

    def test_a_pool_too_small_has_no_order(self):
        assert workloads.contiguous_fifo(4, 5, 0) is None
        assert workloads.random_fragmented(4, 5, 0) is None
        assert workloads.fragmented_prefix_later_run(8, 4, 0) is None
        assert workloads.fragmented_prefix_later_run(4, 5, 0) is None
        assert workloads.fragmented_prefix_later_run(1, 1, 0) is None


class TestFreeSets:
    def test_sequential_is_all(self):
        assert workloads.sequential(5, 5, 0, 0).tolist() == [0, 1, 2, 3, 4]

    @pytest.mark.parametrize("lane_pages", [8, 9, 8_192])
    def test_random_is_a_seeded_half_of_its_own_for_each_rank(self, lane_pages):
        free = workloads.random(lane_pages, 1, 0, 0)
        assert len(free) == lane_pages // 2
        assert np.all(np.diff(free) > 0)
        assert set(free.tolist()) <= set(range(lane_pages))
        assert np.array_equal(free, workloads.random(lane_pages, 1, 0, 0))
        assert not np.array_equal(free, workloads.random(lane_pages, 1, 0, 1))
        assert not np.array_equal(free, workloads.random(lane_pages, 1, 1, 0))

    @pytest.mark.parametrize(("lane_pages", "demand"), [(64, 1), (64, 8), (64, 60), (64, 64), (8_192, 320)])
    def test_owner_fragmented_later_run(self, lane_pages, demand):
        free = set(workloads.owner_fragmented_later_run(lane_pages, demand, 0, 3).tolist())
        start = min(max(4, 3 * demand), lane_pages - demand)
        assert free >= set(range(start, start + demand))
        assert not free & {start - 1, start + demand}
        assert all((page in free) == (page % 2 == 0) for page in range(start - 1))
        assert all((page in free) == (page % 2 == 0) for page in range(start + demand + 1, lane_pages))

    def test_a_lane_too_small_has_no_set(self):
        assert workloads.sequential(4, 5, 0, 0) is None
        assert workloads.random(8, 5, 0, 0) is None
        assert workloads.owner_fragmented_later_run(4, 5, 0, 0) is None


class TestOwners:
    def test_round_robin_and_one_rank(self):
        assert workloads.round_robin(5, 3).tolist() == [0, 1, 2, 0, 1]
        assert workloads.one_rank(3, 8).tolist() == [0, 0, 0]

    def test_zigzag_deals_nearly_equal_segments_there_and_back(self):
        assert workloads.zigzag(6, 3).tolist() == [0, 1, 2, 2, 1, 0]
        assert workloads.zigzag(8, 3).tolist() == [0, 0, 1, 1, 2, 2, 1, 0]
        assert workloads.zigzag(2, 3).tolist() == [0, 1]
        assert np.bincount(workloads.zigzag(512, 8)).tolist() == [64] * 8


class TestChurn:
    def test_the_pool_stays_nine_tenths_full(self):
        live, levels = [], []
        for operation in workloads.churn_operations(2_000, 500, 0).tolist():
            if operation > 0:
                live.append(operation)
                levels.append(sum(live))
            else:
                live[-operation - 1] = live[-1]
                live.pop()
        assert len(levels) == 500
        assert max(levels) <= 1_800
        assert min(levels[100:]) > 1_800 - 2 * 512
        assert set(live) <= set(range(1, 513))

    def test_the_churned_pool_is_what_fifo_allocation_leaves(self):
        state = workloads.churned_pool(2_000, 300, 20, 0)
        free, live = list(range(2_000)), []
        operations = workloads.churn_operations(2_000, 320, 0).tolist()
        for operation in operations[: len(operations) - len(state.tail)]:
            if operation > 0:
                live.append(free[:operation])
                del free[:operation]
            else:
                free += live[-operation - 1]
                live[-operation - 1] = live[-1]
                live.pop()
        assert state.free.tolist() == free
        assert [pages.tolist() for pages in state.live] == live
        assert int((state.tail > 0).sum()) == 20

    def test_the_schedule_frees_what_the_churn_frees(self):
        tail = np.array([5, -1, 7, -2, -2])  # Live: a, b; then a b c; c b; c b d; c d; c.
        assert [index for need, index in bench_host.schedule(2, tail) if not need] == [0, 1, 3]
        assert [need for need, _ in bench_host.schedule(2, tail) if need] == [5 * 64, 7 * 64]


class TestAgedPool:
    @pytest.mark.parametrize("num_pages", [8_192, 65_536])
    def test_a_tenth_is_free_in_runs_of_bounded_length(self, num_pages):
        pages = workloads.aged_tenth(num_pages, 0)
        assert num_pages * 0.09 < len(pages) <= num_pages / 10
        lengths = [length for _, length in runs(np.sort(pages))]
        assert max(lengths) == 32
        assert lengths.count(32) == num_pages // 640
        assert len(runs(pages)) > len(pages) * 0.95
