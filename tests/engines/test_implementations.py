"""The allocators sweep with other implementations: the straightforward one, the engines', an engine's own by owner."""

import json
import sys
from types import SimpleNamespace

import pytest
import torch

from benchmarks import peers, workloads
from sweeps import allocators, implementations

SMALL = ["--host-pages", "64", "--physical-pages", "32", "--request-pages", "1,8", "--repeat", "3", "--warmup", "1"]


def sweep(*arguments):
    return allocators.main([*SMALL, *arguments])


def records(tmp_path, *arguments):
    output = tmp_path / "figures.json"
    assert sweep(*arguments, "--json-output", str(output)) == 0
    return json.loads(output.read_text())["records"]


def refused(capsys, *arguments):
    with pytest.raises(SystemExit) as error:
        sweep(*arguments)
    printed = capsys.readouterr()
    assert (error.value.code, printed.out) == (2, "")
    assert printed.err.count("\n") == 1
    return printed.err


@pytest.fixture(params=implementations.ENGINES)
def engine(request):
    try:
        peers.POOLS[request.param](1, 1)
    except peers.MissingPeerError as missing:
        pytest.skip(str(missing))
    return request.param


def test_simple_is_measured_as_kvpool_is(tmp_path):
    grid = ("--l1-ops", "alloc_pages,free", "--l1-owner-patterns", "round_robin,one_rank")
    ours, simple = (records(tmp_path, *grid, "--host-impl", name, "--l1-impl", name) for name in ("kvpool", "simple"))
    assert ours
    case = ("bench", "method", "selection", "pattern", "owners", "pages", "request", "contiguous_share")
    assert [[each[field] for field in case] for each in ours] == [[each[field] for field in case] for each in simple]


def test_what_simple_does_not_have_is_skipped(capsys):
    assert sweep("--bench", "l1", "--l1-impl", "simple", "--l1-ops", "stats,select_only") == 0
    assert "simple has no select_only" in capsys.readouterr().out


def test_an_engine_s_pool_is_measured_in_every_pattern(tmp_path, engine):
    found = records(tmp_path, "--bench", "host", "--host-impl", engine, "--host-methods", "fifo,floor")
    assert {each["method"] for each in found} == {engine, "floor"}
    expected = len(workloads.HOST_PATTERNS) * 2
    assert len([each for each in found if each["method"] == engine]) == expected
    one_run = [each for each in found if each["method"] == engine and each["pattern"] == "contiguous_fifo"]
    assert [each["contiguous_share"] for each in one_run] == [1.0, 1.0]


def test_an_engine_s_pool_is_measured_as_a_device_tier_of_one_lane(tmp_path, engine):
    arguments = ("--bench", "l1", "--l1-impl", engine, "--cp-size", "1", "--l1-owner-patterns", "round_robin")
    found = records(tmp_path, *arguments, "--l1-ops", "alloc_pages,free", "--l1-selection", "fifo")
    assert {each["method"] for each in found} == {"alloc_pages", "free"}


def test_an_engine_s_pool_starts_each_sample_with_the_same_pages(engine):
    order = workloads.shuffled(64, 3)[:20].tolist()
    state = implementations._Engine(peers.POOLS[engine](64, 4), 64, order, 4)
    results = []
    for _ in range(3):
        request = state.rewind()
        result = state.allocate(request)
        results.append(None if result is None else state.pool.page_ids(result).tolist())
    assert results[0] == results[1] == results[2]


def test_what_is_not_there_is_refused_before_anything_runs(capsys):
    assert "unknown name 'best': write one of kvpool,simple,sglang," in refused(capsys, "--host-impl", "best")
    assert "unknown name 'kvpool_fifo'" in refused(capsys, "--l1-impl", "kvpool_fifo")
    assert "unknown name 'test': write one of standalone,production" in refused(capsys, "--l1-allocator", "test")
    assert "write no --l1-impl" in refused(capsys, "--l1-impl", "simple", "--l1-allocator", "production")
    if "vllm" not in peers.installed():
        assert "argument --host-impl: vllm: vllm is not installed" in refused(capsys, "--host-impl", "vllm")
        assert "argument --l1-impl: vllm: vllm is not installed" in refused(capsys, "--l1-impl", "vllm")
    else:
        assert "argument --l1-impl: vllm knows no owners: write --cp-size 1" in refused(capsys, "--l1-impl", "vllm")
    if "sglang" not in peers.installed():
        reason = "argument --l1-allocator: sglang is not installed: write standalone"
        assert reason in refused(capsys, "--l1-allocator", "production")


