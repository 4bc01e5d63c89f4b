"""Run a comparison from two revisions to a report and an exit status."""

import re
import shutil
import time
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from asv.config import Config

from history import UsageError, asv_calls, commits, machine
from history.compare import NotMeasuredError, choice, exact, report, rounds, sides, suites
from history.compare.verdict import FACTOR, TRIES, Measured, Verdict, count, judge, not_measured, weigh
from history.paths import SCRATCH
from history.records import Case, is_control
from history.status import Status, say

REPORT = SCRATCH / "compare" / "report.md"


class Question(NamedTuple):
    """What is asked: two revisions, and how far to look."""

    base: str
    head: str
    patterns: Sequence[str] | None = None  # only cases that match
    most_rounds: int | None = None
    factor: float = FACTOR
    dropped: Sequence[str] | None = None  # cases that HEAD is meant to drop
    from_tip: bool = False  # compare with BASE itself, not with where HEAD branched off from it
    everything: bool = False  # time everything, not only what the counts say can have changed


class Comparison:
    """A question, what is known of it so far, and how to measure it."""

    def __init__(self, question: Question):
        self.question = question
        self.commits: tuple[commits.Commit, commits.Commit] | None = None
        self.notes: list[str] = []
        self.benchmarks: dict[str, dict[str, Any]] = {}
        self.counts: exact.Exact | None = None

    def run(self, conf: Config) -> Verdict:
        """Measure both revisions, and again what looks changed; return the verdict."""
        try:
            return self._run(conf)
        except (NotMeasuredError, UsageError) as error:
            return not_measured(str(error))
        except Exception as error:
            say(traceback.format_exc())
            return not_measured(f"the comparison itself failed: {error!r}")

    def _run(self, conf: Config) -> Verdict:
        question = self.question
        folder, shared, both = self._prepare(conf)
        measurable = sides.Sides(both, shared, sides.without_kvpool(shared))
        suite = suites.discover(folder, both[1])
        self.benchmarks = suite.benchmarks
        dropped = suites.dropped(*both, suite, folder.name, question.patterns)
        self.counts = self._count_first(both, folder)
        chosen = self._choose(suite)
        if not chosen and not dropped:
            raise NotMeasuredError(f"no benchmark matches {' or '.join(question.patterns or ['anything'])}")
        base, head = both
        verdict = judge(
            self._measure(measurable, suite, chosen) or [Measured(suite.benchmarks)],
            question.factor,
            same_commit=base.commit == head.commit,
            dropped=dropped,
            acknowledged=lambda case: bool(question.dropped) and suites.matches(case, question.dropped),
        )
        return exact.joined(self.counts, verdict) if self.counts else verdict

    def count(self, conf: Config) -> exact.Exact:
        """Count the instructions of both revisions; return what they say."""
        try:
            folder, _, both = self._prepare(conf)
            return self._count(both, folder)
        except (NotMeasuredError, UsageError) as error:
            return exact.not_counted(str(error))

    def _prepare(self, conf: Config) -> tuple[Path, Any, tuple[sides.Side, sides.Side]]:
        """Return the suite to measure with, the environment that both sides share, and both sides."""
        self.commits = self._find_commits()
        base, head = self.commits
        folder = _copy_of_suite(conf)
        shared = sides.shared_environment(conf)
        _say(f"building {base.hash[:8]} and {head.hash[:8]}")
        return folder, shared, (sides.prepare(shared, "BASE", base), sides.prepare(shared, "HEAD", head))

    def _count(self, both: tuple[sides.Side, sides.Side], folder: Path) -> exact.Exact:
        question = self.question

        def chosen(case: str) -> bool:
            return matches(case, question.patterns)

        def count_again(options: Sequence[str]) -> exact.Counts:
            _say(f"counting again, {options[0]}: {count(options[1:], 'call')}")
            return exact.count_both(both, folder, options)

        _say("counting instructions")
        found = exact.count_elsewhere(exact.count_both(both, folder), count_again, chosen)
        return exact.judge(
            *found,
            chosen,
            acknowledged=lambda case: bool(question.dropped) and matches(case, question.dropped),
        )

    def _count_first(self, both: tuple[sides.Side, sides.Side], folder: Path) -> exact.Exact | None:
        """Return what the counts say, where the question is of the whole suite; None if there are none."""
        if self.question.patterns is not None or not (folder / choice.TABLE).is_file():
            return None
        try:
            return self._count(both, folder)
        except exact.CannotCountError as error:
            self.notes.append(f"Everything was timed, as nothing can be counted: {error}.")
            return None

    def _choose(self, suite: suites.Suite) -> Sequence[Case]:
        if self.counts is None:
            return suite.select(self.question.patterns)
        if self.question.everything:
            return choice.everything(suite)
        chosen, what = choice.choose(suite, self.counts)
        self.notes.append(what)
        return chosen

    def _find_commits(self) -> tuple[commits.Commit, commits.Commit]:
        """Return both commits; BASE is where HEAD branched off: HEAD is not blamed for what BASE has gained since."""
        tip, head = (commits.resolve(each) for each in (self.question.base, self.question.head))
        base = tip if self.question.from_tip else commits.merge_base(tip, head)
        if base == head != tip:
            raise UsageError(
                f"{self.question.base} has all of {self.question.head} already, which leaves nothing to compare; "
                "with --from-tip it is compared with that itself"
            )
        if base != tip:
            self.notes.append(f"BASE is where HEAD branched off from {self.question.base}.")
        if commits.is_shallow():
            self.notes.append("This is a shallow clone: where HEAD branched off may lie before what it has.")
        if changed := commits.uncommitted("kvpool/"):
            self.notes.append(f"Not measured, as it is not committed: {', '.join(changed)}.")
        found = commits.describe([base, head])
        return found[0], found[1]

    def _measure(self, measurable: sides.Sides, suite: suites.Suite, chosen: Sequence[Case]) -> list[Measured]:
        """Measure the chosen cases, and as often as allowed what that leaves open."""
        measurements: list[Measured] = []
        cases, what = chosen, "measuring"
        while cases and len(measurements) <= TRIES:
            with asv_calls.plain_errors():
                found = rounds.measure(
                    measurable, suite, cases, self.question.most_rounds, lambda text, what=what: _say(f"{what}: {text}")
                )
            measurements.append(found)
            failed = {case for each in measurements for case in each.cases if each.has_failed(case)}
            cases = [case for case in weigh(measurements, self.question.factor).again if case not in failed]
            controls = [case for case in cases if is_control(case)]
            again = [case for case in cases if not is_control(case)]
            what = f"{count(again, 'case')} and {count(controls, 'control')} again"
        return measurements


