"""What a comparison concludes from figures, and how it says so."""

import math
import os
import subprocess
import sys
import tomllib
from importlib.metadata import packages_distributions
from types import SimpleNamespace

import pytest

from history import UsageError, asv_calls, comment
from history.commits import Commit
from history.compare import NotMeasuredError, command, report
from history.compare.reasons import why
from history.compare.verdict import NOT_MEASURED, TRIES, Measured, judge, not_measured, weigh
from history.paths import ROOT
from history.records import Case
from history.status import Status
from history.templating import code

PASSED, REGRESSED = Status.PASSED, Status.REGRESSED

ALLOC, FREE, RUNS = "bench_host.Alloc.time_alloc", "bench_host.Free.time_free", "bench_host.Runs.track_runs"
BYTES, LONGEST = "bench_memory.Books.track_bytes", "bench_size.SlowestCalls.time_longest"
FLOOR = "'floor'"
BENCHMARKS = {
    name: {"param_names": names, "unit": unit, "type": "track" if "track" in name else "time"}
    for name, names, unit in [
        (ALLOC, ["pages"], "seconds"),
        (FREE, ["pages"], "seconds"),
        (RUNS, ["pages"], "runs"),
        (BYTES, ["pages"], "bytes/page"),
        (LONGEST, [], "seconds"),
    ]
}


def measured(*figures, canary=1.0):
    """Measure ``(benchmark, parameter, base, head)``: None fails, NaN does not apply, a list is a round each."""
    found = Measured(BENCHMARKS)
    for benchmark, parameter, *sides in figures:
        case = Case(benchmark, (parameter,) if parameter else ())
        for label, values in zip(("BASE", "HEAD"), sides, strict=True):
            for value in values if isinstance(values, list) else [values]:
                found.add(label, case, value, "ValueError: planted")
    for label, seconds in (("BASE", 1.0), ("HEAD", canary)):
        found.add_canary(label, seconds)
    return found


def test_equal_figures_are_no_regression_and_the_report_says_how_many_there_were():
    found = judge([measured((ALLOC, "1", 1.0, 1.05), (ALLOC, "8", 2.0, 1.95), (RUNS, "1", 3, 3))])
    assert found.status is PASSED
    assert found.sentence == "No regression: 3 cases of 2 benchmarks measured on both sides."


def test_a_slowdown_that_is_seen_twice_is_a_regression():
    once = measured((ALLOC, "1", 1.0, 1.3), (ALLOC, "8", 1.0, 1.0))
    found = judge([once, measured((ALLOC, "1", 1.0, 1.25))])
    assert found.status is REGRESSED
    assert found.sentence == "1 confirmed regression: 2 cases of 1 benchmark measured on both sides."
    (change,) = found.regressions
    assert (change.case.parameters, change.base, change.head) == (("1",), 1.0, pytest.approx(1.275))


@pytest.mark.parametrize("second", [1.0, 1.09, 0.95, 0.85, 0.5])
def test_a_slowdown_that_is_seen_once_is_named_as_unconfirmed_only(second):
    found = judge([measured((ALLOC, "1", 1.0, 1.3)), measured((ALLOC, "1", 1.0, second))])
    assert found.status is PASSED
    assert found.unconfirmed == [Case(ALLOC, ("1",))]
    assert not found.regressions


def test_a_speedup_has_to_be_seen_twice_too():
    found = judge([measured((ALLOC, "1", 2.0, 1.0)), measured((ALLOC, "1", 2.0, 1.0))])
    assert (found.status, found.improvements[0].ratio) == (PASSED, 0.5)
    found = judge([measured((ALLOC, "1", 2.0, 1.0)), measured((ALLOC, "1", 1.0, 2.0))])
    assert (found.status, found.improvements) == (PASSED, [])


def test_one_slow_round_among_many_changes_nothing():
    assert weigh([measured((ALLOC, "1", [1.0, 1.0, 1.0], [1.0, 9.0, 1.0]))]).again == []


