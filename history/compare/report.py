"""Write a verdict as Markdown."""

import math
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any, NamedTuple

from history import units
from history.commits import Commit
from history.compare.exact import Exact
from history.compare.verdict import LABELS, NOT_MEASURED, Change, Failure, Verdict, count
from history.records import Case
from history.templating import render as render_template


class Context(NamedTuple):
    """What a report says beside its verdict."""

    revisions: tuple[str, str]
    commits: tuple[Commit, Commit] | None  # None where one could not be found
    notes: Sequence[str]
    benchmarks: Mapping[str, Mapping[str, Any]]
    counts: Exact | None  # None where no instructions were counted beforehand
    machine: Mapping[str, str]
    factor: float
    minutes: float


def write(verdict: Verdict, context: Context) -> str:
    """Return the report of a comparison. Whatever is not written here is shown as code, as it is."""
    sections = [
        ("Exact counts that grew", verdict.growths),
        ("Exact counts that grew by too little to matter", verdict.small_growths),
        ("Exact counts that fell", verdict.reductions),
    ]
    # Where the question is open, what looks slower is no finding.
    if verdict.status is not NOT_MEASURED:
        sections = [("Slower", verdict.regressions), *sections[:2], ("Faster", verdict.improvements), *sections[2:]]
    return render_template(
        "report.md",
        verdict=verdict,
        sections=[(title, _grouped(changes, context.benchmarks)) for title, changes in sections if changes],
        failures=[
            _reasons(name, list(each)) for name, each in groupby(verdict.failures, lambda each: each.case.benchmark)
        ],
        lists=[
            ("Measured on BASE, not applicable to HEAD", verdict.lost),
            ("In BASE's suite, not in HEAD's", verdict.dropped),
            ("Dropped on purpose", verdict.acknowledged),
        ],
        counted=_counted(context.counts) if context.counts else None,
        count=count,
        isnan=math.isnan,
        **context._asdict(),
    )


def write_exact(
    found: Exact,
    revisions: tuple[str, str],
    commits: tuple[Commit, Commit] | None,
    notes: Sequence[str],
    minutes: float,
) -> str:
    """Return the report of a comparison by instructions."""
    return render_template(
        "exact.md",
        counted=_counted(found),
        revisions=revisions,
        commits=commits,
        notes=notes,
        minutes=minutes,
    )


def _counted(found: Exact) -> dict[str, Any]:
    """Return what a report shows of counts."""
    return {
        "exact": found,
        "sections": [
            ("More instructions", found.grown),
            ("A little more instructions", found.little),
            ("Fewer instructions", found.fallen),
        ],
        "lists": [("Counted on BASE, gone from HEAD", found.lost), ("Gone on purpose", found.acknowledged)],
    }


def _reasons(name: str, failures: Sequence[Failure]) -> tuple[str, set[Case], list[tuple[str, str, list[Case]]]]:
    """Return a benchmark, its cases that failed, and each reason with the sides and cases that it is of."""
    found: dict[str, list[Failure]] = {}
    for each in failures:
        found.setdefault(each.reason, []).append(each)
    reasons = []
    for reason, failing in found.items():
        labels = [label for label in LABELS if any(each.label == label for each in failing)]
        reasons.append((reason, " and ".join(labels), list(dict.fromkeys(each.case for each in failing))))
    return name, {each.case for each in failures}, reasons


def _grouped(changes: Sequence[Change], benchmarks: Mapping[str, Mapping[str, Any]]) -> list[dict[str, Any]]:
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
