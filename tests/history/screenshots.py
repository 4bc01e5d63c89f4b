"""Take the screenshots of the documents from html/: ``python -m tests.history.screenshots``."""

import tempfile
from pathlib import Path

from history.paths import ROOT
from history.site import frontpage
from history.site.families import FAMILIES
from tests.history.browser import Browser

GRAPH = FAMILIES[0].rows[0]


def main() -> None:
    html, docs = ROOT / "html", ROOT / "docs"
    with tempfile.TemporaryDirectory() as profile, Browser(Path(profile)) as window:
        window.resize(1200, 1400)
        window.open((html / "index.html").as_uri())
        window.screenshot(docs / "frontpage.png")
        window.resize(1200, 700)
        address = frontpage.link(GRAPH.case, ["pages", "method"]).replace(frontpage.GRID, "")
        every = address.split("&")[0]  # all methods
        window.open(f"{(html / frontpage.GRID).as_uri()}{every}&y-axis-scale=log")
        window.wait("const plot = jQuery('#main-graph').data('plot'); return plot && plot.getData().length")
        window.screenshot(docs / "graph.png")


if __name__ == "__main__":
    main()