def test_what_looks_changed_is_measured_again_once_if_that_settles_it():
    case = Case(ALLOC, ("1",))
    once = measured((ALLOC, "1", 1.0, 1.3), (FREE, "1", 1.0, 1.0))
    assert weigh([once]).again == [case]
    assert weigh([once, measured((ALLOC, "1", 1.0, 1.3))]).again == []
    assert weigh([once, measured((ALLOC, "1", 1.0, 1.0))]).again == []


def test_any_increase_of_an_exact_count_is_a_regression():
    found = judge([measured((RUNS, "1", 1000, 1001), (RUNS, "8", 5, 4), (RUNS, "64", 0, 1))])
    assert found.status is REGRESSED
    assert [(each.case.parameters, each.ratio) for each in found.growths] == [
        (("64",), math.inf),
        (("1",), pytest.approx(1.001)),
    ]
    assert [each.case.parameters for each in found.reductions] == [("8",)]


def test_bytes_that_grow_by_less_than_a_hundredth_are_listed_only():
    found = judge([measured((BYTES, "1", 12.342, 12.344), (BYTES, "8", 8, 8.08), (BYTES, "64", 12.342, 12.3))])
    assert (found.status, found.growths) == (PASSED, [])
    assert [each.case.parameters for each in found.small_growths] == [("8",), ("1",)]
    assert "## Exact counts that grew by too little to matter\n" in written(found)
    found = judge([measured((BYTES, "1", 12.342, 12.5), (BYTES, "8", 0, 1))])
    assert (found.status, len(found.growths)) == (REGRESSED, 2)


def test_so_are_instructions():
    calls = "bench_instructions.Instructions.track_instructions"
    found = Measured({calls: {"param_names": ["call"], "unit": "instructions", "type": "track"}})
    for call, head in (("less", 1_009), ("more", 1_011)):
        for label, value in (("BASE", 1_000), ("HEAD", head)):
            found.add(label, Case(calls, (call,)), value)
    found = judge([found])
    assert [each.case.parameters for each in found.growths] == [("more",)]
    assert [each.case.parameters for each in found.small_growths] == [("less",)]


@pytest.mark.parametrize("benchmark", [ALLOC, RUNS, BYTES])
def test_nothing_beside_nothing_is_no_change(benchmark):
    found = judge([measured((benchmark, "1", 0, 0)), measured((benchmark, "1", 0, 0))])
    assert (found.status, found.growths, found.regressions, found.unconfirmed) == (PASSED, [], [], [])


@pytest.mark.parametrize(
    ("figures", "sentence"),
    [
        ((ALLOC, "1", 1.0, None), f"1 benchmark failed on HEAD ({ALLOC})"),
        ((ALLOC, "1", None, 1.0), f"1 benchmark failed on BASE ({ALLOC})"),
        ((ALLOC, "1", None, None), f"1 benchmark failed on BASE and HEAD ({ALLOC})"),
        ((ALLOC, FLOOR, 1.0, None), f"1 benchmark failed on HEAD ({ALLOC})"),
        ((ALLOC, "1", 1.0, math.nan), f"1 case measured on BASE cannot be measured on HEAD ({ALLOC})"),
    ],
)
def test_what_could_not_be_measured_leaves_the_question_open(figures, sentence):
    found = judge([measured(figures, (FREE, "1", 1.0, 1.0))])
    assert found.status is NOT_MEASURED
    assert found.sentence == f"Not measured: {sentence}."


def test_what_head_drops_leaves_the_question_open_unless_it_is_meant():
    first, dropped = measured((FREE, "1", 1.0, 1.0), (FREE, "8", 1.0, math.nan)), [Case(ALLOC, ("1",))]
    found = judge([first], dropped=dropped, acknowledged=lambda case: case.benchmark == FREE)
    assert found.sentence == f"Not measured: HEAD drops 1 case that BASE has ({ALLOC})."
    assert (found.dropped, found.lost, found.acknowledged) == (dropped, [], [Case(FREE, ("8",))])
    assert f"## In BASE's suite, not in HEAD's\n\n- `{ALLOC}(1)`\n" in written(found)
    found = judge([first], dropped=dropped, acknowledged=lambda case: True)
    assert found.status is PASSED
    assert f"## Dropped on purpose\n\n- `{ALLOC}(1)`\n- `{FREE}(8)`\n" in written(found)
    assert "0 cases new on HEAD, 2 gone from it, 0 failed" in written(found)


