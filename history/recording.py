"""What is kept of a recording: only whole files, of one machine, and how long each commit took.

asv measures into a folder under .asv/. What it has written of a commit is put into the results when it is whole, by a
rename, so that neither an interruption nor a full disk leaves half a file there.
"""

import csv
import io
import math
import os
import shutil
import time
from collections.abc import Iterable
from dataclasses import astuple, dataclass, fields
from pathlib import Path
from statistics import median

from asv.util import load_json

from history import UsageError, asv_calls, records
from history.machine import describe, processor
from history.paths import SCRATCH

TIMES = "recording.csv"
COUNTS = "bench_instructions."
# What a commit may take, in seconds, so that thirty of them are recorded in less than two hours.
SUITE_LIMIT, COUNT_LIMIT = 120, 90
SLOWEST = 15
EVERYTHING = ["everything"]


@dataclass
class Row:
    """A line of `results/recording.csv`: how a commit was measured."""

    commit: str
    seconds: float  # of all its measurements together, building included
    measurements: int
    canary: float  # over the median of all commits
    disturbed: str  # "yes" where that stayed above records.DISTURBED
    processor: str


class Recording:
    """The results of this machine, and how to add to them."""

    def __init__(self, results: Path, with_instructions: bool = True):
        """Raise UsageError where `results` cannot be added to: broken files, or another machine's."""
        self._results, self._with_instructions = results, with_instructions
        self.rows = {row.commit: row for row in read(results)}
        if any(records.files(results)):
            if broken := records.damage(results):
                path, why = next(iter(broken.items()))
                raise UsageError(f"{path} cannot be used ({why}): restore or remove it")
            _require_same_machine(results, self.rows.values())
        self._desk = SCRATCH / "recording"
        shutil.rmtree(self._desk, ignore_errors=True)
        try:
            if results.is_dir():
                shutil.copytree(results, self._desk, ignore=shutil.ignore_patterns(".*.new"))
        except OSError as error:
            raise UsageError(f"{results} cannot be copied to {self._desk}: {error}") from error
        self._conf = asv_calls.configuration(results=self._desk)
        self._machine = describe()["machine"]
        self._environment = ""

    def prepare(self, commit: str) -> None:
        """Ask what today's suite has; raise UsageError where it cannot count instructions, or has other libraries."""
        asv_calls.run(self._conf, [commit], bench=["just-discover"])
        self._environment = asv_calls.environment_name(self._conf)
        self._require_pins()
        counted_with = [each for name, what in self._suite() if name.startswith(COUNTS) for each in what["params"][-1]]
        if reasons := [each.strip("'\"") for each in counted_with if "not counted" in each]:
            raise UsageError(
                f"instructions are recorded with the times, and here they are {reasons[0]}; "
                "--without-instructions records the times alone"
            )

    def unmeasured(self, commit: str) -> list[str]:
        """Return the names of what today's suite has and `commit` has no result of."""
        found = self._of(commit)
        if not found or not found.figures:
            return EVERYTHING
        missing = {name for name, _ in self._suite()} - found.benchmarks
        return sorted(missing) + [str(case) for case in found.failed if self._is_asked(case.benchmark)]

    def disturbed(self, commits: Iterable[str]) -> dict[str, float]:
        """Return those of the commits whose canary was slow, with how slow."""
        ratios = records.canary_ratios(self._here())
        return {each: ratios[each] for each in commits if ratios.get(each, 0.0) > records.DISTURBED}

    def is_uncounted(self, commit: str) -> bool:
        """Tell whether a commit has none of the counts of instructions that it was to have."""
        found = self._of(commit)
        return self._with_instructions and not any(
            each.benchmark.startswith(COUNTS) for each in (found.figures if found else ())
        )

    def measure(self, commit: str) -> None:
        """Measure what is missing of a commit, and put it into the results."""
        self._run(commit, only_missing=True, is_first=self._missing(commit) == math.inf)
        if (found := self._of(commit)) and found.figures:
            self._keep(commit)

    def measure_again(self, commit: str) -> None:
        """Measure all of a commit once more; the results keep the one of the two that was disturbed less."""
        before = {path: path.read_bytes() for path in self._files(commit)}
        first = self._quality(commit)
        self._run(commit, only_missing=False, is_first=False)
        if self._quality(commit) < first:
            self._keep(commit)
        else:
            for path, content in before.items():
                path.write_bytes(content)
            self._write_rows()

    def finish(self, commits: Iterable[str]) -> str:
        """Mark what stayed disturbed in the record; return how long the commits took, and what took longest."""
        disturbed = self.disturbed(commits)
        ratios = records.canary_ratios(self._here())
        for row in self.rows.values():
            row.canary = round(ratios.get(row.commit, 0.0), 3)
            row.disturbed = "yes" if row.commit in disturbed else ""
        if self.rows:
            self._write_rows()
        durations = records.durations(self._desk, self._machine, self._environment)
        return report([self.rows[each] for each in commits if each in self.rows], durations)

    def _require_pins(self) -> None:
        found = asv_calls.installed(self._conf)
        for name, (wanted,) in self._conf.matrix["req"].items():
            # torch's build for CPUs is a version of its own: 2.13.0+cpu.
            there = found.get(name.removeprefix("pip+").lower(), "nothing").partition("+")[0]
            if there != wanted:
                raise UsageError(
                    f"asv's environment has {name} {there}, and results would be filed under {wanted}: remove "
                    f"{self._conf.env_dir}/ to make it anew"
                )

    def _run(self, commit: str, only_missing: bool, is_first: bool) -> None:
        bench = None if self._with_instructions else [rf"^(?!{COUNTS})"]
        began = time.monotonic()
        asv_calls.run(self._conf, [commit], bench=bench, only_missing=only_missing)
        row = None if is_first else self.rows.get(commit)
        row = row or Row(commit, 0.0, 0 if is_first else 1, 1.0, "", processor())
        row.seconds = round(row.seconds + time.monotonic() - began, 1)
        row.measurements += is_first or not only_missing
        self.rows[commit] = row

    def _quality(self, commit: str) -> tuple[float, float]:
        return self._missing(commit), records.canary_ratios(self._here()).get(commit, math.inf)

    def _missing(self, commit: str) -> float:
        missing = self.unmeasured(commit)
        return math.inf if missing == EVERYTHING else len(missing)

    def _keep(self, commit: str) -> None:
        of_all = [self._desk / self._machine / records.MACHINE, self._desk / records.SUITE]
        for path in [*of_all, *self._files(commit)]:
            put(path.read_bytes(), self._results / path.relative_to(self._desk))
        self._write_rows()

    def _write_rows(self) -> None:
        text = io.StringIO()
        lines = csv.writer(text, lineterminator="\n")
        lines.writerow(field.name for field in fields(Row))
        lines.writerows(astuple(row) for row in self.rows.values())
        put(text.getvalue().encode(), self._results / TIMES)

    def _files(self, commit: str) -> list[Path]:
        return sorted((self._desk / self._machine).glob(f"{commit[:8]}-*.json"))

    def _suite(self) -> list[tuple[str, dict]]:
        return [(name, what) for name, what in records.suite(self._desk).items() if self._is_asked(name)]

    def _is_asked(self, name: str) -> bool:
        return self._with_instructions or not name.startswith(COUNTS)

    def _here(self) -> list[records.Record]:
        here = self._machine, self._environment
        return [each for each in records.load(self._desk) if (each.machine, each.environment) == here]

    def _of(self, commit: str) -> records.Record | None:
        return next((each for each in self._here() if each.commit == commit), None)


