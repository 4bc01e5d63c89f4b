"""Write a verdict as Markdown."""

import math
from collections.abc import Sequence
from itertools import groupby
from typing import Any

from asv.benchmarks import Benchmarks

from history import units
from history.commits import Commit
from history.compare.verdict import Change, Verdict, count
from history.templating import render as render_template


def write(
    verdict: Verdict,
    revisions: tuple[str, str],
    commits: tuple[Commit, Commit] | None,
    benchmarks: Benchmarks | dict[str, dict[str, Any]],
    machine: dict[str, str],
    factor: float,
    minutes: float,
) -> str:
    """Return the report of a comparison of two revisions; the commits are None where one could not be found."""
    sections = [
        ("Slower", verdict.regressions),
        ("Exact counts that grew", verdict.growths),
        ("Faster", verdict.improvements),
        ("Exact counts that fell", verdict.reductions),
    ]
    return render_template(
        "report.md",
        verdict=verdict,
        revisions=revisions,
        commits=commits,
        sections=[(title, _grouped(changes, benchmarks)) for title, changes in sections if changes],
        failures=[(name, list(each)) for name, each in groupby(verdict.failures, key=lambda each: each.case.benchmark)],
        machine=machine,
        factor=factor,
        minutes=minutes,
        count=count,
        isnan=math.isnan,
    )


def _grouped(changes: Sequence[Change], benchmarks: Benchmarks | dict[str, dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the changes by benchmark, the one with the largest change first."""
    found: dict[str, dict[str, Any]] = {}
    for each in changes:
        name = each.case.benchmark
        benchmark = benchmarks[name]
        write = units.exact if benchmark["type"] == "track" else units.figure
        group = found.setdefault(name, {"name": name, "columns": benchmark["param_names"], "rows": []})
        base, head = (write(value, benchmark["unit"]) for value in (each.base, each.head))
        group["rows"].append({"parameters": each.case.parameters, "base": base, "head": head, "ratio": each.ratio})
    return list(found.values())