def test_a_failure_outweighs_a_regression_and_the_report_lists_none():
    first = measured((ALLOC, "1", 1.0, None), (FREE, "1", 1.0, 2.0), (RUNS, "1", 1, 2))
    found = judge([first, measured((FREE, "1", 1.0, 2.0))])
    assert found.status is NOT_MEASURED
    assert [each.case.benchmark for each in found.regressions] == [FREE]
    text = written(found)
    assert "## Slower" not in text
    assert "## Faster" not in text
    assert "## Exact counts that grew" in text


def test_a_case_that_failed_in_one_round_has_failed():
    found = judge([measured((ALLOC, "1", [1.0, 1.0], [1.0, None]), (FREE, "1", 1.0, 1.0))])
    assert found.status is NOT_MEASURED
    assert found.failures == [(Case(ALLOC, ("1",)), "HEAD", "ValueError: planted")]


def test_a_case_that_fails_when_measured_again_has_failed():
    first, again = measured((ALLOC, "1", 1.0, 1.3)), measured((ALLOC, "1", 1.0, 1.3))
    found = judge([first, again, measured((ALLOC, "1", 1.0, None))])
    assert found.sentence == f"Not measured: 1 benchmark failed on HEAD ({ALLOC})."


def test_nothing_in_common_is_not_measured():
    nothing = measured((ALLOC, "1", math.nan, math.nan), (FREE, FLOOR, 1.0, 1.0))
    assert judge([nothing]).sentence == "Not measured: no benchmark could be measured on both sides."
    new = measured((ALLOC, "1", math.nan, 1.0))
    assert judge([new]).status is NOT_MEASURED


def test_the_longest_of_many_calls_never_gates():
    found = measured((FREE, "", 10.0, 10.0), (LONGEST, "", 1.0, 9.0))
    assert weigh([found]).again == []
    assert judge([found, found]).status is PASSED


def test_what_is_new_on_head_is_no_regression():
    found = judge([measured((ALLOC, "1", math.nan, 9.0), (FREE, "1", 1.0, 1.0))])
    assert (found.status, found.added) == (PASSED, [Case(ALLOC, ("1",))])


SLOWER = (ALLOC, "1", 1.0, 1.4)


