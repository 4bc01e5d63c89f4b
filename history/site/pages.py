"""The pages that are not asv's: their names, and what all of them are given."""

from typing import Any

from history.templating import render as render_template

FRONT, GRAPHS, COMPARE, GRID = "index.html", "graphs.html", "compare.html", "grid.html"
FIGURES, STEPS = "figures.csv", "steps.xml"

PAGES = (
    (FRONT, "Front page"),
    (GRAPHS, "Time, floor and instructions"),
    (COMPARE, "Compare two commits"),
    (f"{GRID}#/", "Benchmark grid"),
    (f"{GRID}#/summarylist", "Benchmark list"),
    (f"{GRID}#/regressions", "Regressions"),
    (FIGURES, "Figures (CSV)"),
    (STEPS, "Large steps (Atom)"),
)


def render(template: str, here: str, **values: Any) -> str:
    """Return the text of a page; `here` is its own name."""
    return render_template(template, here=here, pages=PAGES, grid=GRID, graphs=GRAPHS, compare=COMPARE, **values)
