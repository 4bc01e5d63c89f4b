"""From records to what the front page says: first and latest figures, lines, steps. No input or output here."""

import itertools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain
from statistics import median
from typing import NamedTuple

from history.records import REFERENCES, Case, Record, is_control
from history.site.families import Family

# A family's step is worth a line when the geometric mean of its cases changes by more than this, either way.
LARGE = 1.25


# The least change of a time that is no noise, however still the machine was.
LEAST = 0.05

# The longest of many calls, which says more of the machine than of the code.
UNDECIDED = ".time_longest"


class Line(NamedTuple):
    """The figures of one case over the recorded commits, None where it was not measured."""

    figures: tuple[float | None, ...]

    @property
    def measured(self) -> list[float]:
        """The figures there are."""
        return [figure for figure in self.figures if figure is not None]

    @property
    def ratio(self) -> float:
        """Latest over first, 1 if there is nothing to compare."""
        return _ratio(self.measured[0], self.measured[-1]) if self.measured else 1.0


class Step(NamedTuple):
    """What one commit did to a family, beside the commit recorded before it."""

    index: int
    ratio: float  # geometric mean of after / before
    cases: int


def line(case: Case, records: Sequence[Record]) -> Line:
    """Return the figures of `case` in the order of the records."""
    return Line(tuple(record.figures.get(case) for record in records))


def largest_step(values: Line) -> tuple[int, int, float] | None:
    """Return between which records the figure changed most, and its ratio; None where it did not."""
    found = None
    indices = [index for index, figure in enumerate(values.figures) if figure is not None]
    for before, after in itertools.pairwise(indices):
        ratio = _ratio(values.figures[before] or 0.0, values.figures[after] or 0.0)
        if 0 < ratio < math.inf and (found is None or abs(math.log(ratio)) > abs(math.log(found[2]))):
            found = before, after, ratio
    return found


class Cost(NamedTuple):
    """What a commit made dearer: a figure, before and after."""

    index: int
    case: Case
    before: float
    after: float


def costs(records: Sequence[Record], is_noise: Callable[[float, str, int, int], bool]) -> list[Cost]:
    """Return what commits made dearer, of a case what did so most, the dearest first."""
    found: dict[Case, Cost] = {}
    for index in range(1, len(records)):
        before, after = (records[each].figures for each in (index - 1, index))
        for case in after:
            if is_control(case) or case.benchmark.endswith(UNDECIDED) or not before.get(case):
                continue
            ratio = after[case] / before[case]
            if ratio <= 1 + LEAST or is_noise(ratio, case.benchmark, index - 1, index):
                continue
            if case not in found or ratio > found[case].after / found[case].before:
                found[case] = Cost(index, case, before[case], after[case])
    return sorted(found.values(), key=lambda each: (-each.after / each.before, each.case))


def steps(family: Family, records: Sequence[Record]) -> list[Step | None]:
    """Return what each record changed in the family: None for the first one and where no case is in both."""
    found: list[Step | None] = [None] * len(records)
    for index in range(1, len(records)):
        before, after = (records[each].figures for each in (index - 1, index))
        common = [case for case in after if case in before and family.holds(case)]
        if common:
            found[index] = Step(
                index, geometric_mean(_ratio(before[case], after[case]) for case in common), len(common)
            )
    return found


def is_large(ratio: float) -> bool:
    """Tell whether a step is worth a line."""
    return ratio > LARGE or ratio < 1 / LARGE


def geometric_mean(ratios: Iterable[float]) -> float:
    """Return the mean of ratios, in which twice and half cancel out.

    >>> geometric_mean([2.0, 0.5])
    1.0
    """
    logs = [math.log(ratio) for ratio in ratios if 0 < ratio < math.inf]
    return math.exp(sum(logs) / len(logs)) if logs else 1.0


