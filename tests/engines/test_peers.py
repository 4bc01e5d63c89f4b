"""Each adapter gives what its peer returns: as many pages as were asked for, none twice, and all of them again."""

import itertools
import sys

import numpy as np
import pytest
from asv_runner.discovery import disc_benchmarks, get_benchmark_from_name

from benchmarks import peers, stages, workloads
from sweeps import peer_stages

NUM_PAGES = 600


@pytest.fixture(params=peers.POOLS)
def build(request):
    """Return a function that builds a pool of NUM_PAGES pages of a number of slots."""
    try:
        peers.POOLS[request.param](1, 1)
    except peers.MissingPeerError as missing:
        pytest.skip(str(missing))
    return lambda page_size: peers.POOLS[request.param](NUM_PAGES, page_size)


@pytest.mark.parametrize("page_size", [1, 64])
def test_results_are_disjoint_and_have_as_many_pages_as_were_asked_for(build, page_size):
    pool = build(page_size)
    results = [pool.try_alloc(pages) for pages in (1, 8, 64, 512)]
    pages = [pool.page_ids(result) for result in results]
    assert [len(each) for each in pages] == [1, 8, 64, 512]
    assert len(set(np.concatenate(pages).tolist())) == 585
    assert pool.try_alloc(16) is None
    results.append(pool.try_alloc(15))
    assert len(pool.page_ids(results[-1])) == 15
    assert pool.try_alloc(1) is None


def test_what_is_freed_can_be_had_again(build):
    pool = build(64)
    first, second = pool.try_alloc(200), pool.try_alloc(400)
    pages = sorted(pool.page_ids(first).tolist())
    pool.free(*pool.release(first))
    again = pool.try_alloc(200)
    assert sorted(pool.page_ids(again).tolist()) == pages
    assert pool.try_alloc(1) is None
    pool.free(*pool.release(second))
    pool.free(*pool.release(again))
    assert len(pool.page_ids(pool.try_alloc(NUM_PAGES))) == NUM_PAGES


def test_a_result_can_be_freed_in_parts(build):
    pool = build(64)
    result = pool.try_alloc(NUM_PAGES)
    pages = pool.page_ids(result).tolist()
    parts = pool.parts(result, 7)
    assert len(parts) == 86
    for part in parts[-2:]:
        pool.free(*part)
    # The last part has the 5 pages that are over.
    assert sorted(pool.page_ids(pool.try_alloc(12)).tolist()) == sorted(pages[-12:])
    assert pool.try_alloc(1) is None


def test_arranged_pages_are_free_in_the_order_given(build):
    pool = build(64)
    first_id = int(build(64).page_ids(build(64).try_alloc(1))[0])
    order = workloads.shuffled(NUM_PAGES, 5)[:100].tolist()
    held = peers.arrange(pool, NUM_PAGES, order)
    assert len(held) == NUM_PAGES - 100
    results = [pool.try_alloc(1) for _ in order]
    taken = [int(pool.page_ids(result)[0]) - first_id for result in results]
    assert pool.try_alloc(1) is None
    # Some hand out the lowest page first, or the one in the smallest run: all of them just these pages.
    assert sorted(taken) == sorted(order)
    if pool.returns != "one address range" and "fewest" not in str(pool.alloc):
        assert taken == order


def test_lmcache_can_be_asked_for_a_range_a_block():
    try:
        pool = peers.lmcache_batched(NUM_PAGES, 64, pages_at_once=8)
    except peers.MissingPeerError as missing:
        pytest.skip(str(missing))
    result = pool.try_alloc(24)
    assert pool.page_ids(result).tolist() == list(range(24))
    pool.free(*pool.parts(result, 8)[1])
    assert pool.page_ids(pool.try_alloc(16)).tolist() == [*range(8, 16), *range(24, 32)]
    with pytest.raises(ValueError, match="ranges of 8 pages cannot be freed 4 at a time"):
        pool.parts(result, 4)
    assert pool.try_alloc(NUM_PAGES) is None


