"""Plots on logarithmic axes as SVG, readable in light and dark, without a library."""

import math
from collections.abc import Sequence
from typing import NamedTuple

from history.templating import render

WIDTH, HEIGHT = 760, 440
LEFT, RIGHT, TOP, BOTTOM = 68, 186, 44, 52
LABEL_STEP = 15
# As many as the template has.
COLOURS = 11


class Series(NamedTuple):
    """A line of a plot: its label, its points, and how it is drawn: "own", "peer" or "floor"."""

    label: str
    points: Sequence[tuple[float, float]]
    kind: str = "peer"


def plot(title: str, x_label: str, y_label: str, series: Sequence[Series]) -> str:
    """Return the SVG of a plot, both axes logarithmic; a series without points is left out."""
    series = [each for each in series if each.points]
    xs = sorted({x for each in series for x, _ in each.points})
    ys = [y for each in series for _, y in each.points]
    left, right = math.log10(xs[0]), math.log10(xs[-1])
    low, high = _decades(min(ys), max(ys))

    def place(x: float, y: float) -> tuple[float, float]:
        across = (math.log10(x) - left) / ((right - left) or 1)
        up = (math.log10(y) - low) / (high - low)
        return LEFT + across * (WIDTH - LEFT - RIGHT), HEIGHT - BOTTOM - up * (HEIGHT - TOP - BOTTOM)

    lines = []
    colours = iter(range(len(series)))
    for each in series:
        points = [place(*point) for point in sorted(each.points)]
        colour = "floor" if each.kind == "floor" else f"c{next(colours) % COLOURS}"
        lines.append({"label": each.label, "kind": each.kind, "colour": colour, "points": points})
    for line, y in zip(lines, spread([line["points"][-1][1] for line in lines]), strict=True):
        line["label_y"] = y
    return render(
        "plot.svg",
        title=title,
        x_label=x_label,
        y_label=y_label,
        lines=lines,
        x_ticks=[(place(x, 10**low)[0], short(x)) for x in xs],
        y_ticks=[(place(xs[0], y)[1], short(y)) for y in _ticks(low, high)],
        width=WIDTH,
        height=HEIGHT,
        box=(LEFT, TOP, WIDTH - RIGHT, HEIGHT - BOTTOM),
    )


def spread(places: Sequence[float], step: float = LABEL_STEP) -> list[float]:
    """Return places for labels, each as near to its own as it can be and `step` from the next.

    >>> spread([100, 101, 200], step=10)
    [95.5, 105.5, 200.0]
    """
    order = sorted(range(len(places)), key=lambda index: places[index])
    # Labels that would touch move apart as a group around their middle.
    groups: list[list[int]] = []
    for index in order:
        groups.append([index])
        while len(groups) > 1 and _top(groups[-1], places, step) < _bottom(groups[-2], places, step) + step:
            last = groups.pop()
            groups[-1] += last
    found = [0.0] * len(places)
    for group in groups:
        top = _top(group, places, step)
        for place, index in enumerate(group):
            found[index] = top + place * step
    return found


def short(number: float) -> str:
    """Return a number as a tick shows it.

    >>> [short(number) for number in (0.2, 1, 512, 8192, 34375, 16777216)]
    ['0.2', '1', '512', '8,192', '34,375', '16.8 M']
    """
    if number >= 1_000_000:
        return f"{number / 1e6:.3g} M"
    return f"{number:,.0f}" if number >= 1 else f"{number:g}"


def _top(group: Sequence[int], places: Sequence[float], step: float) -> float:
    return sum(places[index] for index in group) / len(group) - (len(group) - 1) * step / 2


def _bottom(group: Sequence[int], places: Sequence[float], step: float) -> float:
    return _top(group, places, step) + (len(group) - 1) * step


def _decades(least: float, most: float) -> tuple[float, float]:
    """Return the ends of an axis: whole decades, or a half where that holds all."""
    ends = [math.log10(step) + decade for decade in range(-12, 12) for step in (1, 3)]
    low = max(end for end in ends if end <= math.log10(least) + 1e-9)
    high = min(end for end in ends if end >= math.log10(most) - 1e-9)
    return low, high if high > low else low + 1


def _ticks(low: float, high: float) -> list[float]:
    return [10.0**decade for decade in range(math.ceil(low - 1e-9), math.floor(high + 1e-9) + 1)]
