"""Decide what two measurements say. No input or output here: figures in, verdict out."""

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from statistics import median
from typing import NamedTuple

from history.records import CANARY, DISTURBED, Case
from history.status import Status

LABELS = ("BASE", "HEAD")
FACTOR = 1.1
# A single call, which anything on the machine can have made longer.
LONGEST = ".time_longest"

NOT_MEASURED = Status.FAILED


class Change(NamedTuple):
    """A case whose figure differs between the two sides."""

    case: Case
    base: float
    head: float

    @property
    def ratio(self) -> float:
        """Return after over before: above 1 is worse."""
        return self.head / self.base if self.base else math.inf


class Failure(NamedTuple):
    """A case that could not be measured on one side."""

    case: Case
    label: str
    reason: str


class Measured:
    """The figures of both sides, by case, one of each round; NaN where a case does not apply to a side."""

    def __init__(self, kinds: dict[str, str]):
        self.kinds = kinds  # of each benchmark: time, track, peakmemory, ...
        self._figures: dict[Case, dict[str, list[float]]] = defaultdict(lambda: {label: [] for label in LABELS})
        self._failures: dict[tuple[Case, str], str] = {}

    def add(self, label: str, case: Case, value: float | None, reason: str = "no message") -> None:
        """Take the figure of one round, or None and the reason if the case failed."""
        if value is None:
            self._failures.setdefault((case, label), reason)
        self._figures[case][label].append(math.nan if value is None else value)

    def merged(self, other: "Measured") -> "Measured":
        """Return both measurements as one."""
        both = Measured(self.kinds | other.kinds)
        for each in (self, other):
            for case, sides in each._figures.items():
                for label, values in sides.items():
                    both._figures[case][label].extend(values)
            both._failures |= each._failures
        return both

    @property
    def cases(self) -> list[Case]:
        """All cases that either side has tried."""
        return sorted(self._figures)

    def failures(self) -> list[Failure]:
        """Return what failed, in whichever round."""
        return sorted(Failure(case, label, reason) for (case, label), reason in self._failures.items())

    def failed_whole(self, benchmark: str) -> bool:
        """Tell whether no case of the benchmark can be measured on both sides any more."""
        cases = [case for case in self._figures if case.benchmark == benchmark]
        return bool(cases) and all(any((case, label) in self._failures for label in LABELS) for case in cases)

    def figure(self, case: Case, label: str) -> float:
        """Return the median of the rounds, NaN where the case does not apply or failed."""
        values = self._figures[case][label]
        if not values or (case, label) in self._failures:
            return math.nan
        return median(values)

    def is_exact(self, case: Case) -> bool:
        """Tell whether the case counts something, without noise."""
        return self.kinds[case.benchmark] == "track"

    def gates(self, case: Case) -> bool:
        """Tell whether the case can turn a comparison red: not the canary, nor the longest of many calls."""
        return not case.benchmark.startswith(CANARY) and not case.benchmark.endswith(LONGEST)

    def pairs(self) -> list[Change]:
        """Return the cases that both sides have a figure for."""
        found = [Change(case, *(self.figure(case, label) for label in LABELS)) for case in self.cases]
        return [each for each in found if not math.isnan(each.base) and not math.isnan(each.head)]


def suspects(measured: Measured, factor: float = FACTOR) -> list[Case]:
    """Return the cases that look changed and are not exact: those have to be measured again."""
    pairs = [each for each in measured.pairs() if not measured.is_exact(each.case)]
    pairs = [each for each in pairs if not each.case.benchmark.endswith(LONGEST)]
    return [each.case for each in pairs if each.ratio > factor or each.ratio < 1 / factor]


class Verdict(NamedTuple):
    """What a comparison found."""

    status: Status
    sentence: str
    compared: Sequence[Case] = ()
    regressions: Sequence[Change] = ()
    growths: Sequence[Change] = ()  # exact counts that grew: regressions without noise
    improvements: Sequence[Change] = ()
    reductions: Sequence[Change] = ()  # exact counts that fell
    unconfirmed: Sequence[Case] = ()  # looked changed, and did not when measured again
    failures: Sequence[Failure] = ()
    lost: Sequence[Case] = ()  # measured beside BASE, not applicable to HEAD
    added: Sequence[Case] = ()  # the other way round
    canary: float = math.nan


