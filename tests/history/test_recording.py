"""Which commits ``make bench`` and ``make history`` measure; asv itself is replaced by a few lines that record."""

import errno
import importlib.metadata
import math
import re
import shutil
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from history import UsageError, commits, machine, measure, points, publish, recording, records
from history.asv_calls import installed
from tests.history import recorded
from tests.history.recorded import ALLOC, CANARY, RUNS, benchmark, write

HASHES = [letter * 40 for letter in "abc"]
LEFT_OUT = "d" * 40
COUNTS = "bench_instructions.Instructions.track_instructions"
MACHINE = {**recorded.MACHINE, "machine": "here"}


@pytest.fixture
def asv(tmp_path, monkeypatch):
    """Stand in for asv: it records what the test prepared, and remembers what it was asked."""
    fake = SimpleNamespace(
        results=tmp_path / "results",
        canary={name: [1.0] for name in HASHES},
        figures={ALLOC: [1.0] * 4, RUNS: [2.0]},
        counted_with="valgrind 3",
        installed={"torch": "2.13.0+cpu", "cython": "3.3.1"},
        calls=[],
        benchmarks=[],
        published=0,
        during=lambda commit: None,
    )

    def run(conf, hashes, bench=None, only_missing=False):
        desk = Path(conf.results_dir)
        assert desk != fake.results
        counts = benchmark(COUNTS, "instructions", "track", call=["'alloc'"], counted_with=[repr(fake.counted_with)])
        monkeypatch.setitem(recorded.BENCHMARKS, COUNTS, counts)
        if bench == ["just-discover"]:
            desk.mkdir(parents=True, exist_ok=True)
            write(desk, "0" * 40, {}, machine="another")
            shutil.rmtree(desk / "another")
            return 0
        for commit in hashes:
            fake.during(commit)
            fake.calls.append((commit[0], only_missing))
            fake.benchmarks.append(bench)
            ratios = fake.canary[commit]
            canary = ratios.pop(0) if len(ratios) > 1 else ratios[0]
            figures = {CANARY: [canary], **fake.figures, **({} if bench else {COUNTS: [100.0]})}
            write(desk, commit, figures, machine=MACHINE["machine"])
        return 0

    monkeypatch.setattr("history.asv_calls.run", run)
    monkeypatch.setattr("history.asv_calls.environment_name", lambda conf: "env")
    monkeypatch.setattr(
        "history.asv_calls.configuration",
        lambda results=None: SimpleNamespace(
            results_dir=str(results or fake.results),
            branches=["main"],
            env_dir=".asv/env",
            matrix={"req": {"torch": ["2.13.0"], "Cython": ["3.3.1"]}},
        ),
    )
    monkeypatch.setattr("history.asv_calls.installed", lambda conf: fake.installed)
    monkeypatch.setattr(recording, "SCRATCH", tmp_path / ".asv")
    monkeypatch.setattr(recording, "describe", lambda: MACHINE)
    monkeypatch.setattr(recording, "processor", lambda: "model 17")
    chosen = [points.Change(name, f"change {name[0]}", 100, name != LEFT_OUT, "large") for name in [*HASHES, LEFT_OUT]]
    monkeypatch.setattr(points, "choose", lambda *_: chosen)
    monkeypatch.setattr(publish, "recorded", lambda: setattr(fake, "published", fake.published + 1))
    return fake


