"""Take the screenshots of the documents from html/: ``python -m tests.history.screenshots``."""

import tempfile
from pathlib import Path

from history.paths import ROOT
from history.records import suite
from history.site import frontpage, pages
from history.site.families import FAMILIES
from tests.history.browser import Browser

GRAPH = FAMILIES[0].rows[0]
# A desk's and a phone's.
SIZES = {1400: 1000, 390: 844}


def main() -> None:
    html, docs = ROOT / "html", ROOT / "docs"
    names = suite(ROOT / "results")[GRAPH.case.benchmark]["param_names"]
    addresses = {
        "frontpage": (html / pages.FRONT).as_uri(),
        "graph": html.as_uri() + "/" + frontpage.link(GRAPH.case, names, GRAPH.beside),
    }
    ready = {
        "frontpage": "return document.readyState === 'complete'",
        "graph": "const plot = jQuery('#main-graph').data('plot'); return plot && plot.getData().length",
    }
    with tempfile.TemporaryDirectory() as profile, Browser(Path(profile)) as window:
        window.command("Emulation.setScrollbarsHidden", hidden=True)
        for name, address in addresses.items():
            for scheme in ("light", "dark"):
                for width, height in SIZES.items():
                    window.prefer(scheme)
                    window.resize(width, height)
                    window.open(address)
                    window.wait(ready[name])
                    # The desk's picture by day is the one that the documents show.
                    kind = "" if (width, scheme) == (1400, "light") else f"-{width}-{scheme}"
                    window.screenshot(docs / f"{name}{kind}.png")


if __name__ == "__main__":
    main()
