"""A comparison by instructions: what is a regression, what is open, and what the report says of it."""

from pathlib import Path
from typing import Any

import pytest

from history import comment
from history.compare import choice, exact, report
from history.compare.suites import Suite
from history.compare.verdict import Change, Verdict, not_measured
from history.records import Case
from history.status import Status


def counts(made_with: str = "valgrind 3", **cases: Any) -> dict[str, Any]:
    """Return counts as `benchmarks.counting` writes them; a number stands for a case of one function."""
    held = {
        name: {"instructions": each, "functions": {f"{name}_loop": each}} if isinstance(each, int) else each
        for name, each in cases.items()
    }
    return {"made_with": made_with, "cases": held}


def test_equal_counts_pass_and_nothing_is_listed() -> None:
    found = exact.judge(counts(alloc=1_000, free=7), counts(alloc=1_000, free=7))
    assert (found.status, found.compared) == (Status.PASSED, 2)
    assert not [*found.grown, *found.little, *found.fallen, *found.lost, *found.added, *found.failures]


@pytest.mark.parametrize(
    ("head", "status", "listed"),
    [
        (1_011, Status.REGRESSED, "grown"),
        (1_010, Status.PASSED, "little"),
        (1_001, Status.PASSED, "little"),
        (999, Status.PASSED, "fallen"),
    ],
)
def test_more_than_one_percent_is_a_regression_and_less_is_listed(head: int, status: Status, listed: str) -> None:
    found = exact.judge(counts(alloc=1_000), counts(alloc=head))
    assert found.status is status
    assert [each.case for each in getattr(found, listed)] == ["alloc"]
    assert sum(len(getattr(found, each)) for each in ("grown", "little", "fallen")) == 1


class TestElsewhere:
    """What grew is counted again at other addresses, and the least that either side does is compared."""

    def settled(self, *places: tuple[Any, Any], **chosen: Any) -> tuple[exact.Exact, list[list[str]]]:
        """Return what is judged of counts of `alloc` that differ by place, and what was asked to be counted again."""
        asked: list[list[str]] = []

        def count(options: Any = ()) -> exact.Counts:
            asked.append(list(options))
            base, head = places[len(asked) - 1]
            others = {} if options else {"free": 7}
            return counts(alloc=base, **others), counts(alloc=head, **others)

        found = exact.count_elsewhere(count(), count, **({"chosen": lambda case: True} | chosen))
        assert all(each["cases"]["free"]["instructions"] == 7 for each in found)
        return exact.judge(*found), asked[1:]

    def test_what_has_not_grown_is_not_counted_again(self) -> None:
        assert self.settled((1_000, 1_010)) == (exact.judge(*[counts(alloc=n, free=7) for n in (1_000, 1_010)]), [])

    def test_a_side_that_was_unlucky_has_not_grown(self) -> None:
        found, asked = self.settled((1_000, 1_020), (1_020, 1_001))
        assert (found.status, found.little[0].head) == (Status.PASSED, 1_001)
        assert asked == [["--shift=1", "--case=alloc"]]

    def test_it_is_counted_at_further_places_while_it_has_grown(self) -> None:
        found, asked = self.settled((1_000, 1_020), (1_030, 1_040), (1_020, 1_019), (1_000, 1_009))
        assert (found.status, len(asked)) == (Status.PASSED, 3)

    def test_what_grew_everywhere_has_grown(self) -> None:
        found, asked = self.settled(*[(1_000, 1_020)] * 4)
        assert (found.status, [each[0] for each in asked]) == (
            Status.REGRESSED,
            [f"--shift={place}" for place in exact.ELSEWHERE],
        )

    def test_what_was_not_chosen_or_fails_there_changes_nothing(self) -> None:
        assert self.settled((1_000, 1_020), chosen=lambda case: case == "free")[1] == []
        broken = {"failed": "ValueError: planted"}
        assert self.settled((1_000, 1_020), *[(broken, broken)] * 3)[0].grown[0].head == 1_020


