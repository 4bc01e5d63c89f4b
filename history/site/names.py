"""What the site calls commits: a milestone by its reason."""

from pathlib import Path

from history import milestones

# Fits along a line of a graph.
_SHORT = 42


def read(path: Path, commits: list[str]) -> dict[str, str]:
    """Return the reasons of those of the commits that the file of milestones names."""
    if not path.is_file():
        return {}
    listed = milestones.read(path)
    return {commit: each.reason for commit in commits for each in listed if commit.startswith(each.commit)}


def short(reason: str) -> str:
    """Return what fits beside a point of a graph: what comes before a colon, or some first words.

    >>> short("the indexed allocators: page states in flat arrays")
    'the indexed allocators'
    >>> short("a smallest run found by lengths and single pages that go back")
    'a smallest run found by lengths and …'
    """
    name = reason.split(": ")[0]
    if len(name) <= _SHORT:
        return name
    return name[: _SHORT - 1].rsplit(" ", 1)[0] + " …"