class TestControls:
    @pytest.mark.parametrize("head", [1.58, 0.6])
    def test_a_control_that_moves_is_measured_again_and_is_never_a_change(self, head):
        moved = measured((FREE, FLOOR, 1.0, head), (ALLOC, "1", 1.0, 1.0))
        assert weigh([moved]).again == [Case(FREE, (FLOOR,))]
        assert weigh([moved, moved]).again == []
        found = judge([moved, moved])
        assert (found.status, found.regressions, found.improvements, found.unconfirmed) == (PASSED, [], [], [])
        assert found.compared == [Case(ALLOC, ("1",))]
        assert found.spread == pytest.approx(max(head, 1 / head))

    def test_an_exact_count_of_a_control_decides_nothing(self):
        found = judge([measured((RUNS, "'list'", 1, 2), (RUNS, "1", 1, 1))])
        assert (found.status, found.growths) == (PASSED, [])

    def test_a_change_within_what_the_controls_moved_by_is_undecided(self):
        noisy = measured(SLOWER, (ALLOC, FLOOR, 1.0, 1.58))
        found = judge([noisy, noisy])
        assert found.status is NOT_MEASURED
        assert found.undecided == [Case(ALLOC, ("1",))]
        assert found.sentence == (
            f"Not measured: 1 case may be slower, or the machine was ({ALLOC}); what runs no code of kvpool moved "
            "by 1.58."
        )
        assert "1 case looked slower, by no more than the machine may have been" in written(found)

    def test_it_is_measured_again_with_the_controls_beside_it_until_that_is_settled(self):
        noisy = measured(SLOWER, (ALLOC, FLOOR, 1.0, 1.58), (FREE, FLOOR, 1.0, 1.0))
        wanted = [Case(ALLOC, (FLOOR,)), Case(ALLOC, ("1",))]
        assert weigh([noisy]).again == wanted
        assert weigh([noisy, noisy]).again == wanted
        calm = measured(SLOWER, (ALLOC, FLOOR, [1.0] * 3, [1.0] * 3))
        assert weigh([noisy, noisy, calm]).again == []
        assert judge([noisy, noisy, calm]).status is REGRESSED

    def test_a_change_beyond_what_the_controls_moved_by_is_one(self):
        noisy = measured(SLOWER, (ALLOC, FLOOR, 1.0, 1.3))
        assert judge([noisy, noisy]).status is REGRESSED

    def test_a_faster_case_within_it_is_no_question(self):
        noisy = measured((ALLOC, "1", 1.0, 0.7), (ALLOC, FLOOR, 1.0, 1.58))
        found = judge([noisy, noisy])
        assert (found.status, found.improvements, found.unconfirmed) == (PASSED, [], [Case(ALLOC, ("1",))])

    @pytest.mark.parametrize("seen", [1.0, 0.8])
    def test_what_looks_no_slower_is_measured_again_where_its_control_looks_faster(self, seen):
        hidden = measured((ALLOC, "1", 1.0, seen), (ALLOC, FLOOR, 1.0, 0.7), (FREE, "1", 1.0, 1.0))
        wanted = [Case(ALLOC, (FLOOR,)), Case(ALLOC, ("1",))]
        assert weigh([hidden]).again == wanted
        calm = measured((ALLOC, "1", 1.0, 1.0), (ALLOC, FLOOR, [1.0] * 3, [1.0] * 3))
        assert weigh([hidden, calm]).again == []
        assert judge([hidden, calm]).status is PASSED
        slower = measured((ALLOC, "1", [1.0] * 3, [1.4] * 3), (ALLOC, FLOOR, [1.0] * 3, [1.0] * 3))
        assert weigh([hidden, slower]).again == wanted
        assert judge([hidden, slower, slower]).status is REGRESSED
        found = judge([hidden] * (TRIES + 1))
        assert (found.status, found.undecided) == (NOT_MEASURED, [Case(ALLOC, ("1",))])

    def test_one_control_of_another_benchmark_among_many_bounds_nothing(self):
        controls = [(FREE, "'list'", 1.0, 1.02), (FREE, FLOOR, 1.0, 1.0)]
        many = measured(SLOWER, *controls, (RUNS, FLOOR, 1.0, 1.0))
        assert judge([many, many]).status is REGRESSED
        assert judge([many, many]).spread == pytest.approx(1.02)


class TestCanary:
    @pytest.mark.parametrize("canary", [1.3, 0.7])
    def test_times_on_a_disturbed_machine_say_nothing(self, canary):
        found = judge([measured(SLOWER, (FREE, "1", 1.0, 1.0), canary=canary)] * 2)
        assert found.status is NOT_MEASURED
        assert f"the machine was disturbed: its canary ran at {canary:.2f}" in found.sentence
        assert not found.regressions

    def test_all_of_them_are_measured_again(self):
        disturbed = measured(SLOWER, (FREE, "1", 1.0, 1.0), (RUNS, "1", 1, 1), canary=1.3)
        assert weigh([disturbed]).again == [Case(ALLOC, ("1",)), Case(FREE, ("1",))]
        calm = measured((ALLOC, "1", 1.0, 1.0), (FREE, "1", 1.0, 1.0))
        assert weigh([disturbed, calm]).again == []
        assert judge([disturbed, calm]).status is PASSED

    def test_a_second_look_that_was_disturbed_does_not_count(self):
        first, disturbed = measured(SLOWER), measured(SLOWER, canary=1.3)
        assert weigh([first, disturbed]).again == [Case(ALLOC, ("1",))]
        found = judge([first, *[disturbed] * TRIES])
        assert (found.status, found.undecided) == (NOT_MEASURED, [Case(ALLOC, ("1",))])
        assert judge([first, disturbed, measured(SLOWER)]).status is REGRESSED

    def test_where_nothing_is_timed_it_decides_nothing(self):
        found = measured((RUNS, "1", 1, 1), (FREE, FLOOR, 1.0, 1.0), canary=1.3)
        assert weigh([found]).again == []
        assert judge([found]).status is PASSED

    def test_an_exact_count_stands_whatever_the_canary_says(self):
        found = judge([measured((RUNS, "1", 1, 2), (FREE, "1", 1.0, 1.0), canary=1.3)])
        assert found.status is REGRESSED
        assert found.sentence == (
            "1 confirmed regression: 2 cases of 2 benchmarks measured on both sides. The times are open: the machine "
            "was disturbed: its canary ran at 1.30 of its own time beside BASE."
        )


