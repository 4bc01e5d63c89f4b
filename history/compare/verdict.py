"""Decide what measurements say. No input or output here: figures in, verdict out."""

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from statistics import median
from typing import Any, NamedTuple

from history.records import Case, is_control
from history.status import Status

LABELS = ("BASE", "HEAD")
FACTOR = 1.1
# How often a comparison measures again what a first measurement left open.
TRIES = 3
# By more than this between the sides, the canary says that the machine was slower for one of them.
DISTURBED = 1.15
# A single call, which anything on the machine can have made longer.
LONGEST = ".time_longest"
# A count of these that grew by no more than the factor is listed and decides nothing: one attribute more, say.
LARGE_COUNTS = ("bytes", "instructions")
LARGE_FACTOR = 1.01

NOT_MEASURED = Status.FAILED


class Change(NamedTuple):
    """A case whose figure differs between the two sides."""

    case: Case
    base: float
    head: float

    @property
    def ratio(self) -> float:
        """Return after over before: above 1 is worse."""
        if self.base == self.head:
            return 1.0
        return self.head / self.base if self.base else math.inf

    @property
    def movement(self) -> float:
        """Return by what factor it changed, whichever way: 1 or more."""
        return max(self.ratio, 1 / self.ratio if self.ratio else math.inf)


class Failure(NamedTuple):
    """A case that could not be measured on one side."""

    case: Case
    label: str
    reason: str


class Measured:
    """The figures of both sides, by case, one of each round; NaN where a case does not apply to a side."""

    def __init__(self, benchmarks: Mapping[str, Mapping[str, Any]]):
        self._benchmarks = benchmarks  # each as asv describes it: its type and unit count here
        self._figures: dict[Case, dict[str, list[float]]] = defaultdict(lambda: {label: [] for label in LABELS})
        self._failures: dict[tuple[Case, str], str] = {}
        self._canary: dict[str, list[float]] = {label: [] for label in LABELS}

    def add(self, label: str, case: Case, value: float | None, reason: str = "no message") -> None:
        """Take the figure of one round, or None and the reason if the case failed."""
        if value is None:
            self._failures.setdefault((case, label), reason)
        self._figures[case][label].append(math.nan if value is None else value)

    def add_canary(self, label: str, seconds: float) -> None:
        """Take a figure of the canary, measured while a side had its turn."""
        self._canary[label].append(seconds)

    def merged(self, others: Iterable["Measured"]) -> "Measured":
        """Return this measurement and others as one."""
        both = Measured(self._benchmarks)
        for each in (self, *others):
            for case, sides in each._figures.items():
                for label, values in sides.items():
                    both._figures[case][label].extend(values)
            both._failures |= each._failures
            for label, values in each._canary.items():
                both._canary[label].extend(values)
        return both

    @property
    def cases(self) -> list[Case]:
        """All cases that either side has tried."""
        return sorted(self._figures)

    def failures(self) -> list[Failure]:
        """Return what failed, in whichever round."""
        return sorted(Failure(case, label, reason) for (case, label), reason in self._failures.items())

    def has_failed(self, case: Case) -> bool:
        """Tell whether the case has failed on either side."""
        return any((case, label) in self._failures for label in LABELS)

    def figure(self, case: Case, label: str) -> float:
        """Return the median of the rounds, NaN where the case does not apply or failed."""
        values = self._figures[case][label]
        if not values or (case, label) in self._failures:
            return math.nan
        return median(values)

    def is_exact(self, case: Case) -> bool:
        """Tell whether the case counts something, without noise."""
        return self._benchmarks[case.benchmark]["type"] == "track"

    def matters(self, growth: Change) -> bool:
        """Tell whether an exact count grew by enough to be a regression: by anything, but for the large ones."""
        is_large = self._benchmarks[growth.case.benchmark]["unit"].startswith(LARGE_COUNTS)
        return growth.ratio > (LARGE_FACTOR if is_large else 1)

    def pairs(self) -> list[Change]:
        """Return the cases that both sides have a figure for."""
        found = [Change(case, *(self.figure(case, label) for label in LABELS)) for case in self.cases]
        return [each for each in found if not math.isnan(each.base) and not math.isnan(each.head)]

    def timed(self) -> dict[Case, Change]:
        """Return those of the pairs that have noise; without the longest of many calls, which decides nothing."""
        found = [each for each in self.pairs() if not self.is_exact(each.case)]
        return {each.case: each for each in found if not each.case.benchmark.endswith(LONGEST)}

    @property
    def canary(self) -> float:
        """HEAD's canary over BASE's, NaN without one."""
        if not all(self._canary.values()):
            return math.nan
        return median(self._canary["HEAD"]) / median(self._canary["BASE"])

    @property
    def is_disturbed(self) -> bool:
        """Whether the machine was slower for one of the sides: then no time says anything."""
        return self.canary > DISTURBED or self.canary < 1 / DISTURBED


