"""Compare two commits by the instructions of single calls: in a minute or two, and to the last digit.

What is counted, and with what, is for `benchmarks/counting.py` to say, which runs in each side's environment. Counts of
a commit do not depend on what else the machine does, so that both sides are counted at the same time, and nothing is
measured twice.
"""

import json
import math
import tempfile
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

from asv import util

from history.compare import NotMeasuredError
from history.compare.reasons import why
from history.compare.sides import Side
from history.compare.verdict import Verdict, count
from history.status import Status

# More than this times as many instructions is a regression; what grew by less is listed.
FACTOR = 1.01
# By more than this, either way, a count has moved, and what times the call is worth the time. Where another build has
# things at other places, counts differ by up to 0.2 %.
MOVED = 1.005
# Where else in memory what grew is counted again, as `counting.py` numbers the places. Python's cache of attributes is
# addressed by pointers, so that one build may meet a collision there that another does not: 2 % of an interpreted call.
ELSEWHERE = (1, 2, 3)
# Seconds that one side may take.
PATIENCE = 3_000
# Functions that a change is explained by.
SHOWN = 5


class CannotCountError(NotMeasuredError):
    """No count is to be had of a side, which says nothing about it."""


class Change(NamedTuple):
    """A call whose count has moved, and the functions that account for most of it."""

    case: str
    base: int
    head: int
    functions: Sequence[tuple[str, int, int]]  # name, and its own instructions on BASE and on HEAD

    @property
    def ratio(self) -> float:
        """HEAD's count over BASE's."""
        return self.head / self.base if self.base else float("inf")


class Exact(NamedTuple):
    """What a comparison of counts found."""

    status: Status
    sentence: str
    made_with: str = ""
    compared: int = 0
    grown: Sequence[Change] = ()
    little: Sequence[Change] = ()  # grew by less than is a regression
    fallen: Sequence[Change] = ()
    failures: Sequence[tuple[str, str, str]] = ()  # side, case, reason
    lost: Sequence[str] = ()  # counted on BASE, and HEAD does not have it
    acknowledged: Sequence[str] = ()  # lost, as the command line says that they are to be
    added: Sequence[str] = ()

    @property
    def moved(self) -> list[str]:
        """The calls that differ between the sides by more than next to nothing, or that one of them cannot make."""
        changes = [*self.grown, *self.little, *self.fallen]
        counted = [each.case for each in changes if max(each.base, each.head) > MOVED * min(each.base, each.head)]
        return [*counted, *(call for _, call, _ in self.failures), *self.lost, *self.acknowledged, *self.added]


def not_counted(reason: str) -> Exact:
    """Return what is known where nothing was counted."""
    return Exact(Status.FAILED, f"Not measured: {reason.rstrip('.')}.")


# What `counting.py` writes of BASE and of HEAD.
Counts = tuple[dict[str, Any], dict[str, Any]]


def count_both(both: tuple[Side, Side], suite: Path, options: Sequence[str] = ()) -> Counts:
    """Count the calls of both sides, at the same time, with the table of a folder of the suite."""
    with ThreadPoolExecutor(2) as executor:
        base, head = executor.map(lambda side: _count(side, suite, options), both)
    return base, head


def count_elsewhere(found: Counts, count: Callable[[Sequence[str]], Counts], chosen: Callable[[str], bool]) -> Counts:
    """Return the counts with the least of several in place of those that grew by more than is allowed.

    `count` counts both sides again, with options for `counting.py`: at other addresses, until what is chosen has not
    grown at the best that either side does, or there is nowhere else.
    """
    for place in ELSEWHERE:
        grown = [change.case for change in judge(*found, chosen).grown]
        if not grown:
            break
        again = count([f"--shift={place}", *(f"--case={case}" for case in grown)])
        found = _least(found[0], again[0]), _least(found[1], again[1])
    return found


def _least(found: dict[str, Any], again: dict[str, Any]) -> dict[str, Any]:
    better = {
        case: each
        for case, each in again["cases"].items()
        if each.get("instructions", math.inf) < found["cases"][case]["instructions"]
    }
    return {**found, "cases": {**found["cases"], **better}}


