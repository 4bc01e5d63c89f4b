"""The page that a visitor sees first: what asv's grid does not say at a glance."""

import datetime
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from history import commits, records
from history.records import Case, Record
from history.site import trend
from history.site.families import FAMILIES, Family, Row
from history.site.recorded import Recorded
from history.templating import render as render_template
from history.units import figure

GRID = "grid.html"
WIDTH, HEIGHT = 220, 44


def write(found: Recorded, page: Path) -> None:
    """Write the front page of what is recorded to the file `page`."""
    page.write_text(render(found), encoding="utf-8")


def render(found: Recorded) -> str:
    """Return the front page of what is recorded."""
    shown, suite, machines = found.shown, found.suite, found.machines
    ratios = records.canary_ratios(shown)
    disturbed = {each.commit for each in shown if ratios.get(each.commit, 1.0) > records.DISTURBED}
    return render_template(
        "frontpage.html",
        families=[_family(family, shown, suite, disturbed) for family in FAMILIES if _has(family, shown)],
        commits=_commits(found.described, shown, ratios),
        titles=[family.title for family in FAMILIES if _has(family, shown)],
        latest=shown[-1] if shown else None,
        measured=_day(max((each.measured for each in shown), default=0)),
        machine=machines.get(shown[-1].machine, {}) if shown else {},
        others=sorted(set(machines) - {shown[-1].machine if shown else ""}),
        noise=found.noise,
        disturbed_above=records.DISTURBED,
        grid=GRID,
        width=WIDTH,
        height=HEIGHT,
    )


def _has(family: Family, shown: Sequence[Record]) -> bool:
    return any(trend.line(row.case, shown).measured for row in family.rows)


def _family(
    family: Family, shown: Sequence[Record], suite: dict[str, dict[str, Any]], disturbed: set[str]
) -> dict[str, Any]:
    rows = [_row(row, shown, suite, disturbed) for row in family.rows if trend.line(row.case, shown).measured]
    return {"title": family.title, "about": family.about, "rows": rows}


def _row(row: Row, shown: Sequence[Record], suite: dict[str, dict[str, Any]], disturbed: set[str]) -> dict[str, Any]:
    line = trend.line(row.case, shown)
    unit = suite[row.case.benchmark]["unit"]
    beside = trend.line(row.beside, shown).measured if row.beside else []
    return {
        "label": row.label,
        "first": figure(line.measured[0], unit),
        "latest": figure(line.measured[-1], unit),
        "change": trend.in_words(line.ratio, unit),
        "better": line.ratio < 1 / 1.05,
        "worse": line.ratio > 1.05,
        "beside": f"{_times(line.measured[-1] / beside[-1])} {row.beside_name}" if beside else "",
        "points": [
            {"x": x, "y": y, "last": index == len(shown) - 1, "disturbed": shown[index].commit in disturbed}
            for index, x, y in trend.points(line, WIDTH, HEIGHT)
        ],
        "link": link(row.case, suite[row.case.benchmark]["param_names"], row.beside if beside else None),
    }


def _times(ratio: float) -> str:
    return f"{ratio:.0f}x" if ratio >= 10 else f"{ratio:.2g}x"


def link(case: Case, names: Sequence[str], beside: Case | None = None) -> str:
    """Return the address of asv's graph of one case, and of the one beside it, on a logarithmic scale."""
    chosen = ["y-axis-scale=log"]
    for name, *values in zip(names, case.parameters, (beside or case).parameters, strict=True):
        chosen += [f"p-{quote(name)}={quote(value)}" for value in dict.fromkeys(values)]
    return f"{GRID}#{quote(case.benchmark)}?{'&'.join(chosen)}"


def _commits(
    described: Sequence[commits.Commit], shown: Sequence[Record], ratios: dict[str, float]
) -> list[dict[str, Any]]:
    """Return a line for each commit, the newest first: what it did to each family."""
    families = [family for family in FAMILIES if _has(family, shown)]
    changes = [(family, trend.steps(family, shown)) for family in families]
    found = []
    for index, (commit, record) in enumerate(zip(described, shown, strict=True)):
        canary = ratios.get(record.commit, 1.0)
        found.append(
            {
                "hash": record.commit[:8],
                "subject": commit.subject or "not in this repository",
                "date": _day(commit.date) if commit.date else "",
                "disturbed": f"{canary:.2f}" if canary > records.DISTURBED else "",
                "changes": [_change(steps[index], any(map(family.holds, record.figures))) for family, steps in changes],
            }
        )
    return found[::-1]


def _change(step: trend.Step | None, measured: bool) -> dict[str, Any] | None:
    if step is None:
        return {"words": "first measured", "cases": 0, "large": False, "better": False} if measured else None
    words = trend.in_words(step.ratio, "seconds").replace("faster", "better").replace("slower", "worse")
    return {"words": words, "cases": step.cases, "large": trend.is_large(step), "better": step.ratio < 1}


def _day(seconds: int) -> str:
    return datetime.datetime.fromtimestamp(seconds, datetime.UTC).date().isoformat()
