"""What is added to the site that asv publishes."""

from pathlib import Path

from history.site import libraries, offline


def finish(conf, html: Path) -> None:
    """Make the site that asv has just written to `html` work without a network and from disk."""
    page = html / "index.html"
    problem = libraries.bring(html / "vendor")
    if problem:
        print(f"\nThe site loads its libraries from their public addresses, as asv publishes it: {problem}.")
    else:
        libraries.rewrite(page)
    offline.add_data(html)
    offline.add_reader(page)
