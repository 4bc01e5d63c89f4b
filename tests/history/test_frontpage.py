import csv
import io
import math
import re
from itertools import product
from xml.etree import ElementTree

import pytest
from asv_runner.discovery import disc_benchmarks

from benchmarks.counted_calls import CASES
from history import commits
from history.commits import Commit
from history.records import Case, Record
from history.site import counted, feed, figures, frontpage, graph, graphs, trend
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
    assert [trend.is_large(each.ratio) for each in found if each] == [True, False]


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


def test_the_machine_with_most_figures_is_shown_in_the_order_of_git():
    cases = [Case("bench_a.X.time_y", (size,)) for size in "12345"]
    here = [record(name, {cases[0]: 1.0}) for name in ("b", "a", "unknown")]
    there = record("a", {}, machine="other", measured=9)
    order = {"a": 0, "b": 1}
    assert [each.commit for each in trend.longest_history([*here, there], order)] == ["a", "b", "unknown"]
    # What an earlier version measured is not among its figures.
    there = there._replace(figures=dict.fromkeys(cases, 1.0))
    assert trend.longest_history([*here, there], order) == [there]
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
    assert "100x faster at cccccccc Indexed allocator" in text
    assert '<span class="latest">1.5 runs</span> <span class="better">2.7x less</span>' in text
    assert "Simple &lt;allocator&gt;" in page
    table = page[page.index("<h2>What each commit did") :]
    assert table.index("Notes") < table.index("Indexed allocator") < table.index("Skeleton")
    assert '<a href="compare.html#bbbbbbbb..cccccccc">compare</a>' in table
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


@pytest.fixture
def two_commits(tmp_path, known_commits):
    """Two commits: the first case becomes twice as slow, its floor 1.9 times, a count twice as much."""
    write(tmp_path, HASHES[0], {CANARY: [1.0], ALLOC: [1e-5, 1e-6, 2e-5, 1e-6], RUNS: [2.0]})
    write(tmp_path, HASHES[1], {CANARY: [1.0], ALLOC: [2e-5, 1.9e-6, 2e-5, 1.9e-6], RUNS: [4.0]})
    return tmp_path


def test_what_moved_no_more_than_the_floors_is_noise_and_no_cost(two_commits):
    slower, count = "2.0x slower", "2.0x more"
    found = Recorded.read(two_commits)
    assert [(each.case, each.index) for each in trend.costs(found.shown, found.is_noise)] == [
        (Case(ALLOC, ("1", "'contiguous'")), 1),
        (Case(RUNS, ("'fewest_runs'",)), 1),
    ]
    write(two_commits, HASHES[1], {CANARY: [1.0], ALLOC: [2e-5, 2.1e-6, 2e-5, 2.1e-6], RUNS: [4.0]})
    still = Recorded.read(two_commits)
    assert [each.case.benchmark for each in trend.costs(still.shown, still.is_noise)] == [RUNS]
    before, after = frontpage.render(found), frontpage.render(still)
    assert slower in before.split("<h2>What each commit did")[0]
    assert slower not in after.split("<h2>What each commit did")[0]
    assert count in after


def test_a_change_is_not_coloured_where_it_may_be_noise(two_commits):
    write(two_commits, HASHES[1], {CANARY: [1.0], ALLOC: [2e-5, 3e-6, 4e-5, 3e-6], RUNS: [4.0]})
    page = " ".join(frontpage.render(Recorded.read(two_commits)).split())
    assert '<span class="quiet" title="no more than times moved' in page
    assert '<span class="worse">2.0x more</span>' in page
    row = page[page.index("<h2>What each commit did") :]
    assert re.search(r'<td class="change worse" data-family="Host allocation"[^>]*>2.0x worse', row)  # and not large


def test_within_the_noise_of_the_floor_is_at_the_floor(two_commits):
    write(two_commits, HASHES[1], {CANARY: [1.0], ALLOC: [1e-5, 1e-6, 0.98e-6, 1e-6], RUNS: [4.0]})
    page = frontpage.render(Recorded.read(two_commits))
    assert "now at the floor" in page
    assert "0.98x" not in page


def test_commits_and_benchmarks_are_links_where_the_repository_has_an_address(two_commits):
    commit, source = "https://example.org/commit/", "https://example.org/blob/main/"
    found = Recorded.read(two_commits, commit, source)
    assert f'<a href="{commit}bbbbbbbb"><code>bbbbbbbb</code></a>' in frontpage.render(found)
    assert f'<a href="{commit}bbbbbbbb"><code>bbbbbbbb</code></a>' in graphs.render(found)
    assert f'<a href="{source}benchmarks/bench_host.py">source</a>' in graphs.render(found)
    assert f"{source}benchmarks/bench_host.py" in figures.as_script(found)
    without = Recorded.read(two_commits)
    for page in (frontpage.render(without), graphs.render(without), figures.as_script(without)):
        assert "https://" not in page