def test_a_commit_compared_with_itself_says_so():
    found = judge([measured((ALLOC, "1", 1.0, 1.0))], same_commit=True)
    assert found.sentence.endswith("BASE and HEAD are the same commit: what differs is noise.")


MACHINE = {"cpu": "AMD EPYC", "num_cpu": "2", "ram": "24GiB", "os": "Linux"}
COMMITS = (Commit("a" * 40, 0, "before"), Commit("b" * 40, 0, "after"))


def written(verdict, **changes):
    context = report.Context(("main", "HEAD"), COMMITS, [], BENCHMARKS, None, MACHINE, 1.1, 2.5)
    text = report.write(verdict, context._replace(**changes))
    comment.check(text)
    return text


def test_the_report_groups_by_benchmark_and_shows_both_figures():
    first = measured((ALLOC, "1", 1e-6, 2e-6), (ALLOC, "8", 1e-6, 3e-6), (RUNS, "1", 10, 11), (FREE, "1", 2e-6, 1e-6))
    again = measured((ALLOC, "1", 1e-6, 2e-6), (ALLOC, "8", 1e-6, 3e-6), (FREE, "1", 2e-6, 1e-6))
    text = written(judge([first, again]))
    assert "# `main` → `HEAD`\n\n**3 confirmed regressions: 4 cases of 3 benchmarks measured on both sides.**" in text
    assert f"## Slower\n\n`{ALLOC}`\n\n| `pages` | BASE | HEAD | HEAD / BASE |\n| --- | ---: | ---: | ---: |\n" in text
    assert "| `8` | 1.00 μs | 3.00 μs | 3.00 |\n| `1` | 1.00 μs | 2.00 μs | 2.00 |\n" in text
    assert text.index("## Exact counts that grew") > text.index("| `1` | 1.00 μs | 2.00 μs | 2.00 |")
    assert "| `1` | 10 runs | 11 runs | 1.10 |" in text
    assert "## Faster" in text
    assert "0 cases new on HEAD, 0 gone from it, 0 failed" in text


def test_the_report_names_what_failed_and_why():
    found = measured(
        (ALLOC, "1", 1.0, None), (ALLOC, "8", None, 1.0), (ALLOC, "64", None, None), (FREE, "1", 1.0, math.nan)
    )
    found.add("HEAD", Case(ALLOC, ("512",)), None, "it was killed by SIGSEGV")
    text = written(judge([found]))
    assert f"- `{ALLOC}`, 4 cases:\n  on BASE and HEAD with `1` and 2 others: `ValueError: planted`\n" in text
    assert "  on HEAD with `512`: `it was killed by SIGSEGV`\n" in text
    assert f"## Measured on BASE, not applicable to HEAD\n\n- `{FREE}(1)`\n" in text


def test_a_report_without_a_measurement_gives_the_reason_and_the_notes():
    text = written(not_measured("no commit is named 'x'"), commits=None, notes=["A shallow clone."])
    assert text.startswith(
        "# `main` → `HEAD`\n\n**Not measured: no commit is named 'x'.**\n\nA shallow clone.\n\n## How"
    )


HOSTILE = "Fix | <img src=x> @team #12 [x](http://a) `b` *c*\n\n# d"