def not_measured(reason: str) -> Verdict:
    """Return the verdict of a comparison that has no answer."""
    return Verdict(NOT_MEASURED, f"Not measured: {reason.rstrip('.')}.")


def judge(first: Measured, again: Measured | None, factor: float = FACTOR, same_commit: bool = False) -> Verdict:
    """Return the verdict of a first measurement and of a second one of its suspects.

    A time or a size has changed when both measurements say so. Everything that could not be measured on both sides,
    though it should have been, leaves the question open: that is never "no regression".
    """
    measured = first if again is None else first.merged(again)
    pairs = {each.case: each for each in measured.pairs()}
    compared = [case for case in pairs if not case.benchmark.startswith(CANARY)]
    timed = [each for each in pairs.values() if first.gates(each.case) and not first.is_exact(each.case)]
    exact = [each for each in pairs.values() if each.case in set(compared) and first.is_exact(each.case)]
    doubted = set(suspects(first, factor))
    confirmed = set() if again is None else doubted & set(suspects(again, factor))
    worse = _worst([each for each in timed if each.case in confirmed and each.ratio > factor])
    better = _worst([each for each in timed if each.case in confirmed and each.ratio < 1 / factor])[::-1]
    told = {each.case for each in worse + better}

    lost, added = _one_sided(measured)
    found = Verdict(
        Status.PASSED,
        "",
        compared,
        worse,
        _worst([each for each in exact if each.head > each.base]),
        better,
        _worst([each for each in exact if each.head < each.base])[::-1],
        sorted(case for case in doubted - told if not case.benchmark.startswith(CANARY)),
        measured.failures(),
        lost,
        added,
        max((each.ratio for each in pairs.values() if each.case.benchmark.startswith(CANARY)), default=math.nan),
    )
    return found._replace(**_conclusion(found, same_commit))


def _one_sided(measured: Measured) -> tuple[list[Case], list[Case]]:
    """Return the cases that apply to BASE only, and those that apply to HEAD only."""
    failed = {each.case for each in measured.failures()}
    lost, added = [], []
    for case in measured.cases:
        base, head = (measured.figure(case, label) for label in LABELS)
        if case not in failed and math.isnan(base) != math.isnan(head):
            (added if math.isnan(base) else lost).append(case)
    return lost, added


def _conclusion(found: Verdict, same_commit: bool) -> dict[str, object]:
    failing = sorted({each.case.benchmark for each in found.failures})
    problem = ""
    if failing:
        labels = " and ".join(label for label in LABELS if any(each.label == label for each in found.failures))
        problem = f"{count(failing, 'benchmark')} failed on {labels} ({_some(failing)})"
    elif found.lost:
        names = sorted({case.benchmark for case in found.lost})
        problem = f"{count(found.lost, 'case')} measured on BASE cannot be measured on HEAD ({_some(names)})"
    elif not found.compared:
        problem = "no benchmark could be measured on both sides"
    elif found.canary > DISTURBED or found.canary < 1 / DISTURBED:
        problem = f"the machine was disturbed: its canary ran at {found.canary:.2f} of its own time beside BASE"
    if problem:
        return {"status": NOT_MEASURED, "sentence": f"Not measured: {problem}."}

    names = {case.benchmark for case in found.compared}
    scope = f"{count(found.compared, 'case')} of {count(names, 'benchmark')} measured on both sides"
    if worse := len(found.regressions) + len(found.growths):
        sentence = f"{worse} confirmed regression{'s' * (worse != 1)}: {scope}."
        return {"status": Status.REGRESSED, "sentence": sentence}
    same = " BASE and HEAD are the same commit: what differs is noise." if same_commit else ""
    return {"status": Status.PASSED, "sentence": f"No regression: {scope}.{same}"}


def count(things: Iterable[object], noun: str) -> str:
    """Return how many things there are, in words.

    >>> count(["a"], "case"), count([], "case")
    ('1 case', '0 cases')
    """
    number = len(list(things))
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _some(names: list[str], most: int = 3) -> str:
    rest = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + rest


def _worst(changes: list[Change]) -> list[Change]:
    return sorted(changes, key=lambda each: -each.ratio)
