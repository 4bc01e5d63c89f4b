"""The page that a visitor sees first: what asv's grid does not say at a glance."""

import datetime
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from history import commits, records
from history.records import Case, Record
from history.site import graphs, pages, trend
from history.site.families import FAMILIES, FLOOR, Family, Row
from history.site.recorded import Recorded
from history.units import figure

# Of what changes have added, so much is shown.
MOST_COSTS = 5
WIDTH, HEIGHT = 220, 44


def write(found: Recorded, page: Path) -> None:
    """Write the front page of what is recorded to the file `page`."""
    page.write_text(render(found), encoding="utf-8")


def render(found: Recorded) -> str:
    """Return the front page of what is recorded."""
    shown, machines = found.shown, found.machines
    ratios = records.canary_ratios(shown)
    disturbed = {each.commit for each in shown if ratios.get(each.commit, 1.0) > records.DISTURBED}
    families = [family for family in FAMILIES if _has(family, shown)]
    return pages.render(
        "frontpage.html",
        pages.FRONT,
        families=[_family(family, found, disturbed) for family in families],
        costs=[_cost(cost, found) for cost in trend.costs(shown, found.is_noise)[:MOST_COSTS]],
        commits=_commits(families, found, ratios),
        titles=[family.title for family in families],
        latest=shown[-1] if shown else None,
        measured=_day(max((each.measured for each in shown), default=0)),
        machine=machines.get(shown[-1].machine, {}) if shown else {},
        others=sorted(set(machines) - {shown[-1].machine if shown else ""}),
        noise=found.noise,
        size=_size(found),
        disturbed_above=records.DISTURBED,
        address=found.address,
        width=WIDTH,
        height=HEIGHT,
    )


def _has(family: Family, shown: Sequence[Record]) -> bool:
    return any(trend.line(row.case, shown).measured for row in family.rows)


def _family(family: Family, found: Recorded, disturbed: set[str]) -> dict[str, Any]:
    rows = [_row(row, found, disturbed) for row in family.rows if trend.line(row.case, found.shown).measured]
    return {"title": family.title, "about": family.about, "anchor": graphs.anchor(family), "rows": rows}


def _row(row: Row, found: Recorded, disturbed: set[str]) -> dict[str, Any]:
    benchmark = row.case.benchmark
    line = trend.line(row.case, found.shown)
    unit = found.suite[benchmark]["unit"]
    beside = trend.line(row.beside, found.shown).measured if row.beside else []
    measured = [index for index, value in enumerate(line.figures) if value is not None]
    noise = found.is_noise(line.ratio, benchmark, measured[0], measured[-1])
    return {
        "label": row.label,
        "first": figure(line.measured[0], unit),
        "latest": figure(line.measured[-1], unit),
        "change": trend.in_words(line.ratio, unit),
        "noise": noise,
        "better": line.ratio < 1 / 1.05 and not noise,
        "worse": line.ratio > 1.05 and not noise,
        "beside": _beside(line.measured[-1] / beside[-1], row.beside_name) if beside else "",
        "step": _step(line, benchmark, found),
        "points": [
            {
                "x": x,
                "y": y,
                "last": index == len(line.figures) - 1,
                "disturbed": found.shown[index].commit in disturbed,
                "name": found.title(index),
                "figure": figure(line.figures[index] or 0.0, unit),
            }
            for index, x, y in trend.points(line, WIDTH, HEIGHT)
        ],
        "link": link(row.case, found.suite[benchmark]["param_names"], row.beside if beside else None),
    }


def _step(line: trend.Line, benchmark: str, found: Recorded) -> str:
    """Name the commit that changed a figure most, if that was no noise."""
    step = trend.largest_step(line)
    if step is None:
        return ""
    before, after, ratio = step
    if not trend.is_large(ratio) or found.is_noise(ratio, benchmark, before, after):
        return ""
    return f"{trend.in_words(ratio, found.suite[benchmark]['unit'])} at {found.title(after)}"


def _beside(ratio: float, name: str) -> str:
    """Say how a figure compares; what may be noise is no distance from a floor.

    >>> _beside(0.98, "the floor"), _beside(0.5, "list"), _beside(12.3, "the floor"), _beside(0.0044, "list")
    ('at the floor', '0.5x list', '12x the floor', '1/227 of list')
    """
    if name == FLOOR and abs(math.log(ratio)) <= math.log1p(trend.LEAST):
        return f"at {name}"
    if ratio < 0.1:
        return f"1/{1 / ratio:,.0f} of {name}"
    return f"{ratio:,.0f}x {name}" if ratio >= 10 else f"{ratio:.2g}x {name}"


def _cost(cost: trend.Cost, found: Recorded) -> dict[str, Any]:
    benchmark = found.suite[cost.case.benchmark]
    return {
        "commit": found.hashes[cost.index][:8],
        "name": found.name(found.hashes[cost.index]) or found.described[cost.index].subject,
        "case": str(cost.case),
        "link": link(cost.case, benchmark["param_names"]),
        "words": trend.in_words(cost.after / cost.before, benchmark["unit"]),
        "before": figure(cost.before, benchmark["unit"]),
        "after": figure(cost.after, benchmark["unit"]),
    }


def _size(found: Recorded) -> str:
    """Say how large the package is at the latest commit, and was at the first."""
    sizes = [commits.size(found.hashes[index], "kvpool/") for index in (0, -1)] if found.shown else []
    if not sizes or not all(files for files, _ in sizes):
        return ""
    first, latest = (f"{count} source files of {figure(size, 'bytes')}" for count, size in sizes)
    return f"{latest}; at the first commit {first}"


def link(case: Case, names: Sequence[str], beside: Case | None = None) -> str:
    """Return the address of asv's graph of one case, and of the one beside it, on a logarithmic scale."""
    chosen = ["y-axis-scale=log"]
    for name, *values in zip(names, case.parameters, (beside or case).parameters, strict=True):
        chosen += [f"p-{quote(name)}={quote(value)}" for value in dict.fromkeys(values)]
    return f"{pages.GRID}#{quote(case.benchmark)}?{'&'.join(chosen)}"


def _commits(families: Sequence[Family], found: Recorded, ratios: dict[str, float]) -> list[dict[str, Any]]:
    """Return a line for each commit, the newest first: what it did to each family."""
    changes = [(family, trend.steps(family, found.shown)) for family in families]
    lines = []
    for index, (commit, record) in enumerate(zip(found.described, found.shown, strict=True)):
        canary = ratios.get(record.commit, 1.0)
        lines.append(
            {
                "hash": record.commit[:8],
                "before": found.hashes[index - 1][:8] if index else "",
                "subject": commit.subject or "not in this repository",
                "reason": found.reasons.get(record.commit, ""),
                "date": _day(commit.date) if commit.date else "",
                "disturbed": f"{canary:.2f}" if canary > records.DISTURBED else "",
                "changes": [
                    _change(family, steps[index], any(map(family.holds, record.figures)), found)
                    for family, steps in changes
                ],
            }
        )
    return lines[::-1]


def _change(family: Family, step: trend.Step | None, measured: bool, found: Recorded) -> dict[str, Any] | None:
    if step is None:
        return {"words": "first measured", "cases": 0, "large": False, "better": False} if measured else None
    large = trend.is_large(step.ratio) and not found.is_noise_of(family, step)
    words = trend.better_or_worse(step.ratio)
    return {"words": words, "cases": step.cases, "large": large, "better": step.ratio < 1}


def _day(seconds: int) -> str:
    return datetime.datetime.fromtimestamp(seconds, datetime.UTC).date().isoformat()