def read(results: Path) -> list[Row]:
    """Return how the commits in `results` were measured, as far as that was written down."""
    path = results / TIMES
    if not path.is_file():
        return []
    try:
        with path.open(encoding="utf-8", newline="") as file:
            return [
                Row(each["commit"], float(each["seconds"]), int(each["measurements"]), float(each["canary"]),
                    each["disturbed"], each["processor"])
                for each in csv.DictReader(file)
            ]  # fmt: skip
    except (KeyError, TypeError, ValueError) as error:
        raise UsageError(f"{path} cannot be used ({type(error).__name__}: {error}): restore or remove it") from error


def put(content: bytes, path: Path) -> None:
    """Write a file, all of it or nothing; raise UsageError where it cannot be written."""
    new = path.with_name(f".{path.name}.new")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with new.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        new.replace(path)
    except OSError as error:
        raise UsageError(f"{path} cannot be written ({error.strerror}); it is what it was before") from error
    finally:
        new.unlink(missing_ok=True)


def report(rows: list[Row], durations: dict[str, dict[str, float]]) -> str:
    """Return how long commits took, each and together, and the benchmarks that took longest."""
    if not rows:
        return ""
    total = sum(row.seconds for row in rows) / 60
    lines = [f"{len(rows)} commits took {total:.0f} min, {total / len(rows):.1f} each. In seconds:"]
    lines.append("commit      all  suite  counting  measurements")
    for row in rows:
        took = durations.get(row.commit, {})
        suite = sum(seconds for name, seconds in took.items() if not name.startswith("<"))
        counting = sum(seconds for name, seconds in took.items() if name.startswith(f"<setup_cache {COUNTS[:-1]}"))
        long = [
            f"{what} above {limit}"
            for what, seconds, limit in (("suite", suite, SUITE_LIMIT), ("counting", counting, COUNT_LIMIT))
            if seconds > limit
        ]
        line = f"{row.commit[:8]} {row.seconds:6.0f} {suite:6.0f} {counting:9.0f} {row.measurements:13}"
        lines.append("  ".join([line, *long]))
    by_name: dict[str, list[float]] = {}
    for row in rows:
        for name, seconds in durations.get(row.commit, {}).items():
            by_name.setdefault(name, []).append(seconds)
    slowest = sorted(((median(each), name) for name, each in by_name.items()), reverse=True)[:SLOWEST]
    if slowest:
        lines += ["The slowest, in seconds a commit (the median):", *(f"{took:6.1f}  {name}" for took, name in slowest)]
    return "\n".join(lines)


def _require_same_machine(results: Path, rows: Iterable[Row]) -> None:
    here = describe()
    differ = []
    for path in sorted({each.parent / records.MACHINE for each in records.files(results)}):
        there = load_json(str(path))
        differ += [
            f"{field} ({there.get(field)}; here {value})" for field, value in here.items() if there.get(field) != value
        ]
    kinds = {row.processor for row in rows} - {processor()}
    differ += [f"processor ({each}; here {processor()})" for each in sorted(kinds)]
    if differ:
        raise UsageError(
            f"{results.name}/ was recorded on another machine, and the two are not mixed: {', '.join(differ)}; go on "
            f"where it began, or remove {results.name}/ to record everything here"
        )