def test_the_figures_as_csv(two_commits):
    rows = list(csv.reader(io.StringIO(figures.as_csv(Recorded.read(two_commits)))))
    assert rows[0] == ["benchmark", "parameters", "unit", "aaaaaaaa", "bbbbbbbb"]
    assert [ALLOC, "1, 'contiguous'", "seconds", "1e-05", "2e-05"] in rows
    assert len(rows) == 1 + 6


def test_the_feed_has_the_large_steps_that_are_no_noise(two_commits):
    def titles():
        root = ElementTree.fromstring(feed.render(Recorded.read(two_commits)))
        return [each.text for each in root.iterfind("{*}entry/{*}title")]

    assert titles() == ["Memory: 2.0x worse at bbbbbbbb"]
    write(two_commits, HASHES[1], {CANARY: [1.0], ALLOC: [1e-6, 1e-6, 2e-6, 1e-6], RUNS: [2.0]})
    assert titles() == ["Host allocation: 10x better at bbbbbbbb"]
    text = feed.render(Recorded.read(two_commits))
    assert "compare.html#aaaaaaaa..bbbbbbbb" in text
    assert "1971-01-01T00:00:01Z" in text  # a second after the first commit, of the same date


def test_a_graph_has_the_time_the_floor_and_the_instructions():
    times, counts = trend.Line((1e-3, 1e-5, 1e-5)), trend.Line((None, 5000.0, 50.0))
    drawing = graph.draw(
        [
            graph.Curve("time", "kvpool", times, "seconds"),
            graph.Curve("floor", "the floor", trend.Line((1e-6, 1e-6, 1e-6)), "seconds"),
            graph.Curve("instructions", "instructions", counts, "instructions"),
            graph.Curve("floor", "not measured", trend.Line((None, None, None)), "seconds"),
        ],
        ["a one", "b two", "c three"],
        ["", "two", "three"],
    )
    time, floor, instructions = drawing.curves
    assert [len(each.points) for each in drawing.curves] == [3, 3, 2]
    # A factor is as tall in both units.
    assert instructions.points[1].y - instructions.points[0].y == pytest.approx(time.points[1].y - time.points[0].y)
    assert all(point.y == pytest.approx(graph.HEIGHT - graph.BOTTOM) for point in floor.points)
    assert time.points[0].title == "a one: 1.00 ms"
    assert [mark.name for mark in drawing.marks] == ["two", "three"]
    assert [tick.label for tick in drawing.ticks][:2] == ["1.00 μs", "10.0 μs"]


def test_a_graph_of_figures_that_hardly_move_has_a_scale():
    for value in (1.0, 1.4e-7, 9.99e12):
        drawing = graph.draw([graph.Curve("time", "x", trend.Line((value, value)), "runs")], ["a", "b"], ["", ""])
        assert len(drawing.ticks) >= 1
        assert all(graph.TOP <= tick.y <= graph.HEIGHT for tick in drawing.ticks)


def test_instructions_stand_beside_the_row_that_does_the_same_work(two_commits, monkeypatch):
    call = counted.CALLS[f"{ALLOC}(64, 'contiguous')"]
    old, new = (Case(counted.BENCHMARK, (repr(call), repr(tool))) for tool in ("valgrind 1", "valgrind 2"))
    shown = [record("a", {old: 9.0}), record("b", {old: 8.0, new: 7.0}), record("c", {new: 6.0})]
    assert counted.line(call, shown).figures == (None, 7.0, 6.0)
    monkeypatch.setattr(counted, "line", lambda call, shown: trend.Line((4000.0, 2000.0)))
    page = graphs.render(Recorded.read(two_commits))
    assert f"instructions of {call}" in page
    assert "2,000 instructions" in page or "2000 instructions" in page


def test_what_is_counted_beside_a_row_is_in_the_suite():
    rows = {str(row.case) for family in FAMILIES for row in family.rows}
    assert set(counted.CALLS) <= rows
    assert set(counted.CALLS.values()) <= set(CASES)


@pytest.mark.usefixtures("known_commits")
def test_a_page_of_no_records_says_how_to_make_some(tmp_path):
    found = Recorded.read(tmp_path)
    assert "make history" in frontpage.render(found)
    assert "<polyline" not in graphs.render(found)
    assert figures.as_csv(found) == "benchmark,parameters,unit\n"
    assert "<entry>" not in feed.render(found)


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


def test_the_page_says_how_large_the_package_is(two_commits, monkeypatch):
    assert "source files" not in frontpage.render(Recorded.read(two_commits))  # these commits are not here
    sizes = {HASHES[0]: (2, 89), HASHES[1]: (16, 126_000)}
    monkeypatch.setattr("history.commits.size", lambda commit, path: sizes[commit])
    page = frontpage.render(Recorded.read(two_commits))
    assert "16 source files of 126 kB; at the first commit 2 source files of 89 bytes" in page


def test_the_size_of_a_folder_at_a_commit():
    files, size = commits.size("HEAD", "history/templates/")
    assert files >= 6
    assert size > 10_000
    assert commits.size("0" * 40, "kvpool/") == (0, 0)