def contents(folder):
    return {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def canary_of(folder, commit):
    (found,) = [each for each in records.load(folder) if each.commit == commit]
    return found.figures[records.Case(CANARY, ())]


def test_all_points_are_measured_on_a_machine_that_has_none(asv, capsys):
    assert measure.record(None) == 0
    assert asv.calls == [("a", True), ("b", True), ("c", True)]
    assert asv.published == 1
    printed = capsys.readouterr().out
    assert "0 of 3 commits are measured on this machine" in printed
    assert "[1/3] aaaaaaaa change a" in printed
    assert "[3/3, about 0 min left] cccccccc change c" in printed


def test_what_is_measured_is_not_measured_again(asv):
    measure.record(None)
    asv.calls.clear()
    assert measure.record(None) == 0
    assert asv.calls == []
    assert asv.published == 2


def interrupt(commit):
    if commit == HASHES[1]:
        raise KeyboardInterrupt


def test_an_interrupted_history_goes_on_where_it_was(asv):
    asv.during = interrupt
    with pytest.raises(KeyboardInterrupt):
        measure.record(None)
    assert len(records.files(asv.results)) == 1
    assert records.damage(asv.results) == {}
    asv.during = lambda commit: None
    measure.record(None)
    assert asv.calls == [("a", True), ("b", True), ("c", True)]


def test_what_asv_has_written_by_half_is_not_kept(asv, tmp_path):
    def die_while_writing(commit):
        if commit == HASHES[1]:
            path = tmp_path / ".asv" / "recording" / "here" / f"{commit[:8]}-env.json"
            path.write_text('{"version": 2, "commit_ha')
            raise OSError(errno.ENOSPC, "No space left on device")

    asv.during = die_while_writing
    with pytest.raises(OSError, match="No space left"):
        measure.record(None)
    assert records.damage(asv.results) == {}
    asv.during = lambda commit: None
    assert measure.record(None) == 0
    assert asv.calls == [("a", True), ("b", True), ("c", True)]


def test_results_on_a_full_disk_are_what_they_were(asv, monkeypatch):
    asv.during = interrupt
    with pytest.raises(KeyboardInterrupt):
        measure.record(None)
    asv.during = lambda commit: None
    before = contents(asv.results)

    def full(file):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(UsageError, match=r"cannot be written \(No space left on device\); it is what it was before"):
        measure.record(None)
    assert contents(asv.results) == before


def test_a_disturbed_commit_is_measured_again_until_it_is_not(asv, capsys):
    asv.canary[HASHES[1]] = [1.4, 1.3, 1.05]
    assert measure.record(None) == 0
    assert asv.calls[3:] == [("b", False), ("b", False)]
    assert "disturbed:" not in capsys.readouterr().out
    assert [(each.measurements, each.disturbed) for each in recording.read(asv.results)] == [(1, ""), (3, ""), (1, "")]


def test_a_commit_that_stays_disturbed_is_named_and_marked_and_then_left(asv, capsys):
    asv.canary[HASHES[2]] = [1.4]
    measure.record(None)
    assert asv.calls[3:] == [("c", False)] * measure.TRIES
    assert "disturbed: cccccccc change c (canary at 1.40 of its median)" in capsys.readouterr().out
    marked = recording.read(asv.results)[2]
    assert (marked.commit, marked.canary, marked.disturbed) == (HASHES[2], 1.4, "yes")
    asv.calls.clear()
    measure.record(None)
    assert asv.calls == []


def test_of_two_disturbed_measurements_the_better_one_is_kept(asv):
    asv.canary[HASHES[2]] = [1.2, 1.1, 1.3]
    measure.record(None)
    assert canary_of(asv.results, HASHES[2]) == 1.1


def test_a_measurement_that_fails_does_not_replace_one_that_did_not(asv):
    asv.canary[HASHES[2]] = [1.2, 1.0]

    def fail_again(commit):
        if len(asv.calls) == 3:
            asv.figures = {ALLOC: [None] * 4, RUNS: [None]}

    asv.during = fail_again
    assert measure.record(None) == 0
    assert canary_of(asv.results, HASHES[2]) == 1.2


@pytest.mark.parametrize(
    ("here", "named"),
    [
        ({"cpu": "Intel Xeon", "machine": "x"}, r"cpu \(AMD EPYC; here Intel Xeon\)"),
        ({"ram": "48GiB", "machine": "x"}, r"ram \(24GiB; here 48GiB\)"),
        ({"os": "Darwin"}, r"os \(Linux; here Darwin\)"),
    ],
)
def test_another_machine_does_not_go_on_with_a_record(asv, monkeypatch, here, named):
    measure.record(None)
    asv.calls.clear()
    before = contents(asv.results)
    monkeypatch.setattr(recording, "describe", lambda: {**MACHINE, **here})
    with pytest.raises(UsageError, match=f"recorded on another machine.*{named}"):
        measure.record(None)
    assert asv.calls == []
    assert contents(asv.results) == before


def test_a_processor_of_the_same_name_but_another_kind_does_not_go_on_either(asv, monkeypatch):
    measure.record(None)
    monkeypatch.setattr(recording, "processor", lambda: "model 1")
    with pytest.raises(UsageError, match=r"processor \(model 17; here model 1\)"):
        measure.record(None)


def test_broken_results_are_refused_before_anything_is_measured(asv):
    measure.record(None)
    asv.calls.clear()
    records.files(asv.results)[0].write_text("{")
    with pytest.raises(UsageError, match=r"aaaaaaaa-env\.json cannot be used"):
        measure.record(None)
    records.files(asv.results)[0].unlink()
    (asv.results / "recording.csv").write_text("commit,seconds\na,b\n")
    with pytest.raises(UsageError, match=r"recording\.csv cannot be used"):
        measure.record(None)
    assert asv.calls == []


def test_an_environment_that_is_not_as_its_name_says_is_refused(asv):
    asv.installed["cython"] = "3.3.2"
    with pytest.raises(UsageError, match=r"has Cython 3\.3\.2, and results would be filed under 3\.3\.1"):
        measure.record(None)
    assert asv.calls == []


def test_the_libraries_of_an_environment_are_asked_of_its_interpreter(monkeypatch):
    conf = SimpleNamespace(env_dir=".asv/env")
    monkeypatch.setattr("history.asv_calls.environment_python", lambda conf: Path(sys.executable))
    assert installed(conf)["numpy"] == importlib.metadata.version("numpy")
    monkeypatch.setattr("history.asv_calls.environment_python", lambda conf: Path("/nowhere/python"))
    with pytest.raises(UsageError, match="does not run"):
        installed(conf)


def test_without_valgrind_nothing_is_recorded_unless_told_so(asv):
    asv.counted_with = "not counted: there is no valgrind"
    with pytest.raises(UsageError, match="not counted: there is no valgrind; --without-instructions records the times"):
        measure.record(None)
    assert asv.calls == []
    assert measure.record(None, with_instructions=False) == 0
    ((regex,),) = {tuple(each) for each in asv.benchmarks}
    assert not re.search(regex, COUNTS)
    assert re.search(regex, ALLOC)


def test_instructions_that_were_left_out_are_recorded_later(asv):
    measure.record(None, with_instructions=False)
    asv.calls.clear()
    assert measure.record(None) == 0
    assert len(asv.calls) == 3
    assert records.Case(COUNTS, ("'alloc'", "'valgrind 3'")) in records.load(asv.results)[0].figures


def test_a_commit_without_any_figure_is_named_and_not_kept(asv, capsys):
    asv.canary[HASHES[1]] = [None]

    def build(commit):
        asv.figures = {ALLOC: [None] * 4, RUNS: [None]} if commit == HASHES[1] else {ALLOC: [1.0] * 4, RUNS: [2.0]}

    asv.during = build
    assert measure.record(None, with_instructions=False) == 1
    assert "failed: bbbbbbbb everything" in capsys.readouterr().out
    assert {each.commit for each in records.load(asv.results)} == {HASHES[0], HASHES[2]}


def test_the_report_says_how_long_it_took_and_what_took_longest():
    rows = [recording.Row(name, 90.0, 1, 1.0, "", "") for name in HASHES[:2]]
    count = "<setup_cache bench_instructions:28>"
    durations = {
        HASHES[0]: {"<build>": 20.0, "slow": 50.0, "quick": 1.0, count: 30.0},
        HASHES[1]: {"slow": 130.0, "quick": 2.0, count: 95.0},
    }
    lines = recording.report(rows, durations).splitlines()
    assert lines[0].startswith("2 commits took 3 min, 1.5 each.")
    assert lines[2].split() == ["aaaaaaaa", "90", "51", "30", "1"]
    assert lines[3].split()[2:] == ["132", "95", "1", "suite", "above", "120", "counting", "above", "90"]
    assert [line.split()[1] for line in lines[5:]][:2] == ["slow", "<setup_cache"]


def test_a_processor_is_told_by_more_than_its_name(monkeypatch, tmp_path):
    text = "cpu family\t: 25\nmodel\t\t: 17\nmodel name\t: AMD EPYC\nstepping\t: 1\ncpu MHz\t\t: 2000.1\n"
    monkeypatch.setattr(Path, "read_text", lambda *_, **__: text)
    assert machine.processor() == "cpu family 25, model 17, stepping 1"


def test_what_failed_is_named_and_tried_again_next_time(asv, capsys):
    asv.figures = {ALLOC: [1.0, None, math.nan, 1.0], RUNS: [2.0]}
    assert measure.record(None) == 1
    assert f"failed: aaaaaaaa {ALLOC}(1, 'floor')" in capsys.readouterr().out
    asv.calls.clear()
    asv.figures = {ALLOC: [1.0, 1.0, math.nan, 1.0], RUNS: [2.0]}
    assert measure.record(None) == 0
    assert len(asv.calls) == 3


def test_a_benchmark_that_is_new_in_the_suite_is_missing_from_every_commit(asv):
    asv.figures = {ALLOC: [1.0] * 4}
    measure.record(None)
    asv.calls.clear()
    asv.figures = {ALLOC: [1.0] * 4, RUNS: [2.0]}
    assert measure.record(None) == 0
    assert asv.calls == [("a", True), ("b", True), ("c", True)]


def test_a_range_is_measured_in_place_of_the_points(asv, monkeypatch):
    monkeypatch.setattr(commits, "in_range", lambda spec: HASHES[:2])
    monkeypatch.setattr(commits, "describe", lambda names: [commits.Commit(name, 0, "subject") for name in names])
    measure.record("a..b")
    assert asv.calls == [("a", True), ("b", True)]


def test_bench_measures_the_last_changes_the_newest_first_under_the_scratch_folder(asv, monkeypatch, tmp_path):
    shown = []
    monkeypatch.setattr(measure, "SCRATCH", tmp_path / ".asv")
    monkeypatch.setattr(publish, "beside_history", shown.append)
    monkeypatch.setattr(commits, "last_changes", lambda path, count: HASHES if (path, count) == ("kvpool/", 3) else [])
    assert measure.bench(None) == 0
    assert [commit for commit, _ in asv.calls] == ["c", "b", "a"]
    assert shown == [tmp_path / ".asv" / "results"]


def test_bench_without_a_change_to_measure_says_what_to_do(monkeypatch):
    monkeypatch.setattr(commits, "last_changes", lambda path, count: [])
    with pytest.raises(UsageError, match="name a range"):
        measure.bench(None)
