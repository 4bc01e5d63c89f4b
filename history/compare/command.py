"""Run a comparison from two revisions to a report and an exit status."""

import shutil
import time
import traceback
from pathlib import Path
from typing import Any

from asv.config import Config

from history import UsageError, asv_calls, commits, machine
from history.compare import NotMeasuredError, report, rounds, sides
from history.compare.verdict import FACTOR, Measured, Verdict, count, judge, not_measured, suspects
from history.paths import SCRATCH
from history.records import CANARY
from history.status import Status, say

REPORT = SCRATCH / "compare" / "report.md"


class Comparison:
    """Two revisions, what is known of them so far, and how to measure them."""

    def __init__(self, base: str, head: str, patterns: list[str] | None, most_rounds: int | None, factor: float):
        self.revisions = (base, head)
        self.patterns = patterns
        self.most_rounds = most_rounds
        self.factor = factor
        self.commits: tuple[commits.Commit, commits.Commit] | None = None
        self.benchmarks: dict[str, dict[str, Any]] = {}

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
        base, head = commits.describe([commits.resolve(each) for each in self.revisions])
        self.commits = base, head
        shared = sides.shared_environment(conf)
        conf.benchmark_dir = _copy_of_suite(conf)
        _say(f"building {base.hash[:8]} and {head.hash[:8]}")
        both = (sides.prepare(shared, "BASE", base), sides.prepare(shared, "HEAD", head))
        found = rounds.discover(conf, both[1])
        self.benchmarks = {each["name"]: each for each in found}

        first = self._measure(conf, both, found, self.patterns, "measuring")
        doubtful = suspects(first, self.factor)
        again = None
        if doubtful:
            again = self._measure(conf, both, found, rounds.exactly(doubtful), f"{count(doubtful, 'case')} again")
        return judge(first, again, self.factor, same_commit=base.hash == head.hash)

    def _measure(
        self, conf: Config, both: tuple[sides.Side, sides.Side], found: list[Any], patterns: list[str] | None, what: str
    ) -> Measured:
        chosen = rounds.select(conf, found, patterns, self.most_rounds)
        if not chosen:
            raise NotMeasuredError(f"no benchmark matches {' or '.join(patterns or ['anything'])}")
        if patterns:
            chosen = rounds.select(conf, found, [*patterns, f"^{CANARY}"], self.most_rounds)
        with asv_calls.plain_errors():
            return rounds.measure(conf, both, chosen, lambda text: _say(f"{what}: {text}"))


def run(
    base: str,
    head: str,
    patterns: list[str] | None = None,
    most_rounds: int | None = None,
    factor: float = FACTOR,
    output: Path | None = None,
) -> Status:
    """Compare two revisions, print and write the report, and return what it says."""
    comparison = Comparison(base, head, patterns, most_rounds, factor)
    reports = {REPORT, output or REPORT}
    for path in reports:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("", encoding="utf-8")
        except OSError as error:
            raise UsageError(f"the report cannot be written: {error}") from error
    began = time.monotonic()
    conf = asv_calls.configuration()
    verdict = comparison.run(conf)
    text = report.write(
        verdict,
        comparison.revisions,
        comparison.commits,
        comparison.benchmarks,
        machine.describe(),
        comparison.factor,
        (time.monotonic() - began) / 60,
    )
    print(text, end="", flush=True)
    for path in reports:
        path.write_text(text, encoding="utf-8")
    return verdict.status


def _copy_of_suite(conf: Config) -> str:
    """Copy the suite, so that who edits it or changes branch in the meantime does not change what is measured."""
    copy = SCRATCH / "compare" / "suite" / Path(conf.benchmark_dir).name
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(conf.benchmark_dir, copy, ignore=shutil.ignore_patterns("__pycache__"))
    return str(copy)


def _say(text: str) -> None:
    say(f"compare: {text}")