def test_what_others_wrote_is_shown_and_does_nothing():
    first = Measured({HOSTILE: {"param_names": [HOSTILE], "unit": HOSTILE, "type": "track"}, **BENCHMARKS})
    for label, value in (("BASE", 1.0), ("HEAD", 2.0)):
        first.add(label, Case(HOSTILE, (HOSTILE,)), value)
    first.add("HEAD", Case(ALLOC, (HOSTILE,)), None, HOSTILE)
    first.add("BASE", Case(ALLOC, (HOSTILE,)), 1.0)
    first.add("BASE", Case(FREE, (HOSTILE,)), 1.0)
    first.add("HEAD", Case(FREE, (HOSTILE,)), math.nan)
    commits = (Commit("a" * 40, 0, HOSTILE), Commit("b" * 40, 0, HOSTILE))
    benchmarks = {**BENCHMARKS, HOSTILE: first._benchmarks[HOSTILE]}
    for verdict in (judge([first]), not_measured(HOSTILE)):
        # `written` looks for anything that could be more than text.
        text = written(verdict, revisions=(HOSTILE, HOSTILE), commits=commits, notes=[HOSTILE], benchmarks=benchmarks)
        assert "@&#8203;team" in text
        assert f"| BASE | aaaaaaaa | {code(HOSTILE)} |\n" in text


@pytest.mark.parametrize(
    ("code", "output", "reason"),
    [
        (-9, "", "it was killed by SIGKILL"),
        (-11, "Fatal Python error: Segmentation fault", "it was killed by SIGSEGV"),
        (-77, "", "it was killed by signal 77"),
        (-256, "\n\nasv: benchmark timed out (timeout 60.0s)\n", "it took longer than 60 s"),
        (-257, "asv: failed to parse benchmark result", "it ended its process before there was a result"),
        (3, "", "it ended its process with status 3"),
        (1, "For parameters: 1", "it ended its process with status 1"),
        (1, "Traceback\n  File\nValueError: planted\n", "ValueError: planted"),
    ],
)
def test_a_process_that_failed_says_how(code, output, reason):
    assert why(code, output, 60.0) == reason


@pytest.fixture
def in_tmp(tmp_path, monkeypatch):
    monkeypatch.setattr(command, "REPORT", tmp_path / "report.md")
    return tmp_path


def modules_for_development_only():
    """What can be imported here, but not where asv measures."""
    development = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]["dev"]
    measured = {name.removeprefix("pip+") for name in asv_calls.configuration().matrix["req"]}
    only = {requirement.split("==")[0] for requirement in development} - measured
    return sorted(name for name, owners in packages_distributions().items() if only.intersection(owners))


def test_every_module_of_the_suite_can_be_imported_where_it_is_measured(tmp_path, monkeypatch):
    monkeypatch.setattr(command, "SCRATCH", tmp_path)
    copy = command._copy_of_suite(SimpleNamespace(benchmark_dir=str(ROOT / "benchmarks")))
    modules = [f"benchmarks.{path.stem}" for path in sorted(copy.glob("*.py")) if not path.stem.startswith("_")]
    assert "benchmarks.bench_host" in modules
    missing = [*modules_for_development_only(), "sweeps", "oracle", "tests", "history"]
    assert "pytest" in missing
    program = (
        f"import importlib, sys; sys.modules.update(dict.fromkeys({missing})); "
        f"[importlib.import_module(name) for name in {modules}]"
    )
    environment = {**os.environ, "PYTHONPATH": f"{copy.parent}:{ROOT}"}
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


def test_an_unknown_revision_is_not_measured(in_tmp, capsys):
    assert command.run(command.Question("no-such-revision", "HEAD")) is NOT_MEASURED
    assert "**Not measured: no commit is named 'no-such-revision'" in capsys.readouterr().out
    assert "no-such-revision" in (in_tmp / "report.md").read_text()


@pytest.mark.parametrize("error", [NotMeasuredError("no environment"), RuntimeError("no environment")])
@pytest.mark.usefixtures("in_tmp")
def test_whatever_goes_wrong_is_in_the_report(error, monkeypatch, capsys):
    def fail(conf):
        raise error

    monkeypatch.setattr("history.compare.sides.shared_environment", fail)
    assert command.run(command.Question("HEAD", "HEAD")) is NOT_MEASURED
    printed = capsys.readouterr().out
    assert "Not measured" in printed
    assert "no environment" in printed


def test_a_report_that_cannot_be_written_is_refused_before_anything_runs(in_tmp):
    (in_tmp / "file").write_text("")
    with pytest.raises(UsageError, match="the report cannot be written"):
        command.run(command.Question("HEAD", "HEAD"), in_tmp / "file" / "report.md")
