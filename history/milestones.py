"""Read the list of commits that the history has to have, and of those that it cannot."""

from pathlib import Path
from typing import NamedTuple

from history import UsageError


class Milestone(NamedTuple):
    """A commit to measure and why it matters, or one to leave out and why."""

    commit: str
    reason: str


def read(path: Path) -> list[Milestone]:
    """Return the milestones of a file that has ``HASH reason`` on each line; ``#`` begins a comment line."""
    found = [each for is_left_out, each in _lines(path) if not is_left_out]
    if not found:
        raise UsageError(f"{path.name} lists no commit")
    return found


def left_out(path: Path) -> list[Milestone]:
    """Return the commits that the file says cannot be measured: ``-HASH reason``."""
    return [each for is_left_out, each in _lines(path) if is_left_out]


def _lines(path: Path) -> list[tuple[bool, Milestone]]:
    if not path.is_file():
        raise UsageError(f"{path.name} is missing; write a line a commit: its hash, a space, the reason")
    found: list[tuple[bool, Milestone]] = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        if not line.strip() or line.startswith("#"):
            continue
        name, _, reason = line.strip().partition(" ")
        commit = name.removeprefix("-")
        if not commit or not reason:
            raise UsageError(f"{path.name}, line {number}: write the commit's hash, a space, and the reason")
        if any(each.commit == commit for _, each in found):
            raise UsageError(f"{path.name}, line {number}: {commit} is listed twice")
        found.append((name != commit, Milestone(commit, reason.strip())))
    return found
