"""The page of graphs: for each row of the front page its time, the floor and the instructions, and its source."""

from pathlib import Path
from typing import Any

from history import records
from history.site import counted, graph, pages, trend
from history.site.families import FAMILIES, Family, Row
from history.site.graph import Curve
from history.site.recorded import Recorded
from history.units import figure


def write(found: Recorded, page: Path) -> None:
    """Write the page of graphs to the file `page`."""
    page.write_text(render(found), encoding="utf-8")


def render(found: Recorded) -> str:
    """Return the page of graphs."""
    families = [_family(family, found) for family in FAMILIES]
    return pages.render(
        "graphs.html",
        pages.GRAPHS,
        families=[family for family in families if family["rows"]],
        commits=[commit[:8] for commit in found.hashes],
        names=[found.title(index).partition(" ")[2] for index in range(len(found.shown))],
        width=graph.WIDTH,
        height=graph.HEIGHT,
        left=graph.LEFT,
        address=found.address,
    )


def anchor(family: Family) -> str:
    """Return the name of a family in addresses."""
    return family.title.lower().replace(" ", "-")


def _family(family: Family, found: Recorded) -> dict[str, Any]:
    rows = [_row(row, found) for row in family.rows if trend.line(row.case, found.shown).measured]
    return {"title": family.title, "about": family.about, "anchor": anchor(family), "rows": rows}


def _row(row: Row, found: Recorded) -> dict[str, Any]:
    curves = [_curve("time", "kvpool", row.case, found)]
    if row.beside:
        curves.append(_curve("floor", row.beside_name, row.beside, found))
    if call := counted.CALLS.get(str(row.case)):
        curves.append(Curve("instructions", f"instructions of {call}", counted.line(call, found.shown), "instructions"))
    curves = [curve for curve in curves if curve.line.measured]
    names = [found.title(index) for index in range(len(found.shown))]
    drawing = graph.draw(curves, names, [found.name(commit) for commit in found.hashes])
    return {
        "label": row.label,
        "case": str(row.case),
        "drawing": drawing,
        "columns": [curve.name for curve in curves],
        "figures": [[_figure(curve, index) for curve in curves] for index in range(len(found.shown))],
        "code": found.suite[row.case.benchmark]["code"],
        "source": found.source(row.case.benchmark),
    }


def _curve(kind: str, name: str, case: records.Case, found: Recorded) -> Curve:
    return Curve(kind, name, trend.line(case, found.shown), found.suite[case.benchmark]["unit"])


def _figure(curve: Curve, index: int) -> str:
    value = curve.line.figures[index]
    return "n/a" if value is None else figure(value, curve.unit)
