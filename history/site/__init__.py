"""What is added to the site that asv publishes."""

from pathlib import Path

from history.site import corrections, frontpage, grid, libraries, offline
from history.site.recorded import Recorded


def finish(conf, html: Path) -> None:
    """Make the site that asv has just written to `html` work without a network and from disk, and give it a front.

    asv's own page moves to ``grid.html``; the front page sends addresses that name a graph on to it.
    """
    front, asv_page = html / "index.html", html / frontpage.GRID
    front.rename(asv_page)
    problem = libraries.bring(html / "vendor")
    if problem:
        print(f"\nThe grid loads its libraries from their public addresses, as asv publishes it: {problem}.")
    else:
        libraries.rewrite(asv_page)
    found = Recorded.read(Path(conf.results_dir))
    corrections.correct(html, found.measured, conf.show_commit_url)
    offline.add_data(html)
    offline.add_reader(asv_page)
    grid.improve(asv_page, found.milestones, found.drifts)
    frontpage.write(found, front)
