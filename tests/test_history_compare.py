import math

import pytest

from history import UsageError
from history.commits import Commit
from history.compare import NotMeasuredError, command, report, rounds
from history.compare.verdict import NOT_MEASURED, Measured, judge, not_measured, suspects
from history.records import Case
from history.status import Status

PASSED, REGRESSED = Status.PASSED, Status.REGRESSED

ALLOC, FREE, RUNS = "bench_host.Alloc.time_alloc", "bench_host.Free.time_free", "bench_host.Runs.track_runs"
CANARY = "bench_canary.Canary.time_loop"
KINDS = {ALLOC: "time", FREE: "time", RUNS: "track", CANARY: "time", "bench_size.SlowestCalls.time_longest": "time"}


def measured(*figures):
    """Measure ``(benchmark, parameter, base, head)``: None fails, NaN does not apply, a list is a round each."""
    found = Measured(KINDS)
    for benchmark, parameter, *sides in figures:
        case = Case(benchmark, (parameter,) if parameter else ())
        for label, values in zip(("BASE", "HEAD"), sides, strict=True):
            for value in values if isinstance(values, list) else [values]:
                found.add(label, case, value, "ValueError: planted")
    return found


def test_equal_figures_are_no_regression_and_the_report_says_how_many_there_were():
    found = judge(measured((ALLOC, "1", 1.0, 1.05), (ALLOC, "8", 2.0, 1.95), (RUNS, "1", 3, 3)), None)
    assert found.status == PASSED
    assert found.sentence == "No regression: 3 cases of 2 benchmarks measured on both sides."


def test_a_slowdown_that_is_seen_twice_is_a_regression():
    once = measured((ALLOC, "1", 1.0, 1.3), (ALLOC, "8", 1.0, 1.0))
    again = measured((ALLOC, "1", 1.0, 1.25))
    found = judge(once, again)
    assert found.status == REGRESSED
    assert found.sentence == "1 confirmed regression: 2 cases of 1 benchmark measured on both sides."
    (change,) = found.regressions
    assert (change.case.parameters, change.base, change.head) == (("1",), 1.0, pytest.approx(1.275))


@pytest.mark.parametrize("second", [1.0, 1.09, 0.8])
def test_a_slowdown_that_is_seen_once_is_named_as_unconfirmed_only(second):
    found = judge(measured((ALLOC, "1", 1.0, 1.3)), measured((ALLOC, "1", 1.0, second)))
    assert found.status == PASSED
    assert found.unconfirmed == [Case(ALLOC, ("1",))]
    assert not found.regressions


def test_a_speedup_has_to_be_seen_twice_too():
    found = judge(measured((ALLOC, "1", 2.0, 1.0)), measured((ALLOC, "1", 2.0, 1.0)))
    assert (found.status, found.improvements[0].ratio) == (PASSED, 0.5)


def test_one_slow_round_among_many_changes_nothing():
    assert suspects(measured((ALLOC, "1", [1.0, 1.0, 1.0], [1.0, 9.0, 1.0]))) == []


def test_any_increase_of_an_exact_count_is_a_regression():
    found = judge(measured((RUNS, "1", 1000, 1001), (RUNS, "8", 5, 4), (RUNS, "64", 0, 1)), None)
    assert found.status == REGRESSED
    assert [(each.case.parameters, each.ratio) for each in found.growths] == [
        (("64",), math.inf),
        (("1",), pytest.approx(1.001)),
    ]
    assert [each.case.parameters for each in found.reductions] == [("8",)]


@pytest.mark.parametrize(
    ("figures", "sentence"),
    [
        ((ALLOC, "1", 1.0, None), f"1 benchmark failed on HEAD ({ALLOC})"),
        ((ALLOC, "1", None, 1.0), f"1 benchmark failed on BASE ({ALLOC})"),
        ((ALLOC, "1", None, None), f"1 benchmark failed on BASE and HEAD ({ALLOC})"),
        ((ALLOC, "1", 1.0, math.nan), f"1 case measured on BASE cannot be measured on HEAD ({ALLOC})"),
    ],
)
def test_what_could_not_be_measured_leaves_the_question_open(figures, sentence):
    found = judge(measured(figures, (FREE, "1", 1.0, 1.0)), None)
    assert found.status == NOT_MEASURED
    assert found.sentence == f"Not measured: {sentence}."


def test_a_failure_outweighs_a_regression_but_does_not_hide_it():
    first = measured((ALLOC, "1", 1.0, None), (FREE, "1", 1.0, 2.0))
    found = judge(first, measured((FREE, "1", 1.0, 2.0)))
    assert found.status == NOT_MEASURED
    assert [each.case.benchmark for each in found.regressions] == [FREE]


def test_a_case_that_failed_in_one_round_has_failed():
    found = judge(measured((ALLOC, "1", [1.0, 1.0], [1.0, None]), (FREE, "1", 1.0, 1.0)), None)
    assert found.status == NOT_MEASURED
    assert found.failures == [(Case(ALLOC, ("1",)), "HEAD", "ValueError: planted")]


def test_nothing_in_common_is_not_measured():
    nothing = measured((ALLOC, "1", math.nan, math.nan), (CANARY, "", 1.0, 1.0))
    assert judge(nothing, None).sentence == "Not measured: no benchmark could be measured on both sides."
    new = measured((ALLOC, "1", math.nan, 1.0))
    assert judge(new, None).status == NOT_MEASURED


def test_the_longest_of_many_calls_never_gates():
    found = measured((FREE, "", 10.0, 10.0))
    case = Case("bench_size.SlowestCalls.time_longest", ())
    for label, value in (("BASE", 1.0), ("HEAD", 9.0)):
        found.add(label, case, value)
    assert suspects(found) == []
    assert judge(found, found).status == PASSED


