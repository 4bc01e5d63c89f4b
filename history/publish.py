"""Publish what was measured: a whole site, or the one that was there before."""

import json
import shutil
from collections.abc import Sequence
from pathlib import Path

from asv.config import Config

from history import UsageError, asv_calls, commits, records
from history.commits import git
from history.paths import ROOT, SCRATCH


def recorded() -> None:
    """Publish the recorded history to html/, which stays as it was unless all of it can be.

    Raises UsageError and names it where a file is broken or missing, or a commit is not on the published branch.
    """
    conf = asv_calls.configuration()
    results = ROOT / conf.results_dir
    if not (results / records.SUITE).is_file():
        raise UsageError("nothing is recorded in results/ yet; 'make history' measures the milestones")
    if gone := git("ls-files", "--deleted", "--", str(results)).splitlines():
        raise UsageError(f"{_some(gone)} is missing, which git has: 'git restore {conf.results_dir}' brings it back")
    results = _kept(results)
    conf.results_dir = str(results)
    measured = _check(results)
    for branch in conf.branches:
        _require(measured, git("rev-list", "--first-parent", branch, "--").split(), f"the branch {branch}")
    _publish(conf, measured)


def beside_history(measured: Path) -> None:
    """Publish the results in `measured` beside the recorded history to .asv/html.

    Where both hold a figure for the same commit, machine and environment, `measured` wins. What it has of commits that
    are no longer in this repository is left out.
    """
    conf = asv_calls.configuration()
    recorded = ROOT / conf.results_dir
    here = set(commits.all_in_order())
    if recorded.is_dir():
        _require(_check(recorded), here, "this repository")
    together = SCRATCH / "together"
    shutil.rmtree(together, ignore_errors=True)
    if recorded.is_dir():
        shutil.copytree(recorded, together)
    if gone := sorted(set(_check(measured)) - here):
        print(f"Not shown: {', '.join(each[:8] for each in gone)}, which no branch has any more.")
    shutil.copytree(measured, together, dirs_exist_ok=True)
    for path in records.files(together):
        if json.loads(path.read_text(encoding="utf-8"))["commit_hash"] in gone:
            path.unlink()
    conf = asv_calls.configuration(results=together, html=SCRATCH / "html")
    # A newcomer's clone may be on a branch, or on no branch at all; what it measured is shown all the same.
    conf.branches = [git("symbolic-ref", "--quiet", "--short", "HEAD", check=False) or "HEAD"]
    _publish(conf, _check(together))


def _kept(results: Path) -> Path:
    """Return the results without what git ignores of them: what asv as it is has filed under a host's name."""
    listed = ("ls-files", "--others", "--ignored", "--exclude-standard", "--directory", "--", str(results))
    ignored = [ROOT / each for each in git(*listed).splitlines()]
    if not ignored:
        return results
    print(f"Not published, as git ignores it: {_some([str(each.relative_to(ROOT)) for each in ignored])}.")
    kept = SCRATCH / "kept"
    shutil.rmtree(kept, ignore_errors=True)
    shutil.copytree(
        results, kept, ignore=lambda folder, names: [name for name in names if Path(folder, name) in ignored]
    )
    return kept


def _check(results: Path) -> list[str]:
    """Return the commits that a folder has results of; raise UsageError if any of its files cannot be used."""
    if broken := records.damage(results):
        names = [str(path.relative_to(ROOT) if path.is_relative_to(ROOT) else path) for path in broken]
        reason = next(iter(broken.values()))
        raise UsageError(f"{_some(names)} cannot be used ({reason}): restore or remove it")
    return [record.commit for record in records.load(results)]


def _require(wanted: Sequence[str], there: Sequence[str] | set[str], where: str) -> None:
    missing = [each[:8] for each in dict.fromkeys(wanted) if each not in set(there)]
    if missing:
        shallow = "; this is a shallow clone: 'git fetch --unshallow' brings them" if commits.is_shallow() else ""
        raise UsageError(
            f"{len(missing)} of {len(set(wanted))} recorded commits are not in {where}: {_some(missing)}{shallow}"
        )


def _publish(conf: Config, measured: Sequence[str]) -> None:
    """Let asv publish beside the site that is there, and put the new one in its place when it is whole."""
    html = Path(conf.html_dir).resolve()
    new = SCRATCH / "site" / "new"
    shutil.rmtree(new.parent, ignore_errors=True)
    new.parent.mkdir(parents=True)
    conf.html_dir = str(new)
    try:
        asv_calls.publish(conf)
    finally:
        conf.html_dir = str(html)
    shown = json.loads((new / "index.json").read_text(encoding="utf-8"))
    lacking = set(measured) - set(shown["revision_to_hash"].values())
    if lacking or not shown["graph_param_list"]:
        raise UsageError(f"the new site lacks {_some([each[:8] for each in lacking] or ['every graph'])}")
    _put_in_place(new, html)
    print(f"\nThe site is in {html / 'index.html'}; a browser can open it from disk.")


def _put_in_place(new: Path, html: Path) -> None:
    before = new.with_name("before")
    html.parent.mkdir(parents=True, exist_ok=True)
    if html.exists():
        shutil.move(html, before)
    try:
        shutil.move(new, html)
    except BaseException:
        shutil.rmtree(html, ignore_errors=True)
        if before.exists():
            shutil.move(before, html)
        raise
    shutil.rmtree(new.parent)


def _some(names: Sequence[str], most: int = 3) -> str:
    rest = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + rest
