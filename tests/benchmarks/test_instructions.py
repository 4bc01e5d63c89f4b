"""Counts of instructions: that they are right, that they repeat, and what they say where there are none."""

import json
import subprocess
import sys

import pytest
from asv_runner.discovery import get_benchmark_from_name

from benchmarks import bench_instructions, counted_calls, counting

try:
    MADE_WITH = counting.made_with()
except counting.CannotCountError as error:
    MADE_WITH = ""
    NO_COUNTS = str(error)
else:
    NO_COUNTS = ""
counted = pytest.mark.skipif(bool(NO_COUNTS), reason=NO_COUNTS)

# Two instructions a turn, whoever compiles it.
LOOP = """
void turns(long count) { __asm__ volatile("1: decq %0; jnz 1b" : "+r"(count)); }
"""
TABLE = """
import ctypes
from types import SimpleNamespace

turns = ctypes.CDLL({library!r}).turns
turns.argtypes = [ctypes.c_long]


def call(function, *arguments):
    return lambda: SimpleNamespace(function=function, arguments=arguments, rewind=lambda: None)


def raising():
    raise ValueError("planted")


def dying():
    ctypes.string_at(0)


def endless():
    while True:
        pass


def lacking():
    raise NotImplementedError("this kvpool has no such thing")


CASES = {{
    "1000": call(turns, 1_000),
    "3000": call(turns, 3_000),
    "list": call(lambda: [bytes(size) for size in range(1_000)]),
    "lacking": lacking,
    "raising": call(raising),
    "dying": call(dying),
    "endless": call(endless),
}}
"""
WELL = ["1000", "3000", "list", "lacking", "raising"]


@pytest.fixture
def loop(tmp_path):
    """Count cases of a table that has a known loop."""
    source, library = tmp_path / "loop.c", tmp_path / "loop.so"
    source.write_text(LOOP)
    subprocess.run([*counting._compiler(), "-O1", "-shared", "-fPIC", "-o", str(library), str(source)], check=True)
    (tmp_path / "loops.py").write_text(TABLE.format(library=str(library)))
    return lambda only=WELL, **options: counting.count("loops", only, folder=str(tmp_path), **options)


@counted
def test_a_known_loop_is_counted_to_the_last_instruction_and_a_second_count_is_equal(loop):
    first = loop()
    cases = first["cases"]
    assert cases["3000"]["instructions"] - cases["1000"]["instructions"] == 2 * 2_000
    assert cases["3000"]["functions"]["turns"] == pytest.approx(6_000, abs=10)
    assert loop() == first
    # Nor does it matter what was done before, and with it where things are.
    shifted = loop(shift=1)["cases"]
    assert [shifted[name] for name in ("1000", "3000")] == [cases[name] for name in ("1000", "3000")]
    assert shifted["list"]["instructions"] == pytest.approx(cases["list"]["instructions"], rel=1e-4)
    assert first["made_with"] == MADE_WITH
    assert cases["lacking"] == {"missing": "this kvpool has no such thing"}
    assert cases["raising"] == {"failed": "ValueError: planted"}


@counted
def test_a_process_that_dies_says_of_which_case(loop):
    with pytest.raises(RuntimeError, match="was killed by SIGSEGV, 'dying' while it was prepared"):
        loop(["1000", "dying"])


@counted
def test_a_commit_that_takes_too_long_has_no_counts(loop):
    with pytest.raises(
        counting.CannotCountError, match="a commit takes more than 5 minutes, 'endless' while it was prepared"
    ):
        loop(["1000", "endless"], limit=2)


@counted
@pytest.mark.compiled
def test_what_a_method_costs_is_in_the_functions_of_its_source():
    cases = counting.count(only=["floor 1", "HostAllocator.alloc 64"])["cases"]
    assert not any(name.startswith("kvpool") for name in cases["floor 1"]["functions"])
    alloc = cases["HostAllocator.alloc 64"]
    assert {"kvpool.host.HostAllocator.alloc", "kvpool._fifo_order.FifoOrder.pop"} <= alloc["functions"].keys()
    assert alloc["instructions"] == sum(alloc["functions"].values())
    assert 4_000 < alloc["instructions"] < 20_000


@pytest.mark.parametrize(
    ("symbol", "name"),
    [
        ("__pyx_pw_6kvpool_4host_13HostAllocator_17alloc", "kvpool.host.HostAllocator.alloc"),
        ("__pyx_pw_6kvpool_4host_13HostAllocator_117alloc_runs", "kvpool.host.HostAllocator.alloc_runs"),
        ("__pyx_f_6kvpool_10_run_index_8RunIndex_take.isra.0'2", "kvpool._run_index.RunIndex.take"),
        ("__pyx_f_6kvpool_7_vector_expand", "kvpool._vector.expand"),
        ("_int_malloc.constprop.0", "_int_malloc"),
        ("0x0000000004936730", "unnamed in libc.so.6"),
    ],
)
def test_a_function_has_the_name_that_its_source_gives_it(symbol, name):
    assert counting.readable(symbol, "libc.so.6") == name