class Times(NamedTuple):
    """What the times of some measurements say together."""

    slower: Sequence[Change] = ()
    faster: Sequence[Change] = ()
    unconfirmed: Sequence[Case] = ()  # looked changed, and did not when measured again
    undecided: Sequence[Case] = ()  # look slower, and nothing says whether it is HEAD or the machine
    spread: float = math.nan  # by what factor the controls moved, nine in ten of them at most
    controls: int = 0
    again: Sequence[Case] = ()  # to be measured once more before anything is said


def weigh(measurements: Sequence[Measured], factor: float = FACTOR) -> Times:
    """Return what the times of a first measurement and of those of its suspects say.

    A time has changed when every measurement of it says so, in the same direction, and by more than the controls moved:
    those of its own benchmark, and nine in ten of all. What was measured on a disturbed machine does not count. Nor
    does what looks no slower beside a control of its benchmark that looks faster: BASE's turn was slowed down then.
    """
    calm = [each for each in measurements if not each.is_disturbed]
    if not calm:
        timed = measurements[0].timed()
        return Times(again=[] if all(map(is_control, timed)) else list(timed))
    merged = calm[0].merged(calm[1:]).timed()
    controls = {case: change.movement for case, change in merged.items() if is_control(case)}
    spread = _nine_tenths(list(controls.values()))

    slower, faster, unconfirmed, undecided, again = [], [], [], [], []
    for case, said in _directions(calm, factor).items():
        direction = said[0] if said else 1  # what is hidden may be slower
        beside = [moved for control, moved in controls.items() if control.benchmark == case.benchmark]
        if not direction:
            continue
        if len(said) < 2:
            again.append(case)
            (undecided if direction > 0 else unconfirmed).append(case)
        elif any(each != direction for each in said):
            unconfirmed.append(case)
        elif case not in merged:
            undecided.append(case)  # it has failed since
        elif merged[case].movement > max([factor, spread, *beside] if controls else [factor]):
            (slower if direction > 0 else faster).append(merged[case])
        elif direction > 0:
            undecided.append(case)
            again.append(case)
        else:
            unconfirmed.append(case)
    moved = [case for case, by in controls.items() if by > factor]
    if again or len(calm) == 1:
        # The controls beside what is measured again say how far it can be believed.
        names = {case.benchmark for case in again}
        again += [case for case in controls if case in moved or case.benchmark in names]
    return Times(_worst(slower), _worst(faster)[::-1], unconfirmed, undecided, spread, len(controls), sorted(again))


def _directions(calm: Sequence[Measured], factor: float) -> dict[Case, list[int]]:
    """Return what each measurement says of the first one's cases: 1 where one is slower, -1 where it is faster."""
    said: dict[Case, list[int]] = {case: [] for case in calm[0].timed() if not is_control(case)}
    for timed in (each.timed() for each in calm):
        faster = {case.benchmark for case, each in timed.items() if is_control(case) and _direction(each, factor) < 0}
        for case in said.keys() & timed.keys():
            direction = _direction(timed[case], factor)
            if direction > 0 or case.benchmark not in faster:
                said[case].append(direction)
    return said


def _direction(change: Change, factor: float) -> int:
    return (change.ratio > factor) - (change.ratio < 1 / factor)


def _nine_tenths(movements: list[float]) -> float:
    return sorted(movements)[math.ceil(0.9 * len(movements)) - 1] if movements else math.nan


class Verdict(NamedTuple):
    """What a comparison found."""

    status: Status
    sentence: str
    compared: Sequence[Case] = ()
    regressions: Sequence[Change] = ()
    growths: Sequence[Change] = ()  # exact counts that grew: regressions without noise
    small_growths: Sequence[Change] = ()  # counts of bytes or instructions that grew by too little to be one
    improvements: Sequence[Change] = ()
    reductions: Sequence[Change] = ()  # exact counts that fell
    unconfirmed: Sequence[Case] = ()  # looked changed, and did not when measured again
    undecided: Sequence[Case] = ()  # look slower, as do the controls
    failures: Sequence[Failure] = ()
    lost: Sequence[Case] = ()  # measured beside BASE, not applicable to HEAD
    dropped: Sequence[Case] = ()  # in BASE's suite, and not in HEAD's
    acknowledged: Sequence[Case] = ()  # lost or dropped, as the command line says that they are to be
    added: Sequence[Case] = ()  # measured beside HEAD, not applicable to BASE
    is_disturbed: bool = False  # every time was measured while the machine was slower for one of the sides
    canary: float = math.nan
    controls: int = 0
    spread: float = math.nan


def not_measured(reason: str) -> Verdict:
    """Return the verdict of a comparison that has no answer."""
    return Verdict(NOT_MEASURED, f"Not measured: {reason.rstrip('.')}.")


