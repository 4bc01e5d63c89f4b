import math
from itertools import product

import pytest
from asv_runner.discovery import disc_benchmarks

from history.commits import Commit
from history.records import Case, Record
from history.site import frontpage, trend
from history.site.families import FAMILIES, Family
from history.site.recorded import Recorded
from tests.history.recorded import ALLOC, CANARY, RUNS, write

HASHES = [letter * 40 for letter in "abcd"]
SUBJECTS = ["Skeleton", "Simple <allocator>", "Indexed allocator", "Notes"]


def record(commit, figures, machine="m", measured=0):
    return Record(commit, machine, "env", "3.11", {}, measured, figures, [], frozenset())


FAMILY = Family("F", "about", r"bench_a\.", ())
ONE, TWO, FLOOR = Case("bench_a.X.time_y", ("1",)), Case("bench_a.X.time_y", ("2",)), Case("bench_a.X.t", ("'floor'",))


def test_a_step_is_the_geometric_mean_of_the_cases_that_both_commits_have():
    shown = [
        record("a", {ONE: 1.0, FLOOR: 1.0}),
        record("b", {ONE: 0.5, TWO: 9.0, FLOOR: 50.0}),
        record("c", {ONE: 0.25, TWO: 18.0}),
        record("d", {}),
    ]
    found = trend.steps(FAMILY, shown)
    assert found == [None, (1, 0.5, 1), (2, pytest.approx(1.0), 2), None]
    assert [trend.is_large(each) for each in found] == [False, True, False, False]


def test_noise_is_taken_from_the_times_that_run_no_code_of_kvpool():
    here, bytes_held = Case("bench_a.X.time_y", ("'list'",)), Case("bench_a.X.track_z", ("'list'",))
    times = {"a": 1.0, "b": 0.9, "c": 1.1}
    shown = [record(name, {ONE: 5.0 + time, here: time, bytes_held: time}) for name, time in times.items()]
    found = trend.noise(shown, lambda name: "time" in name)
    assert found == (1, pytest.approx(0.1), pytest.approx(0.1))
    assert trend.noise(shown[:1], lambda name: True) is None


def test_a_line_compares_the_first_measured_with_the_last_measured():
    line = trend.line(ONE, [record("a", {}), record("b", {ONE: 4.0}), record("c", {ONE: 1.0}), record("d", {})])
    assert line.measured == [4.0, 1.0]
    assert line.ratio == 0.25
    drawn = trend.points(line, 300, 40)
    assert [(index, x) for index, x, _ in drawn] == [(1, 100), (2, 200)]
    assert drawn[0][2] == 0  # the larger is at the top
    assert drawn[1][2] == 40


def test_small_changes_are_drawn_small_and_no_figures_not_at_all():
    drawn = trend.points(trend.Line((1.0, 1.01)), 100, 40)
    assert abs(drawn[0][2] - drawn[1][2]) < 2
    assert trend.points(trend.Line((None, None)), 100, 40) == []
    assert trend.Line((None,)).ratio == 1.0


@pytest.mark.parametrize(
    ("ratio", "unit", "words"),
    [
        (1 / 123.4, "seconds", "123x faster"),
        (1.234, "seconds", "1.2x slower"),
        (0.5, "runs", "2.0x less"),
        (math.inf, "bytes", "up from none"),
        (0, "bytes", "down to none"),
        (0.96, "seconds", "unchanged"),
    ],
)
def test_changes_in_words(ratio, unit, words):
    assert trend.in_words(ratio, unit) == words


def test_the_machine_with_the_longest_history_is_shown_in_the_order_of_git():
    here = [record("b", {}), record("a", {}), record("unknown", {})]
    found = trend.longest_history([*here, record("a", {}, machine="other", measured=9)], {"a": 0, "b": 1})
    assert [each.commit for each in found] == ["a", "b", "unknown"]
    assert trend.longest_history([], {}) == []


def test_a_link_leads_to_the_graph_of_a_case_and_its_floor():
    case, floor = (Case("bench_a.X.time_y", ("64", method)) for method in ("'fifo'", "'floor'"))
    alone = "grid.html#bench_a.X.time_y?y-axis-scale=log&p-pages=64&p-method=%27fifo%27"
    assert frontpage.link(case, ["pages", "method"]) == alone
    assert frontpage.link(case, ["pages", "method"], floor) == f"{alone}&p-method=%27floor%27"
    assert frontpage.link(Case("bench_a.X.time_y", ()), []) == "grid.html#bench_a.X.time_y?y-axis-scale=log"


@pytest.fixture
def known_commits(monkeypatch):
    known = {name: Commit(name, 86_400 * 365, subject) for name, subject in zip(HASHES, SUBJECTS, strict=True)}
    monkeypatch.setattr("history.commits.all_in_order", lambda: HASHES)
    monkeypatch.setattr("history.commits.describe", lambda names: [known[name] for name in names])


@pytest.mark.usefixtures("known_commits")
def test_the_page_says_what_changed_where_and_under_what_conditions(tmp_path):
    n_a = math.nan
    write(tmp_path, HASHES[0], {CANARY: [1.0], ALLOC: [n_a, 1e-6, n_a, 1e-6], RUNS: [n_a]})
    write(tmp_path, HASHES[1], {CANARY: [1.0], ALLOC: [1e-3, 1e-6, 2e-3, 1e-6], RUNS: [4.0]})
    write(tmp_path, HASHES[2], {CANARY: [1.3], ALLOC: [1e-5, 1e-6, 2e-5, 1e-6], RUNS: [1.5]})
    write(tmp_path, HASHES[3], {CANARY: [1.0], ALLOC: [1e-5, 1e-6, 2e-5, 1e-6], RUNS: [1.5]})
    write(tmp_path, HASHES[3], {CANARY: [1.0]}, machine="other")
    page = frontpage.render(Recorded.read(tmp_path))
    text = " ".join(page.split())
    assert '<span class="latest">20.0 μs</span> <span class="better">100x faster</span>' in text
    assert "first 2.00 ms, now 20x the floor" in text
    assert '<span class="latest">1.5 runs</span> <span class="better">2.7x less</span>' in text
    assert "Simple &lt;allocator&gt;" in page
    assert page.index("Notes") < page.index("Indexed allocator") < page.index("Skeleton")
    assert (
        '<td class="change large better" data-family="Host allocation" title="geometric mean of 2 cases">100x' in text
    )
    assert page.count("first measured") == 2  # of either family, at the second commit
    assert "disturbed: its canary took 1.30 of its best" in page
    assert "marks cccccccc as disturbed" in page
    assert "AMD EPYC, 2 cores, 24GiB, Linux" in page
    assert "Python 3.11, numpy 2.4.6" in page
    assert "4 commits" in page
    assert "other: see the grid" in page
    assert "Lanes" not in page  # nothing of it is recorded


@pytest.mark.usefixtures("known_commits")
def test_a_page_of_no_records_says_how_to_make_some(tmp_path):
    assert "make history" in frontpage.render(Recorded.read(tmp_path))


def test_families_do_not_share_benchmarks():
    for family in FAMILIES:
        for row in family.rows:
            assert [each.title for each in FAMILIES if each.holds(row.case)] == [family.title]


def test_the_page_shows_cases_that_the_suite_has():
    suite = {benchmark.name: benchmark for benchmark in disc_benchmarks("benchmarks")}
    for family in FAMILIES:
        for row in family.rows:
            for case in filter(None, (row.case, row.beside)):
                values = [map(repr, each) for each in suite[case.benchmark]._params]
                assert case.parameters in set(product(*values))
            assert family.holds(row.case)
