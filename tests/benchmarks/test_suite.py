"""The asv suite: that each benchmark runs on this kvpool, says what it is, and is n/a where it should be."""

import json
import math
import platform
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
import torch
from asv_runner.discovery import disc_benchmarks, get_benchmark_from_name

from benchmarks import bench_memory, common, counted_calls, pools
from kvpool import HostAllocator, OwnerLaneAllocator

ROOT = Path(__file__).parents[2]
BENCHMARKS = {benchmark.name: benchmark for benchmark in disc_benchmarks("benchmarks")}
# What the allocators' modules measure on a machine without a CUDA device.
ALLOCATOR_MODULES = ("bench_host", "bench_lanes", "bench_memory", "bench_import", "bench_canary")
ALLOCATOR_COMBINATIONS = 185
PAGE_MODULES = ("bench_pages",)
PAGE_COMBINATIONS = 44
PAGED_MODULES = ("bench_paged",)
PAGED_COMBINATIONS = 90
TOKEN_MODULES = ("bench_tokens", "bench_token_memory")
TOKEN_COMBINATIONS = 150
CALL_MODULES = ("bench_calls",)
CALL_COMBINATIONS = 80
MODULES = CALL_MODULES + ALLOCATOR_MODULES + PAGE_MODULES + PAGED_MODULES + TOKEN_MODULES


def combinations(benchmark):
    return math.prod(map(len, benchmark._params))


def not_applicable(name, params):
    """Whether a combination is n/a by design on a kvpool that has everything."""
    match name.split(".")[1], *params:
        case "FreshAlloc", order, pages, method:
            return order != "contiguous_fifo" and (pages == 1 or method == "floor")
        case "Growth", num_pages, _, method:
            return method == "floor" and num_pages != 8_192
        case "PagedFree", "group", "floor":
            return True
        case "PageCalls", pages, call:
            return call == "one_run" and pages >= 64
        case (("LaneSelect" | "LaneAlloc"), owners, pages, selection):
            as_round_robin = (owners == "one_rank" and pages == 1) or (owners == "zigzag" and pages in (1, 8))
            return owners != "round_robin" and (as_round_robin or selection == "floor")
        case (("LaneAllocCuda" | "PagedCuda" | "BatchTorchTensorCuda" | "RoadsCuda"), *_):
            return not torch.cuda.is_available()
    return False


@pytest.mark.parametrize("name", BENCHMARKS)
def test_benchmark_says_what_it_is(name):
    benchmark = BENCHMARKS[name]
    assert re.fullmatch(r"\d+", benchmark.version), "version is not set by hand"
    assert benchmark.func.__doc__
    assert type(benchmark.func.__self__).__doc__
    assert len(benchmark.param_names) == len(benchmark._params)
    assert all(re.fullmatch(r"[a-z][a-z_]*", each) for each in benchmark.param_names)
    if benchmark.type == "track":
        assert benchmark.unit != "unit"


@pytest.mark.parametrize("name", [name for name in BENCHMARKS if name.startswith(MODULES)])
def test_every_combination_runs(name):
    once = {"repeat": 1, "number": 1, "warmup_time": 0, "min_run_count": 1, "rounds": 1}
    for index in range(combinations(BENCHMARKS[name])):
        benchmark = get_benchmark_from_name("benchmarks", f"{name}-{index}", extra_params=once)
        params = benchmark._current_params
        assert benchmark.do_setup() == not_applicable(name, params), f"{name}{params}"
        if not_applicable(name, params):
            continue
        result = benchmark.do_run()
        values = result["samples"] if benchmark.type == "time" else [result]
        assert all(math.isfinite(value) and value >= 0 for value in values), f"{name}{params}: {result}"
        kept = getattr(benchmark.func.__self__, "results", None) or []
        assert all(each is not None for each in kept), f"{name}{params} timed a refusal"


@pytest.mark.parametrize(
    ("modules", "limit"),
    [
        (ALLOCATOR_MODULES, ALLOCATOR_COMBINATIONS),
        (PAGE_MODULES, PAGE_COMBINATIONS),
        (PAGED_MODULES, PAGED_COMBINATIONS),
        (TOKEN_MODULES, TOKEN_COMBINATIONS),
        (CALL_MODULES, CALL_COMBINATIONS),
    ],
)
def test_each_family_stays_within_its_number_of_combinations(modules, limit):
    measured = 0
    for name in (name for name in BENCHMARKS if name.startswith(modules)):
        for index in range(combinations(BENCHMARKS[name])):
            benchmark = get_benchmark_from_name("benchmarks", f"{name}-{index}")
            measured += not not_applicable(name, benchmark._current_params)
    assert measured <= limit