@pytest.mark.parametrize("name", counted_calls.CASES)
def test_each_call_can_be_made_again_and_again(name):
    prepare = counted_calls.CASES[name]
    call = prepare()
    for _ in range(3):
        assert call.function(*call.arguments) is not False
        if call.rewind is None:
            call = prepare()
        else:
            call.rewind()


MEMORY = """
import ctypes, random
c = ctypes.CDLL(None, use_errno=True)
for name in ("malloc", "calloc", "realloc", "memalign"):
    getattr(c, name).restype = ctypes.c_void_p
c.free.argtypes = c.malloc_usable_size.argtypes = [ctypes.c_void_p]
c.malloc_usable_size.restype = ctypes.c_size_t
c.malloc.argtypes, c.calloc.argtypes = [ctypes.c_size_t], [ctypes.c_size_t] * 2
c.realloc.argtypes, c.memalign.argtypes = [ctypes.c_void_p, ctypes.c_size_t], [ctypes.c_size_t] * 2
draw, held = random.Random(0), {}
for turn in range(20_000):
    size = draw.choice([0, 1, 16, 17, draw.randrange(300), draw.randrange(100_000), 1 << draw.randrange(20)])
    fill = turn % 255 + 1
    way = turn % 4
    if way == 0:
        at = c.malloc(size)
    elif way == 1:
        at = c.calloc(1, size)
        assert not any(ctypes.string_at(at, size))
    elif way == 2 and held:
        old, (length, before) = held.popitem()
        at = c.realloc(old, size)
        assert ctypes.string_at(at, min(size, length)) == bytes([before]) * min(size, length)
    else:
        at = c.memalign(256, size)
        assert at % 256 == 0
    assert at and at % (64 if size > 256 else 16) == 0 and at not in held, (way, size, at)
    assert size <= c.malloc_usable_size(at) <= 2 * size + 512
    ctypes.memset(at, fill, size)
    held[at] = size, fill
    if len(held) > 100:
        at = draw.choice(list(held))
        size, fill = held.pop(at)
        assert ctypes.string_at(at, size) == bytes([fill]) * size
        c.free(at)
for ask in (lambda: c.malloc(2**63), lambda: c.calloc(2**40, 2**40), lambda: c.memalign(64, 2**64 - 1)):
    assert ask() is None and ctypes.get_errno() == 12
c.free(None)
print("well")
"""


@counted
def test_the_memory_of_the_counted_process_is_memory(tmp_path):
    counter = counting._compiled(tmp_path)
    environment = {"LD_PRELOAD": str(counter), "PYTHONMALLOC": "malloc"}
    done = subprocess.run([sys.executable, "-c", MEMORY], env=environment, capture_output=True, text=True)
    assert done.stdout == "well\n", done.stderr


def test_where_nothing_can_be_counted_all_reads_not_applicable(monkeypatch):
    def refuse(*_):
        raise counting.CannotCountError("there is no valgrind")

    monkeypatch.setattr(counting, "count", refuse)
    monkeypatch.setattr(counting, "made_with", refuse)
    assert bench_instructions.made_with() == "not counted: there is no valgrind"
    benchmark = bench_instructions.Instructions()
    outcomes = benchmark.setup_cache()
    assert outcomes.keys() == counted_calls.CASES.keys()
    with pytest.raises(NotImplementedError, match="no valgrind"):
        benchmark.setup(outcomes, "floor 1", "")


@pytest.mark.parametrize(
    ("variable", "value", "reason"),
    [("PATH", "/nowhere", "there is no valgrind"), ("CC", "/nowhere/cc", None)],
)
def test_a_machine_without_the_tools_says_so(variable, value, reason, monkeypatch, tmp_path):
    monkeypatch.setenv(variable, value)
    command = [sys.executable, "-P", counting.__file__, str(tmp_path / "counts")]
    subprocess.run([*command, "--case", "floor 1"], check=True, env={"PATH": "/usr/bin:/bin", variable: value})
    found = json.loads((tmp_path / "counts").read_text())
    assert found.get("reason") == reason or "there is no kvpool" in found["reason"]


def test_the_benchmark_shows_the_counts_and_fails_where_a_call_fails():
    benchmark = bench_instructions.Instructions()
    outcomes = {"floor 1": {"instructions": 7}, "floor 512": {"failed": "ValueError: planted"}}
    benchmark.setup(outcomes, "floor 1", "")
    assert benchmark.track_instructions(outcomes, "floor 1", "") == 7
    with pytest.raises(RuntimeError, match="ValueError: planted"):
        benchmark.track_instructions(outcomes, "floor 512", "")


def test_counts_of_other_tools_are_other_cases_to_asv():
    benchmark = get_benchmark_from_name("benchmarks", "bench_instructions.Instructions.track_instructions-0")
    assert benchmark._params == [list(counted_calls.CASES), [bench_instructions.made_with()]]
    assert MADE_WITH in benchmark._params[1][0]