def test_functions_say_where_the_instructions_went() -> None:
    base = counts(alloc={"instructions": 100, "functions": {"take": 60, "expand": 40}})
    head = counts(alloc={"instructions": 150, "functions": {"take": 90, "expand": 40, "log": 20}})
    (change,) = exact.judge(base, head).grown
    assert change.functions == [("take", 60, 90), ("log", 0, 20)]
    assert change.ratio == 1.5


def test_what_head_no_longer_has_is_open_unless_it_is_acknowledged() -> None:
    base, head = counts(alloc=5, old=7), counts(alloc=5, new=7, old={"missing": "this kvpool has no old"})
    found = exact.judge(base, head)
    assert (found.status, found.lost, found.added) == (Status.FAILED, ["old"], ["new"])
    found = exact.judge(base, head, acknowledged=lambda case: case == "old")
    assert (found.status, found.lost, found.acknowledged) == (Status.PASSED, [], ["old"])


def test_a_call_that_fails_is_open_and_hides_no_regression() -> None:
    broken = {"failed": "ZeroDivisionError: by |zero|"}
    found = exact.judge(counts(alloc=5, free=7), counts(alloc=5, free=broken))
    assert found.status is Status.FAILED
    assert found.failures == [("HEAD", "free", "ZeroDivisionError: by |zero|")]
    found = exact.judge(counts(alloc=5, free=7), counts(alloc=50, free=broken))
    assert found.status is Status.REGRESSED


def test_counts_made_with_other_tools_are_not_compared() -> None:
    found = exact.judge(counts("valgrind 3", alloc=5), counts("valgrind 4", alloc=500))
    assert found.status is Status.FAILED
    assert "valgrind 4" in found.sentence


def test_nothing_that_was_counted_on_both_sides_is_no_answer() -> None:
    assert exact.judge(counts(), counts()).status is Status.FAILED
    assert exact.judge(counts(alloc=1), counts(alloc=1), chosen=lambda case: False).status is Status.FAILED


def test_only_the_chosen_calls_are_judged() -> None:
    found = exact.judge(counts(alloc=5, free=7), counts(alloc=5, free=9), chosen=lambda case: case == "alloc")
    assert (found.status, found.compared) == (Status.PASSED, 1)


def test_the_report_shows_calls_functions_and_that_times_are_open() -> None:
    base = counts(alloc=1_000, free=500, old=3, row=9)
    head = counts(alloc=1_030, free=400, row={"failed": "a | b"})
    text = report.write_exact(exact.judge(base, head), ("main", "mine"), None, ["A note."], 1.5)
    comment.check(text)
    assert "**1 confirmed regression: 1 of 2 calls took more instructions, by more than 1 %.**" in text
    assert "Times are open" in text
    assert "| `alloc` | 1000 | 1030 | 1.030 | `alloc_loop` 1000 → 1030 |" in text
    assert "| `free` | 500 | 400 | 0.800 | `free_loop` 500 → 400 |" in text
    assert r"- `row` on HEAD: `a \| b`" in text
    assert "- `old`" in text
    assert "A note." in text


def test_the_report_of_what_was_not_counted_says_why() -> None:
    text = report.write_exact(exact.not_counted("there is no valgrind"), ("main", "mine"), None, [], 0)
    comment.check(text)
    assert "**Not measured: there is no valgrind.**" in text