# Runs in a process of its own: the suite imports kvpool once.
WITHOUT_ALLOCATORS = """
import sys, types
sys.modules["kvpool"] = types.ModuleType("kvpool")
from asv_runner.discovery import disc_benchmarks, get_benchmark_from_name
for benchmark in disc_benchmarks("benchmarks"):
    if benchmark.name.startswith(tuple(f"bench_{name}" for name in ("calls", "host", "lanes", "memory", "page"))):
        benchmark = get_benchmark_from_name("benchmarks", benchmark.name + "-0")
        print(benchmark.name, benchmark.do_setup())
"""


def test_a_kvpool_without_allocators_reads_not_applicable():
    output = subprocess.run(
        [sys.executable, "-c", WITHOUT_ALLOCATORS], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    lines = [line for line in output.splitlines() if line.startswith("bench_")]
    assert len(lines) > 10
    assert all(line.endswith(" True") for line in lines)


def test_a_pool_without_a_method_reads_not_applicable():
    class Bare:
        num_pages = 8

    with pytest.raises(NotImplementedError, match="alloc_fewest_runs"):
        pools.host_method(Bare(), "fewest_runs")
    with pytest.raises(NotImplementedError, match="alloc_pages"):
        pools.arrange_host(Bare(), np.arange(8))


def test_the_suite_and_the_development_install_have_the_same_pins():
    lines = (ROOT / "asv.conf.json").read_text().splitlines()
    config = json.loads("\n".join(line for line in lines if not line.lstrip().startswith("//")))
    extra = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]["dev"]
    development = dict(requirement.split("==") for requirement in extra)
    pins = {name.removeprefix("pip+"): versions for name, versions in config["matrix"]["req"].items()}
    assert {"torch", "numpy", "numba", "Cython", "asv_runner", "setuptools"} == set(pins)
    assert pins == {name: [development[name]] for name in pins}


def test_uninstalling_removes_what_numba_compiled(tmp_path):
    lines = (ROOT / "asv.conf.json").read_text().splitlines()
    config = json.loads("\n".join(line for line in lines if not line.lstrip().startswith("//")))
    _, command = config["uninstall_command"]
    code = re.search(r'python -c "(.*)"', command).group(1).format(project="kvpool")
    stale = tmp_path / "kvpool" / "__pycache__"
    stale.mkdir(parents=True)
    (stale / "kernels.nbc").touch()
    (tmp_path / "other").mkdir()
    at_tmp_path = f"import sysconfig; sysconfig.get_path = lambda name: {str(tmp_path)!r}; "
    for _ in range(2):  # The second time there is nothing left to remove, which is no failure.
        subprocess.run([sys.executable, "-c", at_tmp_path + code], check=True)
        assert [each.name for each in tmp_path.iterdir()] == ["other"]


class TestRehearsal:
    @pytest.fixture
    def clock(self, monkeypatch):
        """A clock that stands still unless a call moves it on."""
        now = [0.0]
        monkeypatch.setattr(common.time, "process_time", lambda: now[0])
        monkeypatch.setattr(common.Benchmark, "clock", lambda self: now[0])
        return now

    @staticmethod
    def taking(clock, seconds):
        """Return a call that takes so long."""

        def call():
            clock[0] += seconds
            return 0

        return call

    @staticmethod
    def timed(benchmark, calls):
        """Return the figure that asv reads of calls."""
        start = benchmark.timer()
        for each in calls:
            each()
        return benchmark.timer() - start

    @pytest.mark.parametrize("calls_each", [1, 64])
    def test_a_figure_is_what_one_call_costs(self, clock, calls_each):
        benchmark, trace = common.Benchmark(), [self.taking(clock, 0.0001)] * 30
        assert benchmark.rehearse(trace, calls_each) == 30
        assert self.timed(benchmark, trace) == pytest.approx(0.0001 / calls_each)
        assert benchmark.repeat == common.Benchmark.repeat

    def test_a_class_may_have_a_clock_of_its_own(self):
        class OfItsOwn(common.Benchmark):
            clock = staticmethod(iter([4.0, 12.0]).__next__)

        benchmark = OfItsOwn()
        benchmark.share_out(4)
        assert (benchmark.timer(), benchmark.timer()) == (1.0, 3.0)

    def test_a_refusal_is_not_timed(self):
        answers = iter([1, 1, None])
        with pytest.raises(NotImplementedError, match="does not fit"):
            common.Benchmark().rehearse([lambda: next(answers)] * 3)

    def test_a_slow_trace_is_cut_short_and_its_figure_is_the_same(self, clock):
        benchmark, trace = common.Benchmark(), [self.taking(clock, 0.004)] * 30
        done = benchmark.rehearse(trace)
        assert done == math.ceil(benchmark.sample_limit / 0.004)
        assert self.timed(benchmark, trace[:done]) == pytest.approx(0.004)
        assert benchmark.repeat == (1, 1, 0)