@pytest.mark.parametrize("engine", peers.SOURCES)
def test_a_peer_is_the_engines_own_class_and_nothing_stays_of_the_stand_ins(engine):
    if engine not in peers.installed():
        with pytest.raises(peers.MissingPeerError, match=f"{engine} is not installed"):
            peers.peer_class(engine, next(iter(peers.SOURCES[engine].classes)))
        pytest.skip(f"{engine} is not installed")
    source = peers.SOURCES[engine]
    for name, (module, attribute) in source.classes.items():
        found = peers.peer_class(engine, name)
        assert attribute == found.__name__
        assert found.__module__ == module
        assert not isinstance(found, peers.StandIn)
    for name in (*source.stubbed, *source.optional):
        assert not isinstance(sys.modules.get(name), peers.StandInModule)


def test_a_class_that_has_moved_is_a_missing_peer(tmp_path, monkeypatch):
    (tmp_path / "moved_engine.py").write_text("class Here: pass\n")
    (tmp_path / "moved_engine-1.2.dist-info").mkdir()
    (tmp_path / "moved_engine-1.2.dist-info" / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: moved_engine\nVersion: 1.2\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    classes = {"There": ("moved_engine", "There"), "Far": ("moved_engine.far", "Far")}
    monkeypatch.setitem(peers.SOURCES, "moved_engine", peers.Source(classes, (), (), ()))
    for name in classes:
        with pytest.raises(peers.MissingPeerError, match=f"moved_engine 1.2 is installed, but its {name} cannot be"):
            peers.peer_class("moved_engine", name)


def test_what_is_left_out_can_be_named_while_an_engine_is_imported_and_not_called_later(tmp_path, monkeypatch):
    package = tmp_path / "small_engine"
    (package / "inner").mkdir(parents=True)
    (package / "__init__.py").write_text("raise RuntimeError('the whole engine')\n")
    (package / "inner" / "__init__.py").write_text("")
    (package / "inner" / "books.py").write_text(
        "import missing_library.kernels as kernels\n"
        "from small_engine.model import Weights\n"
        "@kernels.compiled\n"
        "def fast(): return 'ran'\n"
        "@kernels.tuned(warps=4)\n"
        "def tuned(): pass\n"
        "class Books(Weights):\n"
        "    config: Weights | None = None\n"
        "    table: kernels.Table[int, 3]\n"
        "    def slow(self): return kernels.launch()\n"
        "    def fast(self): return fast()\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    source = peers.Source(
        {"Books": ("small_engine.inner.books", "Books")},
        ("small_engine",),
        ("small_engine.model",),
        ("missing_library",),
    )
    monkeypatch.setitem(peers.SOURCES, "small_engine", source)
    books = peers.peer_class("small_engine", "Books")()
    assert books.fast() == "ran"
    with pytest.raises(RuntimeError, match=r"missing_library\.kernels.launch is a stand-in and cannot be called"):
        books.slow()
    assert "missing_library" not in sys.modules
    assert "small_engine.model" not in sys.modules
    with pytest.raises(ModuleNotFoundError):
        import missing_library  # noqa: F401


# By what the allocator benchmarks of the suite are given; a change there is a new line here too.
VERSIONS = {
    "PeerFreshAlloc.time_alloc": "1",
    "PeerChurnedAlloc.time_alloc": "1",
    "PeerFree.time_free": "1",
    "PeerRetention.track_retained_bytes": "1",
    "PeerBooks.track_book_bytes_per_page": "2",
    "PeerPrefixMatch.time_match": "1",
    "PeerAppend.time_append": "1",
    "PeerReplayTime.time_allocator": "1",
    "PeerReplayRuns.track_runs_per_alloc": "1",
    "AdoptedDecode.time_alloc_decode": "1",
    "AdoptedExtend.time_alloc_extend": "1",
    "AdoptedFree.time_free": "1",
    "AdoptedFree.time_free_segment": "1",
    "AdoptedBlocks.time_get_and_free": "1",
    "AdoptedBlocks.time_hit_and_free": "1",
    "AdoptedOffload.time_store": "1",
    "AdoptedRanges.time_allocate_and_free": "1",
    "AdoptedAdd.time_add_requests": "1",
    "AdoptedAppend.time_append": "1",
    "AdoptedMatch.time_match": "1",
}


def found_benchmarks():
    found = [each for each in disc_benchmarks("benchmarks") if each.name.startswith("bench_peers")]
    return {each.name.partition(".")[2]: each for each in found}


def test_the_benchmarks_beside_peers_are_there_where_an_engine_is():
    versions = {name: each.version for name, each in found_benchmarks().items()}
    assert versions == (VERSIONS if peers.installed() else {})


@pytest.mark.skipif(not peers.installed(), reason="no engine is installed")
@pytest.mark.parametrize("name", [name for name in VERSIONS if name.startswith("Peer")])
def test_the_benchmarks_beside_peers_run(name):
    params = found_benchmarks()[name]._params
    for index, values in enumerate(itertools.product(*params)):
        # One size is enough here: each allocator and container is.
        if len(values) == 2 and values[0] not in (8, 1_000, "conversation"):
            continue
        once = {"repeat": 1, "number": 1, "warmup_time": 0, "min_run_count": 1, "rounds": 1}
        benchmark = get_benchmark_from_name("benchmarks", f"bench_peers.{name}-{index}", extra_params=once)
        if benchmark.do_setup():
            engine = values[-1].split("_")[0]
            refused = values[-1] == "lmcache" and name.startswith("PeerRetention")
            assert refused or (engine in peers.SOURCES and engine not in peers.installed()), f"{name}{values} is n/a"
            continue
        result = benchmark.do_run()
        assert (result["samples"][0] if benchmark.type == "time" else result) > 0


REPLACES = {"Blocks": "vllm", "Offload": "vllm", "Add": "vllm", "Append": "vllm", "Ranges": "lmcache"}


@pytest.mark.skipif(not peers.installed(), reason="no engine is installed")
@pytest.mark.parametrize("name", [name for name in VERSIONS if name.startswith("Adopted")])
def test_the_benchmarks_of_what_is_adopted_run(name):
    sizes, sides = found_benchmarks()[name]._params
    assert sides == ["engine", "kvpool"]
    engine = REPLACES.get(name.partition(".")[0].removeprefix("Adopted"), "sglang")
    for index in range(len(sizes) * len(sides)):
        once = {"repeat": 1, "number": 1, "warmup_time": 0, "min_run_count": 1, "rounds": 1}
        benchmark = get_benchmark_from_name("benchmarks", f"bench_peers_adopted.{name}-{index}", extra_params=once)
        if benchmark.do_setup():
            assert engine not in peers.installed(), f"{name}-{index} is n/a"
        else:
            assert benchmark.do_run()["samples"][0] > 0


@pytest.mark.skipif(not peers.installed(), reason="no engine is installed")
@pytest.mark.parametrize("allocator", ["kvpool_fifo", "kvpool_pages", "floor", "floor_pages"])
def test_a_timed_free_frees_what_was_allocated(allocator):
    from benchmarks import bench_peers

    benchmark = bench_peers.PeerFree()
    for _ in range(3):
        benchmark.setup(64, allocator)
        assert len(benchmark.returned) == len(benchmark.calls)
        benchmark.time_free(64, allocator)
    if not allocator.startswith("floor"):
        pool = benchmark.pool
        assert pool.try_alloc(len(bench_peers.churned().free)) is not None
        assert pool.try_alloc(1) is None


@pytest.mark.parametrize("container", peer_stages.CONTAINERS)
@pytest.mark.parametrize("stage", stages.STAGES)
def test_a_peer_s_container_does_at_each_stage_what_a_list_does(container, stage):
    batch = workloads.token_batch(2, 320, 40, 0)
    try:
        held = peer_stages.CONTAINERS[container](batch, "cpu")
    except NotImplementedError as missing:
        pytest.skip(str(missing))
    expected = stages.Lists(batch, "cpu")
    for each in (held, expected):
        each.prepare(stage)
    found, wanted = (getattr(each, stage)() for each in (held, expected))
    if stage == "ingest":
        found = [getattr(each, "prompt_token_ids", each) for each in found]
    if stage == "decode_append":
        found = [getattr(each, "output_token_ids", None) or each.output for each in found]
        wanted = [each.output for each in wanted]
    if stage == "batch_torch_tensor":
        found, wanted = found.tolist(), wanted.tolist()
    if stage in ("prefix_match", "cache_finished_req") and container == "vllm":
        # Whole blocks of 16.
        wanted = [length // 16 * 16 for length in wanted]
    assert [list(each) if not isinstance(each, int) else each for each in found] == [
        list(each) if not isinstance(each, int) else each for each in wanted
    ]
