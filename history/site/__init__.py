"""What is added to the site that asv publishes."""

import shutil
from pathlib import Path

from history.site import corrections, feed, figures, frontpage, graphs, grid, libraries, offline, pages
from history.site.recorded import Recorded

_STYLE = Path(__file__).with_name("site.css")


def finish(conf, html: Path) -> None:
    """Make the site that asv has just written to `html` work without a network and from disk, and give it a front.

    asv's own page moves to ``grid.html``; the front page sends addresses that name a graph on to it.
    """
    front, asv_page = html / "index.html", html / pages.GRID
    front.rename(asv_page)
    problem = libraries.bring(html / "vendor")
    if problem:
        print(f"\nThe grid loads its libraries from their public addresses, as asv publishes it: {problem}.")
    else:
        libraries.rewrite(asv_page)
    address = "" if conf.show_commit_url == corrections.NO_ADDRESS else conf.show_commit_url
    found = Recorded.read(Path(conf.results_dir), address, getattr(conf, "show_source_url", ""))
    corrections.correct(html, found.measured, address)
    offline.add_data(html)
    offline.add_reader(asv_page)
    grid.improve(asv_page, found)
    shutil.copyfile(_STYLE, html / _STYLE.name)
    frontpage.write(found, front)
    graphs.write(found, html / pages.GRAPHS)
    figures.write(found, html)
    (html / pages.STEPS).write_text(feed.render(found), encoding="utf-8")