# An engine's own allocator by owner, as a fork of SGLang has it; its books are kvpool's.
FORK = """
import sgl_kernel
from kvpool import OwnerLaneAllocator


class CPSharedPagedTokenToKVPoolAllocator:
    def __init__(
        self, logical_size, physical_size, page_size, dtype, device, kvcache, need_sort, cp_size, cp_rank
    ):
        assert (kvcache, need_sort, cp_rank, logical_size) == (None, False, 0, physical_size * cp_size)
        self.books = OwnerLaneAllocator(physical_size // page_size, page_size, cp_size, device=device)

    def alloc_pages_with_owners(self, owners):
        return self.books.alloc_pages_with_owners(owners)

    def free(self, slots):
        return self.books.free(slots)

    @property
    def free_pages(self):
        return self.books.free_pages

    @free_pages.setter
    def free_pages(self, pages):
        self.books.free_pages = pages

    @property
    def release_pages(self):
        return self.books.release_pages

    @release_pages.setter
    def release_pages(self, pages):
        self.books.release_pages = pages
"""


@pytest.fixture
def fork(tmp_path, monkeypatch):
    """Put an SGLang on the path that has an allocator by owner and needs its compiled module."""
    if "sglang" in peers.installed():
        pytest.skip("another sglang is installed")
    package = tmp_path / "site" / "sglang"
    for folder in (package, package / "srt", package / "srt" / "mem_cache"):
        folder.mkdir(parents=True)
        (folder / "__init__.py").write_text("raise RuntimeError('the whole engine')\n")
    (package / "srt" / "mem_cache" / "cp_allocator.py").write_text(FORK)
    information = tmp_path / "site" / "sglang-0.dist-info"
    information.mkdir()
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: sglang\nVersion: 0\n")
    monkeypatch.syspath_prepend(tmp_path / "site")
    peers.class_of.cache_clear()
    yield
    peers.class_of.cache_clear()
    for name in [name for name in sys.modules if name.split(".")[0] == "sglang"]:
        del sys.modules[name]


@pytest.mark.usefixtures("fork")
def test_an_engine_s_own_allocator_by_owner_is_measured(tmp_path, capsys):
    production = ("--bench", "l1", "--l1-allocator", "production", "--cp-size", "2", "--l1-selection", "contiguous")
    reason = refused(capsys, *production)
    assert "sglang 0 is installed, but its CPSharedPagedTokenToKVPoolAllocator cannot be had: No module named" in reason
    grid = (*production, "--l1-ops", "alloc_pages,free,stats", "--stub-sgl-kernel")
    found = records(tmp_path, *grid)
    ours = records(tmp_path, *grid, "--l1-allocator", "standalone")
    assert [each for each in ours if each["method"] == "stats"]
    ours = [each for each in ours if each["method"] != "stats"]
    shares = [[(each["method"], each["contiguous_share"]) for each in some] for some in (found, ours)]
    assert shares[0] == shares[1]


@pytest.mark.usefixtures("fork")
def test_an_sglang_without_an_allocator_by_owner_is_refused(tmp_path, capsys):
    (tmp_path / "site" / "sglang" / "srt" / "mem_cache" / "cp_allocator.py").write_text("class Other: pass\n")
    reason = refused(capsys, "--l1-allocator", "production")
    assert "the sglang that is installed has no CPSharedPagedTokenToKVPoolAllocator: write standalone" in reason


def test_a_production_pool_is_brought_back_through_its_free_sets():
    pool = SimpleNamespace(free_pages=torch.arange(5), release_pages=torch.arange(5, 7))
    restore = implementations.restorer(pool)
    pool.free_pages, pool.release_pages = torch.arange(2), torch.arange(9)
    restore()
    assert (pool.free_pages.tolist(), pool.release_pages.tolist()) == ([0, 1, 2, 3, 4], [5, 6])