def test_what_is_new_on_head_is_no_regression():
    found = judge(measured((ALLOC, "1", math.nan, 9.0), (FREE, "1", 1.0, 1.0)), None)
    assert (found.status, found.added) == (PASSED, [Case(ALLOC, ("1",))])


@pytest.mark.parametrize("canary", [1.3, 0.7])
def test_a_canary_that_differs_says_that_nothing_can_be_said(canary):
    first = measured((CANARY, "", 1.0, canary), (FREE, "1", 1.0, 1.0))
    found = judge(first, measured((CANARY, "", 1.0, canary)))
    assert found.status == NOT_MEASURED
    assert f"the machine was disturbed: its canary ran at {canary:.2f}" in found.sentence
    assert found.compared == [Case(FREE, ("1",))]


def test_a_commit_compared_with_itself_says_so():
    found = judge(measured((ALLOC, "1", 1.0, 1.0)), None, same_commit=True)
    assert found.sentence.endswith("BASE and HEAD are the same commit: what differs is noise.")


def test_a_benchmark_with_no_case_left_is_not_run_again():
    found = measured((ALLOC, "1", 1.0, None), (ALLOC, "8", None, 1.0), (FREE, "1", 1.0, None), (FREE, "8", 1.0, 1.0))
    assert found.failed_whole(ALLOC)
    assert not found.failed_whole(FREE)


BENCHMARKS = {
    name: {"param_names": names, "unit": unit, "type": KINDS[name]}
    for name, names, unit in [
        (ALLOC, ["pages"], "seconds"),
        (FREE, ["pages"], "seconds"),
        (RUNS, ["pages"], "runs"),
        (CANARY, [], "seconds"),
    ]
}
MACHINE = {"cpu": "AMD EPYC", "num_cpu": "2", "ram": "24GiB", "os": "Linux"}
COMMITS = (Commit("a" * 40, 0, "before"), Commit("b" * 40, 0, "after"))


def written(verdict):
    return report.write(verdict, ("main", "HEAD"), COMMITS, BENCHMARKS, MACHINE, 1.1, 2.5)


def test_the_report_groups_by_benchmark_and_shows_both_figures():
    first = measured((ALLOC, "1", 1e-6, 2e-6), (ALLOC, "8", 1e-6, 3e-6), (RUNS, "1", 10, 11), (FREE, "1", 2e-6, 1e-6))
    again = measured((ALLOC, "1", 1e-6, 2e-6), (ALLOC, "8", 1e-6, 3e-6), (FREE, "1", 2e-6, 1e-6))
    text = written(judge(first, again))
    assert "# main → HEAD\n\n**3 confirmed regressions: 4 cases of 3 benchmarks measured on both sides.**" in text
    assert f"## Slower\n\n`{ALLOC}`\n\n| pages | BASE | HEAD | HEAD / BASE |\n| --- | ---: | ---: | ---: |\n" in text
    assert "| 8 | 1.00 μs | 3.00 μs | 3.00 |\n| 1 | 1.00 μs | 2.00 μs | 2.00 |\n" in text
    assert text.index("## Exact counts that grew") > text.index("| 1 | 1.00 μs | 2.00 μs | 2.00 |")
    assert "| 1 | 10 runs | 11 runs | 1.10 |" in text
    assert "## Faster" in text
    assert "0 cases new on HEAD, 0 gone from it, 0 failed" in text


def test_the_report_names_what_failed_and_why():
    text = written(judge(measured((ALLOC, "1", 1.0, None), (FREE, "1", 1.0, math.nan)), None))
    assert f"- `{ALLOC}`, 1 case:\n  on HEAD with 1: ValueError: planted\n" in text
    assert f"## Measured on BASE, not applicable to HEAD\n\n- `{FREE}(1)`\n" in text


def test_a_report_without_a_measurement_gives_the_reason():
    text = report.write(not_measured("no commit is named 'x'"), ("x", "HEAD"), None, {}, MACHINE, 1.1, 0)
    assert text.startswith("# x → HEAD\n\n**Not measured: no commit is named 'x'.**\n")


def test_a_pattern_finds_its_case_and_no_other():
    import re

    (pattern,) = rounds.exactly([Case("a.B.time_c", ("'x.y'", "1"))])
    assert re.search(pattern, "a.B.time_c('x.y', 1)")
    assert not re.search(pattern, "a.B.time_c('x.y', 10)")
    assert not re.search(pattern, "xa.B.time_c('x.y', 1)")


@pytest.fixture
def in_tmp(tmp_path, monkeypatch):
    monkeypatch.setattr(command, "REPORT", tmp_path / "report.md")
    return tmp_path


def test_an_unknown_revision_is_not_measured(in_tmp, capsys):
    assert command.run("no-such-revision", "HEAD") == NOT_MEASURED
    assert "**Not measured: no commit is named 'no-such-revision'" in capsys.readouterr().out
    assert "no-such-revision" in (in_tmp / "report.md").read_text()


@pytest.mark.parametrize("error", [NotMeasuredError("no environment"), RuntimeError("no environment")])
@pytest.mark.usefixtures("in_tmp")
def test_whatever_goes_wrong_is_status_2_and_never_1(error, monkeypatch, capsys):
    def fail(conf):
        raise error

    monkeypatch.setattr("history.compare.sides.shared_environment", fail)
    assert command.run("HEAD", "HEAD") == NOT_MEASURED
    printed = capsys.readouterr().out
    assert "Not measured" in printed
    assert "no environment" in printed


def test_a_report_that_cannot_be_written_is_refused_before_anything_runs(in_tmp):
    (in_tmp / "file").write_text("")
    with pytest.raises(UsageError, match="the report cannot be written"):
        command.run("HEAD", "HEAD", output=in_tmp / "file" / "report.md")
