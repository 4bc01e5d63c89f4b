"""What is added to the site that asv publishes."""

from pathlib import Path

from history import records
from history.site import corrections, frontpage, libraries, offline


def finish(conf, html: Path) -> None:
    """Make the site that asv has just written to `html` work without a network and from disk, and give it a front.

    asv's own page moves to ``grid.html``; the front page sends addresses that name a graph on to it.
    """
    front, grid = html / "index.html", html / frontpage.GRID
    front.rename(grid)
    problem = libraries.bring(html / "vendor")
    if problem:
        print(f"\nThe grid loads its libraries from their public addresses, as asv publishes it: {problem}.")
    else:
        libraries.rewrite(grid)
    measured = max((each.measured for each in records.load(Path(conf.results_dir))), default=0)
    corrections.correct(html, measured, conf.show_commit_url)
    offline.add_data(html)
    offline.add_reader(grid)
    frontpage.write(Path(conf.results_dir), front)
