"""Which commits ``make bench`` and ``make history`` measure; asv itself is replaced by a few lines that record."""

import math
from types import SimpleNamespace

import pytest

from history import UsageError, commits, measure, points, publish
from tests.history.recorded import ALLOC, CANARY, RUNS, write

HASHES = [letter * 40 for letter in "abc"]
LEFT_OUT = "d" * 40


@pytest.fixture
def asv(tmp_path, monkeypatch):
    """Stand in for asv: it records what the test prepared, and remembers what it was asked."""
    fake = SimpleNamespace(
        results=tmp_path / "results",
        canary={name: [1.0] for name in HASHES},
        figures={ALLOC: [1.0] * 4, RUNS: [2.0]},
        calls=[],
        published=0,
        interrupt_at=None,
    )

    def run(conf, hashes, bench=None, only_missing=False):
        if bench == ["just-discover"]:
            fake.results.mkdir(exist_ok=True)
            write(fake.results, "0" * 40, {}, machine="another")
            return 0
        for commit in hashes:
            if commit == fake.interrupt_at:
                raise KeyboardInterrupt
            fake.calls.append((commit[0], only_missing))
            ratios = fake.canary[commit]
            canary = ratios.pop(0) if len(ratios) > 1 else ratios[0]
            write(fake.results, commit, {CANARY: [canary], **fake.figures}, machine="here")
        return 0

    monkeypatch.setattr("history.asv_calls.run", run)
    monkeypatch.setattr("history.asv_calls.environment_name", lambda conf: "env")
    conf = SimpleNamespace(results_dir=str(fake.results), branches=["main"])
    monkeypatch.setattr("history.asv_calls.configuration", lambda **_: conf)
    chosen = [points.Change(name, f"change {name[0]}", 100, name != LEFT_OUT, "large") for name in [*HASHES, LEFT_OUT]]
    monkeypatch.setattr(points, "choose", lambda *_: chosen)
    monkeypatch.setattr(measure, "describe", lambda: {"machine": "here"})
    monkeypatch.setattr(publish, "recorded", lambda: setattr(fake, "published", fake.published + 1))
    return fake


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


def test_an_interrupted_history_goes_on_where_it_was(asv):
    asv.interrupt_at = HASHES[1]
    with pytest.raises(KeyboardInterrupt):
        measure.record(None)
    asv.interrupt_at = None
    measure.record(None)
    assert asv.calls == [("a", True), ("b", True), ("c", True)]


def test_a_disturbed_commit_is_measured_again_until_it_is_not(asv, capsys):
    asv.canary[HASHES[1]] = [1.4, 1.3, 1.05]
    assert measure.record(None) == 0
    assert asv.calls[3:] == [("b", False), ("b", False)]
    assert "disturbed:" not in capsys.readouterr().out


def test_a_commit_that_stays_disturbed_is_named(asv, capsys):
    asv.canary[HASHES[2]] = [1.4]
    measure.record(None)
    assert asv.calls[3:] == [("c", False)] * measure.TRIES
    assert "disturbed: cccccccc change c (canary at 1.40 of its best)" in capsys.readouterr().out


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
