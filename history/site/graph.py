"""A graph of a row of the front page: its time, the floor and the instructions of the same work. No input or output."""

import math
from collections.abc import Sequence
from typing import NamedTuple

from history.site.trend import Line
from history.units import figure

WIDTH, HEIGHT = 720.0, 260.0
# Beside the box that holds the lines: the scale, the name of the last commit, and points that lie on its edge.
LEFT, RIGHT, TOP, BOTTOM = 80.0, 20.0, 10.0, 10.0


class Curve(NamedTuple):
    """What is drawn of one line: `kind` is also the class that gives it its colour."""

    kind: str
    name: str
    line: Line
    unit: str


class Point(NamedTuple):
    """A figure at its place, in words."""

    x: float
    y: float
    title: str


class Drawn(NamedTuple):
    """A curve in the box."""

    kind: str
    name: str
    points: list[Point]


class Tick(NamedTuple):
    """A line across the box, and the figure that it stands for."""

    y: float
    label: str


class Mark(NamedTuple):
    """A name along the line of a commit."""

    x: float
    name: str


class Drawing(NamedTuple):
    """A graph, ready for a template."""

    curves: list[Drawn]
    ticks: list[Tick]
    marks: list[Mark]


def draw(curves: Sequence[Curve], names: Sequence[str], marks: Sequence[str]) -> Drawing:
    """Draw curves over commits called `names`; what `marks` says of one stands along a line at it.

    The scale is logarithmic. Curves of another unit than the first are moved up or down to the middle: what is equally
    tall is equally many times as much.
    """
    unit = curves[0].unit
    groups = [
        [each for each in curves if each.unit == unit and each.line.measured],
        [each for each in curves if each.unit != unit and each.line.measured],
    ]
    ranges = [_range(group) for group in groups if group]
    # A change of less than a third is drawn as small as it is.
    span = max([high - low for low, high in ranges] + [math.log(4 / 3)])
    drawn: list[Drawn] = []
    ticks: list[Tick] = []
    for group in filter(None, groups):
        low, high = _range(group)
        least = (low + high - span) / 2
        if group[0].unit == unit:
            ticks = [Tick(_y(math.log(value), least, span), figure(value, unit)) for value in _ticks(least, span)]
        drawn += [Drawn(curve.kind, curve.name, _points(curve, names, least, span)) for curve in group]
    places = [Mark(_x(index, len(names)), mark) for index, mark in enumerate(marks) if mark]
    return Drawing(drawn, ticks, places)


def _log(value: float) -> float:
    return math.log(max(value, 1e-12))


def _range(curves: Sequence[Curve]) -> tuple[float, float]:
    logs = [_log(value) for curve in curves for value in curve.line.measured]
    return min(logs), max(logs)


def _x(index: int, count: int) -> float:
    return LEFT + (WIDTH - LEFT - RIGHT) * index / max(count - 1, 1)


def _y(log: float, least: float, span: float) -> float:
    return TOP + (HEIGHT - TOP - BOTTOM) * (1 - (log - least) / span)


def _points(curve: Curve, names: Sequence[str], least: float, span: float) -> list[Point]:
    return [
        Point(_x(index, len(names)), _y(_log(value), least, span), f"{names[index]}: {figure(value, curve.unit)}")
        for index, value in enumerate(curve.line.figures)
        if value is not None
    ]


def _ticks(least: float, span: float) -> list[float]:
    """Return round figures in a range of logarithms: powers of ten, and where those are few, some between."""
    decades = range(math.floor(least / math.log(10)), math.ceil((least + span) / math.log(10)) + 1)
    for steps in ((1.0,), (1.0, 2.0, 5.0), (1.0, 1.2, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0)):
        found = [step * 10.0**decade for decade in decades for step in steps]
        inside = [value for value in found if least <= math.log(value) <= least + span]
        if len(inside) >= 2:
            break
    return inside