class TestCounts:
    def test_shown_bytes_counts_each_storage_once_and_whole(self):
        whole = torch.zeros(1_000, dtype=torch.int64)
        array = np.zeros(50, dtype=np.int64)
        assert common.shown_bytes([whole[:3], whole[5:6]]) == 8_000
        assert common.shown_bytes([array[:2], array[3:], np.zeros(2, dtype=np.int64)]) == 400 + 16

    @pytest.mark.parametrize(
        ("result", "least"),
        [
            (lambda: torch.from_numpy(np.empty(64_000, np.int64)[:64]), 512_000),
            (lambda: torch.empty(64_000, dtype=torch.int64)[:64], 512_000),
            (lambda: np.empty(64_000, np.int64)[:64], 512_000),
            (lambda: torch.frombuffer(bytearray(512_000), dtype=torch.int64)[:64], 512_000),
            (lambda: bytes(512_000), 512_000),
            (lambda: common.floor(64), 512),
            (lambda: HostAllocator(1, 64).alloc(64), 512),
            (lambda: OwnerLaneAllocator(1, 64, 1).alloc_pages_with_owners([0]), 512),
        ],
    )
    def test_retained_bytes_counts_whatever_is_behind_a_result(self, result, least):
        counts = [common.retained_bytes(lambda: [result() for _ in range(10)]) for _ in range(3)]
        assert len(set(counts)) == 1
        assert 10 * least <= counts[0] <= 10 * (least + 400)

    def test_retained_bytes_counts_shared_memory_once_and_kept_memory_not_at_all(self):
        whole = np.zeros(64_000, np.int64)
        assert common.retained_bytes(lambda: [torch.from_numpy(whole[:64]) for _ in range(10)]) < 5_120

        def halves():
            shared = np.empty(64_000, np.int64)
            return [torch.from_numpy(shared[:64]), torch.from_numpy(shared[64:128])]

        assert 512_000 <= common.retained_bytes(halves) < 513_000

    def test_book_bytes_sees_python_numpy_and_torch(self):
        class Books:
            def __init__(self):
                self.ids = list(range(10_000, 20_000))
                self.array = np.zeros(100_000, dtype=np.int64)
                self.nested = {"view": (torch.zeros(50_000, dtype=torch.int64)[:10],)}

        expected = 10_000 * (8 + sys.getsizeof(10_000)) + 800_000 + 400_000
        assert common.book_bytes(Books) == pytest.approx(expected, rel=0.05)

    def test_aten_operations_are_counted(self):
        with common.AtenCounter() as counter:
            (torch.zeros(3) + 1).sum()
        assert counter.operations == 3

    def test_floor_returns_the_slots(self):
        assert common.floor(5).tolist() == [0, 1, 2, 3, 4]
        assert common.floor(5).dtype == torch.int64


# Two traces of 5 MB each, the first of them dropped: the second must find its memory where it was.
FAULTS = """
import resource
from benchmarks.common import floor
faults = []
for _ in range(4):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    results = [floor(32_768) for _ in range(20)]
    faults.append(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
    del results
print(faults[-1])
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="the memory allocator is not glibc's")
def test_a_trace_of_megabytes_pays_no_page_faults():
    output = subprocess.run([sys.executable, "-c", FAULTS], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert int(output) < 50  # 1,280 pages of 4 kB otherwise.


class KeepingPool(HostAllocator):
    """What a module would keep of each call is kept by the class."""

    kept: ClassVar[list[object]] = []
    keep = None

    def alloc(self, need_size):
        self.kept.append(self.keep(need_size))
        return super().alloc(need_size)


@pytest.mark.parametrize("keep", [lambda size: object(), lambda size: bytes(size), lambda size: None, np.empty])
def test_what_a_call_keeps_is_left_behind(keep, monkeypatch):
    monkeypatch.setattr(KeepingPool, "kept", [])
    monkeypatch.setattr(KeepingPool, "keep", staticmethod(keep))
    monkeypatch.setattr(pools, "HostAllocator", KeepingPool)
    alloc, free_pages = (
        bench_memory.left_behind([counted_calls.CASES[f"HostAllocator.{name}"]])[0]
        for name in ("alloc 1", "free_page_ids")
    )
    assert alloc > 0
    assert free_pages == 0


def test_what_grows_once_in_a_while_is_not_left_behind(monkeypatch):
    held = iter([[0, 300, 600, 900], [0, 300, 600, 900], [0, 1, 1, 0]])
    monkeypatch.setattr(bench_memory, "traced", lambda prepare: np.array(next(held)))
    assert bench_memory.least_growth(None) == 0
    held = iter([[0, 320, 600, 960], [0, 0, 640, 640], [0, 0, 0, 1]])
    assert bench_memory.least_growth(None) == 280


@pytest.mark.parametrize("kind", bench_memory.LeftBehind.params[0])
def test_calls_leave_nothing_behind(kind):
    benchmark = bench_memory.LeftBehind()
    benchmark.setup(kind)
    assert benchmark.track_bytes_per_call(kind) == 0