def _count(side: Side, suite: Path, options: Sequence[str]) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="kvpool-exact-") as folder:
        output = Path(folder) / "counts.json"
        try:
            side.environment.run_executable(
                "python",
                [str(suite / "counting.py"), str(output), *options],
                cwd=folder,
                display_error=False,
                dots=False,
                timeout=PATIENCE,
            )
            found: dict[str, Any] = json.loads(output.read_text(encoding="utf-8"))
        except util.ProcessError as error:
            reason = why(error.retcode, error.stderr or error.stdout or "", PATIENCE)
            raise NotMeasuredError(f"{side} was not counted: {reason}") from error
        except (OSError, ValueError) as error:
            raise NotMeasuredError(f"{side} was not counted: {error}") from error
    for key, error in (("reason", CannotCountError), ("failed", NotMeasuredError)):
        if key in found:
            raise error(f"{side} was not counted: {found[key]}")
    return found


def judge(
    base: Mapping[str, Any],
    head: Mapping[str, Any],
    chosen: Callable[[str], bool] = lambda case: True,
    acknowledged: Callable[[str], bool] = lambda case: False,
) -> Exact:
    """Return what the counts of two sides say, of the cases that are chosen."""
    if base["made_with"] != head["made_with"]:
        return not_counted(f"BASE was counted with {base['made_with']}, HEAD with {head['made_with']}")
    names = [name for name in base["cases"] | head["cases"] if chosen(name)]
    changes, compared = [], 0
    failures: list[tuple[str, str, str]] = []
    gone: list[str] = []
    added: list[str] = []
    for name in names:
        sides = {label: found["cases"].get(name, {}) for label, found in (("BASE", base), ("HEAD", head))}
        failed = [(label, name, each["failed"]) for label, each in sides.items() if "failed" in each]
        counted = [label for label, each in sides.items() if "instructions" in each]
        failures += failed
        if len(counted) == 2:
            compared += 1
            changes.append(_change(name, sides["BASE"], sides["HEAD"]))
        elif not failed and counted:
            (gone if counted == ["BASE"] else added).append(name)
    grown = [each for each in changes if each.head > each.base * FACTOR]
    lost = [name for name in gone if not acknowledged(name)]
    status, sentence = _decided(grown, failures, lost, compared)
    return Exact(
        status,
        sentence,
        base["made_with"],
        compared,
        _largest_first(grown),
        _largest_first([each for each in changes if each.base < each.head <= each.base * FACTOR]),
        _largest_first([each for each in changes if each.head < each.base])[::-1],
        failures,
        lost,
        [name for name in gone if acknowledged(name)],
        added,
    )


def joined(counts: Exact, times: Verdict) -> Verdict:
    """Return the verdict of both, in which a count that grew stands whatever the times say."""
    status, said = times.status, times.sentence
    if counts.status is Status.REGRESSED:
        found = count([*counts.grown, *times.regressions, *times.growths], "confirmed regression")
        open_times = "The times are open: " if times.status is Status.FAILED else ""
        status, said = Status.REGRESSED, f"{found}: {_after(counts.sentence)} {open_times}{_after(said)}"
    elif counts.status is Status.FAILED:
        status, said = Status.FAILED, counts.sentence
    elif times.status is not Status.FAILED:
        said = f"{said} {_after(counts.sentence).capitalize()}"
    return times._replace(status=status, sentence=said)


def _after(sentence: str) -> str:
    """Return what a sentence says after its verdict."""
    return sentence.split(": ", 1)[1]


def _decided(
    grown: Sequence[Change], failures: Sequence[object], lost: Sequence[str], compared: int
) -> tuple[Status, str]:
    percent = f"{(FACTOR - 1) * 100:.0f} %"
    more = f"of {count(range(compared), 'call')} took more instructions, by more than {percent}"
    if grown:
        return Status.REGRESSED, f"{count(grown, 'confirmed regression')}: {len(grown)} {more}."
    if failures:
        return Status.FAILED, f"Not measured: {count(failures, 'call')} failed."
    if lost:
        return Status.FAILED, f"Not measured: HEAD no longer has {count(lost, 'call')} that BASE has."
    if not compared:
        return Status.FAILED, "Not measured: no call was counted on both sides."
    return Status.PASSED, f"No regression: none {more}."


def _change(name: str, base: Mapping[str, Any], head: Mapping[str, Any]) -> Change:
    own = [(each, base["functions"].get(each, 0), head["functions"].get(each, 0)) for each in _functions(base, head)]
    moved = sorted((each for each in own if each[1] != each[2]), key=lambda each: -abs(each[2] - each[1]))
    return Change(name, base["instructions"], head["instructions"], moved[:SHOWN])


def _functions(base: Mapping[str, Any], head: Mapping[str, Any]) -> list[str]:
    return list(base["functions"] | head["functions"])


def _largest_first(changes: Sequence[Change]) -> list[Change]:
    return sorted(changes, key=lambda each: each.ratio, reverse=True)
