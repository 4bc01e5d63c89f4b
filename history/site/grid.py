"""asv's own page: a way back to the front page, and what it lacks by night, on a phone and by keyboard."""

import json
import shutil
from pathlib import Path

from history.records import CANARY, REFERENCES
from history.site.recorded import Recorded

_HERE = Path(__file__).parent
_FILES = ("grid.css", "grid.js")
DATA = "grid-data.js"

# What is replaced in asv's page, and by what.
_CHANGES = (
    ("<html>", '<html lang="en">'),
    ("<head>\n", '<head>\n    <meta name="viewport" content="width=device-width, initial-scale=1">\n'),
    (
        '<link rel="shortcut icon"',
        f'<link href="grid.css" rel="stylesheet">\n    <script src="{DATA}"></script>\n'
        '    <script src="grid.js"></script>\n    <link rel="shortcut icon"',
    ),
    ("<body>\n", '<body>\n    <button id="skip" class="skip">Skip to the content</button>\n'),
    (
        '<li id="nav-li-" class="active">',
        '<li><a href="index.html">Front page</a></li>\n\t<li id="nav-li-" class="active">',
    ),
    (
        'class="form-control" size="24" readonly/>',
        'class="form-control" size="24" readonly/>\n'
        '            <button id="unzoom" class="btn btn-default btn-xs">show all</button>',
    ),
)


def improve(page: Path, found: Recorded) -> None:
    """Add to asv's page what `grid.css` and `grid.js` do, and what the latter has to know."""
    text = page.read_text(encoding="utf-8")
    for before, after in _CHANGES:
        if text.count(before) != 1:
            raise LookupError(
                f"asv's page has {text.count(before)} times {before!r}, which history/site/grid.py replaces"
            )
        text = text.replace(before, after)
    page.write_text(text, encoding="utf-8")
    for name in _FILES:
        shutil.copyfile(_HERE / name, page.parent / name)
    data = {
        "benchmarks": sorted(found.suite),
        "milestones": found.milestones,
        "drifts": {name[:8]: round(share, 4) for name, share in found.drifts.items()},
        "controls": [CANARY, *sorted(REFERENCES)],
        "source": found.source_address,
    }
    (page.parent / DATA).write_text(f"const kvpool = {json.dumps(data)};\n", encoding="utf-8")