def in_words(ratio: float, unit: str) -> str:
    """Return a change from first to latest in words.

    >>> in_words(0.01, "seconds"), in_words(1.5, "bytes"), in_words(1.02, "seconds")
    ('100x faster', '1.5x more', 'unchanged')
    """
    better, worse = ("faster", "slower") if unit == "seconds" else ("less", "more")
    if ratio == 0:
        return "down to none"
    if ratio == math.inf:
        return "up from none"
    factor = max(ratio, 1 / ratio)
    if factor < 1.05:
        return "unchanged"
    digits = f"{factor:,.0f}" if factor >= 10 else f"{factor:.1f}"
    return f"{digits}x {better if ratio < 1 else worse}"


def better_or_worse(ratio: float) -> str:
    """Return a change of figures of several units in words.

    >>> better_or_worse(0.5)
    '2.0x better'
    """
    return in_words(ratio, "seconds").replace("faster", "better").replace("slower", "worse")


def points(values: Line, width: float, height: float) -> list[tuple[int, float, float]]:
    """Return where each measured figure is drawn in a box: its record's index, x and y, on a logarithmic scale."""
    figures = [(index, figure) for index, figure in enumerate(values.figures) if figure is not None]
    logs = {index: math.log(max(figure, 1e-12)) for index, figure in figures}
    if not logs:
        return []
    low, high = min(logs.values()), max(logs.values())
    # A change of less than a third is drawn as small as it is.
    span = max(high - low, math.log(4 / 3))
    middle = (low + high) / 2
    last = max(len(values.figures) - 1, 1)
    return [(index, width * index / last, height * (0.5 - (value - middle) / span)) for index, value in logs.items()]


class Noise(NamedTuple):
    """How far figures of cases that run no code of kvpool lie from their own median over the commits."""

    cases: int
    typical: float  # the median of the distances, a share
    most: float  # nine tenths of the distances are at most this


def rising(dates: Iterable[int]) -> list[int]:
    """Return dates in seconds such that each is later than the one before it, moved by as little as that takes.

    >>> rising([5, 3, 9, 9])
    [5, 6, 9, 10]
    """
    found: list[int] = []
    for date in dates:
        found.append(max(date, found[-1] + 1) if found else date)
    return found


def noise(records: Sequence[Record], timed: Callable[[str], bool]) -> Noise | None:
    """Return the noise of the recorded times, None if there is nothing to take it from.

    What no commit changes was measured at every commit all the same: what differs there is the machine's.
    """
    distances: dict[Case, list[float]] = {}
    for case in {case for record in records for case in record.figures}:
        figures = [record.figures[case] for record in records if case in record.figures]
        if len(figures) > 1 and timed(case.benchmark) and not REFERENCES.isdisjoint(case.parameters):
            middle = median(figures)
            distances[case] = [abs(figure / middle - 1) for figure in figures]
    every = sorted(chain.from_iterable(distances.values()))
    return Noise(len(distances), median(every), every[int(0.9 * (len(every) - 1))]) if every else None


def drift(before: Record, after: Record, timed: Callable[[str], bool]) -> float:
    """Return the change of a time between two records, as a share, up to which it may be the machine's.

    Nine in ten of the times that run no code of kvpool changed by at most this, up or down.
    """
    moved = sorted(
        abs(math.log(_ratio(figure, after.figures[case])))
        for case, figure in before.figures.items()
        if case in after.figures and is_control(case) and timed(case.benchmark) and figure > 0 < after.figures[case]
    )
    return max(LEAST, math.expm1(moved[int(0.9 * (len(moved) - 1))])) if moved else LEAST


def longest_history(records: Sequence[Record], order: Mapping[str, int]) -> list[Record]:
    """Return the records of the machine and environment that most figures are of, in the order of `order`.

    On a tie, of the one measured last. What an earlier version of a benchmark measured is no figure. A commit that
    `order` does not know comes at the end.
    """
    lines: dict[tuple[str, str], list[Record]] = {}
    for record in records:
        lines.setdefault((record.machine, record.environment), []).append(record)
    if not lines:
        return []

    def extent(line: Sequence[Record]) -> tuple[int, int]:
        return sum(len(record.figures) for record in line), max(record.measured for record in line)

    chosen = max(lines.values(), key=extent)
    return sorted(chosen, key=lambda record: (order.get(record.commit, len(order)), record.measured))


def _ratio(before: float, after: float) -> float:
    if before == after:
        return 1.0
    return after / before if before else math.inf