def judge(
    measurements: Sequence[Measured],
    factor: float = FACTOR,
    same_commit: bool = False,
    dropped: Sequence[Case] = (),
    acknowledged: Callable[[Case], bool] = lambda case: False,
) -> Verdict:
    """Return the verdict of a first measurement of everything and of later ones of what that left open.

    `dropped` is what BASE's suite has and HEAD's has not. Everything that could not be measured on both sides, though
    it should have been, leaves the question open: that is never "no regression".
    """
    measured = measurements[0].merged(measurements[1:])
    times = weigh(measurements, factor)
    compared = [each for each in measured.pairs() if not is_control(each.case)]
    exact = [each for each in compared if measured.is_exact(each.case)]
    grown = _worst([each for each in exact if each.head > each.base])
    lost, added = _one_sided(measured)
    meant = [case for case in (*dropped, *lost) if acknowledged(case)]
    calm = [each for each in measurements if not each.is_disturbed]
    found = Verdict(
        Status.PASSED,
        "",
        compared=[each.case for each in compared],
        regressions=times.slower,
        growths=[each for each in grown if measured.matters(each)],
        small_growths=[each for each in grown if not measured.matters(each)],
        improvements=times.faster,
        reductions=_worst([each for each in exact if each.head < each.base])[::-1],
        unconfirmed=times.unconfirmed,
        undecided=times.undecided,
        failures=measured.failures(),
        lost=[case for case in lost if case not in meant],
        dropped=[case for case in dropped if case not in meant],
        acknowledged=meant,
        added=added,
        is_disturbed=not calm and any(not is_control(case) for case in measured.timed()),
        canary=measurements[-1].canary if not calm else calm[0].merged(calm[1:]).canary,
        controls=times.controls,
        spread=times.spread,
    )
    status, sentence = _conclusion(found, same_commit)
    return found._replace(status=status, sentence=sentence)


def _one_sided(measured: Measured) -> tuple[list[Case], list[Case]]:
    """Return the cases that apply to BASE only, and those that apply to HEAD only."""
    lost, added = [], []
    for case in measured.cases:
        base, head = (measured.figure(case, label) for label in LABELS)
        if not measured.has_failed(case) and math.isnan(base) != math.isnan(head):
            (added if math.isnan(base) else lost).append(case)
    return lost, added


def _conclusion(found: Verdict, same_commit: bool) -> tuple[Status, str]:
    if problem := _missing(found):
        return NOT_MEASURED, f"Not measured: {problem}."
    names = {case.benchmark for case in found.compared}
    scope = f"{count(found.compared, 'case')} of {count(names, 'benchmark')} measured on both sides"
    noise = _noise(found)
    if worse := len(found.regressions) + len(found.growths):
        open_times = f" The times are open: {noise}." if noise and not found.regressions else ""
        return Status.REGRESSED, f"{worse} confirmed regression{'s' * (worse != 1)}: {scope}.{open_times}"
    if noise:
        return NOT_MEASURED, f"Not measured: {noise}."
    same = " BASE and HEAD are the same commit: what differs is noise." if same_commit else ""
    return Status.PASSED, f"No regression: {scope}.{same}"


def _missing(found: Verdict) -> str:
    """Return what should have been measured and was not."""
    failing = sorted({each.case.benchmark for each in found.failures})
    if failing:
        labels = " and ".join(label for label in LABELS if any(each.label == label for each in found.failures))
        return f"{count(failing, 'benchmark')} failed on {labels} ({_some(failing)})"
    if found.lost:
        return f"{count(found.lost, 'case')} measured on BASE cannot be measured on HEAD ({_names(found.lost)})"
    if found.dropped:
        return f"HEAD drops {count(found.dropped, 'case')} that BASE has ({_names(found.dropped)})"
    return "" if found.compared else "no benchmark could be measured on both sides"


def _noise(found: Verdict) -> str:
    """Return what keeps the times from saying anything."""
    if found.is_disturbed:
        return f"the machine was disturbed: its canary ran at {found.canary:.2f} of its own time beside BASE"
    if found.undecided:
        moved = "" if math.isnan(found.spread) else f"; what runs no code of kvpool moved by {found.spread:.2f}"
        return f"{count(found.undecided, 'case')} may be slower, or the machine was ({_names(found.undecided)}){moved}"
    return ""


def count(things: Iterable[object], noun: str) -> str:
    """Return how many things there are, in words.

    >>> count(["a"], "case"), count([], "case")
    ('1 case', '0 cases')
    """
    number = len(list(things))
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _names(cases: Iterable[Case]) -> str:
    return _some(sorted({case.benchmark for case in cases}))


def _some(names: list[str], most: int = 3) -> str:
    rest = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + rest


def _worst(changes: list[Change]) -> list[Change]:
    return sorted(changes, key=lambda each: -each.ratio)
