"""Read the list of commits that the history is made of."""

from pathlib import Path
from typing import NamedTuple

from history import UsageError

LIMIT = 25


class Milestone(NamedTuple):
    """A commit to measure and why it matters."""

    commit: str
    reason: str


def read(path: Path) -> list[Milestone]:
    """Return the milestones of a file that has ``HASH reason`` on each line; ``#`` begins a comment line."""
    if not path.is_file():
        raise UsageError(f"{path.name} is missing; write a line a commit: its hash, a space, the reason")
    found = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        if not line.strip() or line.startswith("#"):
            continue
        commit, _, reason = line.strip().partition(" ")
        if not reason:
            raise UsageError(f"{path.name}, line {number}: write the commit's hash, a space, and the reason")
        if any(each.commit == commit for each in found):
            raise UsageError(f"{path.name}, line {number}: {commit} is listed twice")
        found.append(Milestone(commit, reason.strip()))
    if not found:
        raise UsageError(f"{path.name} lists no commit")
    if len(found) > LIMIT:
        raise UsageError(f"{path.name} lists {len(found)} commits; keep to the {LIMIT} that matter")
    return found