class TestJoined:
    """What counts and times say together."""

    EQUAL = exact.judge(counts(alloc=1_000), counts(alloc=1_000))
    GROWN = exact.judge(counts(alloc=1_000), counts(alloc=2_000))
    PASSED = Verdict(Status.PASSED, "No regression: 2 cases of 1 benchmark measured on both sides.")
    OPEN = not_measured("the machine was disturbed")

    def test_both_have_to_pass(self) -> None:
        found = exact.joined(self.EQUAL, self.PASSED)
        assert found.status is Status.PASSED
        assert found.sentence == f"{self.PASSED.sentence} None of 1 call took more instructions, by more than 1 %."

    def test_a_count_that_grew_stands_whatever_the_times_say(self) -> None:
        said = "1 confirmed regression: 1 of 1 call took more instructions, by more than 1 %."
        found = exact.joined(self.GROWN, self.PASSED)
        assert (found.status, found.sentence) == (
            Status.REGRESSED,
            f"{said} 2 cases of 1 benchmark measured on both sides.",
        )
        found = exact.joined(self.GROWN, self.OPEN)
        assert (found.status, found.sentence) == (
            Status.REGRESSED,
            f"{said} The times are open: the machine was disturbed.",
        )

    def test_a_time_that_grew_stands_beside_counts_that_did_not(self) -> None:
        slower = Verdict(
            Status.REGRESSED,
            "1 confirmed regression: 2 cases.",
            regressions=[Change(Case("bench_a.A.time_a", ()), 1.0, 2.0)],
        )
        found = exact.joined(self.EQUAL, slower)
        assert (found.status, found.regressions) == (Status.REGRESSED, slower.regressions)
        assert found.sentence == f"{slower.sentence} None of 1 call took more instructions, by more than 1 %."
        both = exact.joined(self.GROWN, slower)
        assert both.sentence.startswith("2 confirmed regressions: 1 of 1 call took more instructions")

    def test_what_could_not_be_counted_leaves_the_question_open(self) -> None:
        lost = exact.judge(counts(alloc=5, old=7), counts(alloc=5))
        found = exact.joined(lost, self.PASSED)
        assert (found.status, found.sentence) == (Status.FAILED, lost.sentence)
        assert exact.joined(self.EQUAL, self.OPEN) == self.OPEN


TABLE = """
times_of = {"Pool.alloc": (r"^bench_a\\.",), "Pool.free": (r"time_free",)}.get
SAMPLE = (r"^bench_b\\.B\\.time_b\\(1\\)$",)
"""
TYPES = {
    "bench_a.A.time_alloc": "time",
    "bench_a.A.time_free": "time",
    "bench_b.B.time_b": "time",
    "bench_c.C.track_bytes": "track",
    "bench_instructions.Instructions.track_instructions": "track",
}


class TestChoice:
    """What is timed once the calls are counted."""

    def chosen(self, folder: Path, base: dict[str, Any], head: dict[str, Any]) -> tuple[list[str], str]:
        """Return the chosen cases, as asv names them, and the sentence about them."""
        (folder / "timed.py").write_text(TABLE)
        suite = Suite(
            str(folder), [{"name": name, "type": kind, "params": [["1", "2"]]} for name, kind in TYPES.items()]
        )
        cases, said = choice.choose(suite, exact.judge(base, head))
        return [str(case) for case in cases], said

    def test_without_a_moved_count_it_is_the_sample_and_all_that_is_exact(self, tmp_path: Path) -> None:
        held = counts(**{"Pool.alloc 8": 100_000, "Pool.free 8": 100})
        cases, said = self.chosen(tmp_path, held, counts(**{"Pool.alloc 8": 100_400, "Pool.free 8": 100}))
        assert cases == ["bench_b.B.time_b(1)", "bench_c.C.track_bytes(1)", "bench_c.C.track_bytes(2)"]
        assert said == "Timed was a sample, as no count has moved; --all times everything."

    @pytest.mark.parametrize("head", [99_000, 200_000, {"failed": "it died"}, {"missing": "it is gone"}])
    def test_what_times_a_method_whose_count_has_moved_is_timed(self, tmp_path: Path, head: Any) -> None:
        cases, said = self.chosen(tmp_path, counts(**{"Pool.free 8": 100_000}), counts(**{"Pool.free 8": head}))
        assert cases[:3] == ["bench_a.A.time_free(1)", "bench_a.A.time_free(2)", "bench_b.B.time_b(1)"]
        assert said.startswith("Timed was what times the 1 method of which a count has moved, and a sample")
