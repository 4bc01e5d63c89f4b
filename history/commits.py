"""Ask git about commits."""

import subprocess
from collections.abc import Sequence
from typing import NamedTuple

from history import UsageError
from history.paths import ROOT


class Commit(NamedTuple):
    """A commit, as a page or a report shows it."""

    hash: str
    date: int  # when it was committed, seconds since the epoch
    subject: str


class Change(NamedTuple):
    """A commit and the files that it changes, each with its blob before and after: zeros where there is none."""

    commit: str
    subject: str
    files: list[tuple[str, str, str]]


def git(*arguments: str, check: bool = True) -> str:
    """Return what ``git *arguments`` prints in the repository, or raise UsageError with git's own words."""
    try:
        done = subprocess.run(
            ["git", *arguments], cwd=ROOT, capture_output=True, text=True, encoding="utf-8", errors="replace"
        )
    except FileNotFoundError as error:
        raise UsageError("git is not installed") from error
    if "dubious ownership" in done.stderr:
        raise UsageError(
            f"this checkout belongs to another user, and git does not read it: make it yours, or trust it with "
            f"'git config --global --add safe.directory {ROOT}'"
        )
    if done.returncode and check:
        words = done.stderr.strip().splitlines() or ["no message"]
        raise UsageError(f"git {arguments[0]} failed: {words[0]}")
    return done.stdout.strip()


def resolve(revision: str) -> str:
    """Return the full hash of the commit that `revision` names."""
    found = git("rev-parse", "--verify", "--quiet", "--end-of-options", revision + "^{commit}", check=False)
    if not found:
        shallow = " (this is a shallow clone: it may lie before what it has)" if is_shallow() else ""
        raise UsageError(f"no commit is named {revision!r}{shallow}; write a branch, a tag or a hash")
    return found


def merge_base(one: str, other: str) -> str:
    """Return the last commit that two have in common."""
    found = git("merge-base", one, other, check=False)
    if not found:
        why = (
            "this is a shallow clone: 'git fetch --unshallow' brings the rest"
            if is_shallow()
            else "no history is shared"
        )
        raise UsageError(f"{one[:8]} and {other[:8]} have no commit in common; {why}")
    return found.splitlines()[0]


def differs(path: str, one: str, other: str | None = None) -> bool:
    """Tell whether what is under `path` differs between two commits, or between one and the working tree."""
    return bool(git("diff", "--name-only", one, *([other] if other else []), "--", path))


def uncommitted(path: str) -> list[str]:
    """Return the files under `path` that are not as in the commit that is checked out, new ones included."""
    changed = git("diff", "--name-only", "HEAD", "--", path).splitlines()
    return changed + git("ls-files", "--others", "--exclude-standard", "--", path).splitlines()


def in_range(spec: str) -> list[str]:
    """Return the commits of a range as git rev-list has them, the first parent's line only, oldest first."""
    found = git("rev-list", "--first-parent", "--reverse", *spec.split(), "--").split()
    if not found:
        raise UsageError(f"the range {spec!r} holds no commit")
    return found


def last_changes(path: str, count: int) -> list[str]:
    """Return the last `count` commits of the first parent's line that change `path`, oldest first."""
    return git("log", "--first-parent", f"-{count}", "--format=%H", "--reverse", "--", path).split()


def changes(branch: str, paths: Sequence[str]) -> list[Change]:
    """Return the commits of the first parent's line of `branch` that change one of `paths`, oldest first."""
    options = ("--first-parent", "-m", "--reverse", "--raw", "--no-abbrev", "--no-renames", "--root")
    form = ("--no-show-signature", "--no-color", "--format=@%H%x09%s")
    found: list[Change] = []
    for line in git("log", *options, *form, resolve(branch), "--", *paths).splitlines():
        if line.startswith("@"):
            commit, subject = line[1:].split("\t", 1)
            found.append(Change(commit, subject, []))
        elif line.startswith(":"):
            what, path = line.split("\t", 1)
            found[-1].files.append((path, *what.split()[2:4]))
    return found


def content(blob: str) -> str:
    """Return the text of a file as git keeps it, without the space around it."""
    return git("cat-file", "blob", blob)


def all_in_order() -> list[str]:
    """Return every commit of every branch, a commit before those that build on it, as asv numbers them."""
    return git("rev-list", "--all", "--date-order", "--reverse").split()


def size(commit: str, path: str) -> tuple[int, int]:
    """Return how many files a commit has under `path`, and their bytes; none where the commit is not here."""
    listed = git("ls-tree", "-r", "--format=%(objectsize)", commit, "--", path, check=False).split()
    return len(listed), sum(map(int, listed))


def is_shallow() -> bool:
    """Tell whether this clone has only the last commits of its history."""
    return git("rev-parse", "--is-shallow-repository", check=False) == "true"


def describe(hashes: list[str]) -> list[Commit]:
    """Return date and subject of each commit; one that this repository lacks has an empty subject."""
    found = {}
    for name in hashes:
        line = git("log", "-1", "--no-show-signature", "--format=%H%x09%ct%x09%s%x09end", name, "--", check=False)
        if line:
            full, date, subject = line.split("\t", 2)
            found[name] = Commit(full, int(date), subject.removesuffix("\tend") or "(no message)")
    return [found.get(name, Commit(name, 0, "")) for name in hashes]