def matches(case: str, patterns: Sequence[str] | None) -> bool:
    """Tell whether any of the patterns is somewhere in the name of a counted call; without a pattern, all match."""
    return not patterns or any(re.search(pattern, case) for pattern in patterns)


def run_exact(question: Question, output: Path | None = None) -> Status:
    """Compare two revisions by instructions alone, print and write the report, and return what it says."""
    comparison = Comparison(question)
    reports = _reports(output)
    began = time.monotonic()
    found = comparison.count(asv_calls.configuration())
    minutes = (time.monotonic() - began) / 60
    text = report.write_exact(found, (question.base, question.head), comparison.commits, comparison.notes, minutes)
    _publish(text, reports)
    return found.status


def _reports(output: Path | None) -> set[Path]:
    """Return where the report is to be written, empty until there is one."""
    reports = {REPORT, output or REPORT}
    for path in reports:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("", encoding="utf-8")
        except OSError as error:
            raise UsageError(f"the report cannot be written: {error}") from error
    return reports


def _publish(text: str, reports: set[Path]) -> None:
    print(text, end="", flush=True)
    for path in reports:
        path.write_text(text, encoding="utf-8")


def run(question: Question, output: Path | None = None) -> Status:
    """Compare two revisions, print and write the report, and return what it says."""
    comparison = Comparison(question)
    reports = _reports(output)
    began = time.monotonic()
    conf = asv_calls.configuration()
    verdict = comparison.run(conf)
    context = report.Context(
        (question.base, question.head),
        comparison.commits,
        comparison.notes,
        comparison.benchmarks,
        comparison.counts,
        machine.describe(),
        question.factor,
        (time.monotonic() - began) / 60,
    )
    text = report.write(verdict, context)
    _publish(text, reports)
    return verdict.status


def _copy_of_suite(conf: Config) -> Path:
    """Copy the suite, so that who edits it or changes branch in the meantime does not change what is measured."""
    folder = Path(conf.benchmark_dir)
    asv_calls.check_suite(folder)
    copy = SCRATCH / "compare" / "suite" / folder.name
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(folder, copy, ignore=shutil.ignore_patterns("__pycache__"))
    # Some of it measures what the documents have.
    documents = copy.parent / "docs"
    shutil.rmtree(documents, ignore_errors=True)
    documents.mkdir()
    for path in folder.parent.glob("docs/*.md"):
        shutil.copy(path, documents)
    return copy


def _say(text: str) -> None:
    say(f"compare: {text}")
