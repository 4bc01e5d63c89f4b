"""All figures of the longest recorded history: as CSV, and as the data of the page that compares two commits."""

import csv
import io
import json
from pathlib import Path

from history import records
from history.records import Case
from history.site import pages
from history.site.recorded import Recorded

DATA = "figures.js"
_SCRIPT = Path(__file__).with_name("compare.js")


def write(found: Recorded, html: Path) -> None:
    """Write the CSV file, the page that compares, and its data, into the folder `html`."""
    (html / pages.FIGURES).write_text(as_csv(found), encoding="utf-8")
    (html / DATA).write_text(as_script(found), encoding="utf-8")
    (html / _SCRIPT.name).write_text(_SCRIPT.read_text(encoding="utf-8"), encoding="utf-8")
    (html / pages.COMPARE).write_text(pages.render("compare.html", pages.COMPARE), encoding="utf-8")


def as_csv(found: Recorded) -> str:
    """Return a line a case and a column a commit, the oldest first; what was not measured is empty."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["benchmark", "parameters", "unit", *(commit[:8] for commit in found.hashes)])
    for case in _cases(found):
        figures = [record.figures.get(case, "") for record in found.shown]
        writer.writerow([case.benchmark, ", ".join(case.parameters), found.suite[case.benchmark]["unit"], *figures])
    return text.getvalue()


def as_script(found: Recorded) -> str:
    """Return the same for a page, which may not read a file when it is opened from disk."""
    commits = [
        {"hash": commit[:8], "name": found.name(commit) or each.subject}
        for commit, each in zip(found.hashes, found.described, strict=True)
    ]
    cases = [
        {
            "benchmark": case.benchmark,
            "parameters": ", ".join(case.parameters),
            "unit": found.suite[case.benchmark]["unit"],
            "control": records.is_control(case),
            "figures": [_short(record.figures.get(case)) for record in found.shown],
        }
        for case in _cases(found)
    ]
    sources = {
        name: source for name in sorted({case.benchmark for case in _cases(found)}) if (source := found.source(name))
    }
    lines = ",\n".join(json.dumps(case) for case in cases)
    return (
        f"const commits = {json.dumps(commits)};\nconst address = {json.dumps(found.address)};\n"
        f"const sources = {json.dumps(sources)};\nconst cases = [\n{lines}\n];\n"
    )


def _cases(found: Recorded) -> list[Case]:
    return sorted({case for record in found.shown for case in record.figures})


def _short(figure: float | None) -> float | None:
    return None if figure is None else float(f"{figure:.6g}")
