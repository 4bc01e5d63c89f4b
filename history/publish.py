"""Publish what was measured."""

import shutil
from pathlib import Path

from history import UsageError, asv_calls
from history.commits import git
from history.paths import ROOT, SCRATCH


def recorded() -> None:
    """Publish the recorded history to html/."""
    conf = asv_calls.configuration()
    if not (ROOT / conf.results_dir / "benchmarks.json").is_file():
        raise UsageError("nothing is recorded in results/ yet; 'make history' measures the milestones")
    asv_calls.publish(conf)
    _say_where(Path(conf.html_dir))


def beside_history(measured: Path) -> None:
    """Publish the results in `measured` beside the recorded history to .asv/html.

    Where both hold a figure for the same commit, machine and environment, `measured` wins.
    """
    conf = asv_calls.configuration()
    recorded = ROOT / conf.results_dir
    together = SCRATCH / "together"
    shutil.rmtree(together, ignore_errors=True)
    if recorded.is_dir():
        shutil.copytree(recorded, together)
    shutil.copytree(measured, together, dirs_exist_ok=True)
    conf = asv_calls.configuration(results=together, html=SCRATCH / "html")
    # A newcomer's clone may be on a branch, or on no branch at all; what it measured is shown all the same.
    conf.branches = [git("symbolic-ref", "--quiet", "--short", "HEAD", check=False) or "HEAD"]
    asv_calls.publish(conf)
    _say_where(SCRATCH / "html")


def _say_where(html: Path) -> None:
    print(f"\nThe site is in {html.resolve() / 'index.html'}; a browser can open it from disk.")
