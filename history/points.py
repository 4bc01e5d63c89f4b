"""Choose which commits the history is recorded of, by git alone, and say why each other one is left out.

Looked at are the commits of a branch's first parents that change kvpool/ or how it is built, from the first milestone
on. Points of the history are the large changes, of LINES lines of code or more, so that what a graph does at a point is
mostly that commit's own; the milestones, whatever their size; and the last change. What smaller ones do is seen at the
next point. Later commits change nothing of this but what the last point is.
"""

import io
import re
import tokenize
from collections import Counter
from collections.abc import Sequence
from functools import cache
from typing import NamedTuple

from history import UsageError, commits
from history.milestones import Milestone

PATHS = ("kvpool", "setup.py")
LINES = 90
MOST = 30

_NO_CODE = {tokenize.COMMENT, tokenize.NL, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}
_C_COMMENT = re.compile(r"/\*.*?\*/|//[^\n]*", re.DOTALL)


class Change(NamedTuple):
    """A commit that changes kvpool, and why it is a point of the history or is not."""

    commit: str
    subject: str
    lines: int  # of code, added and removed
    is_point: bool
    reason: str


def choose(branch: str, named: Sequence[Milestone], excluded: Sequence[Milestone] = ()) -> list[Change]:
    """Return the changes to kvpool on `branch` since the first of the `named` commits, oldest first.

    Raises UsageError where a commit that is `named` or `excluded` is none of them.
    """
    changed = commits.changes(branch, PATHS)
    reasons, unusable = ({commits.resolve(each.commit): each.reason for each in some} for some in (named, excluded))
    for commit in [*reasons, *unusable]:
        if commit not in {each.commit for each in changed}:
            raise UsageError(f"{commit[:8]} of the milestones is no change to {PATHS[0]}/ on {branch}")
    first = next(index for index, each in enumerate(changed) if each.commit in reasons)
    counted = [(each, _lines_changed(each)) for each in changed[first:]]
    last = next((each.commit for each, lines in reversed(counted) if lines and each.commit not in unusable), "")

    found: list[Change] = []
    for each, lines in reversed(counted):
        point = next((later.commit for later in reversed(found) if later.is_point), "")
        if each.commit in unusable:
            reason, is_point = unusable[each.commit], False
        elif each.commit in reasons:
            reason, is_point = reasons[each.commit], True
        elif not lines:
            reason, is_point = "no code: comments, docstrings, types, or lines that moved", False
        elif lines >= LINES:
            reason, is_point = "large", True
        elif each.commit == last:
            reason, is_point = "the last change", True
        else:
            reason, is_point = f"small, seen at {point[:8]}", False
        found.append(Change(each.commit, each.subject, lines, is_point, reason))
    return found[::-1]


def as_text(changes: Sequence[Change]) -> str:
    """Return both lists, of the points and of what is left out, a line a commit."""
    points = [each for each in changes if each.is_point]
    rest = [each for each in changes if not each.is_point]
    lines = [f"{len(changes)} commits change {PATHS[0]}/; large is {LINES} lines of code or more."]
    for title, some in (("recorded", points), ("left out", rest)):
        lines += ["", f"{title}: {len(some)}"]
        lines += [f"{each.commit[:8]} {each.lines:5}  {each.subject}  ({each.reason})" for each in some]
    return "\n".join(lines)


def code(path: str, text: str) -> list[str]:
    r"""Return the lines of code in a file of Python, Cython or C, however they are broken; none of any other file.

    >>> code("a.py", '"A module."\nx = f(1,  # why\n      2)\n')
    ['x = f ( 1 , 2 )']
    """
    if path.endswith(".h"):
        lines = _C_COMMENT.sub("", text).splitlines()
    elif path.endswith((".py", ".pyx", ".pxd")):
        try:
            return _statements(text)
        except (tokenize.TokenError, SyntaxError):
            lines = text.splitlines()
    else:
        lines = []
    return [" ".join(line.split()) for line in lines if line.strip()]


def _statements(text: str) -> list[str]:
    found, tokens = [], []
    for each in tokenize.generate_tokens(io.StringIO(text).readline):
        if each.type == tokenize.NEWLINE:
            # A string by itself is a docstring.
            if [token.type for token in tokens] != [tokenize.STRING]:
                found.append(" ".join(token.string for token in tokens))
            tokens = []
        elif each.type not in _NO_CODE and each.string.strip():
            tokens.append(each)
    return [line for line in found if line]


def _lines_changed(change: commits.Change) -> int:
    # Over all files together, so that what moves from one to another has not changed.
    counts: Counter[str] = Counter()
    for path, before, after in change.files:
        counts.subtract(_code_of(path, before))
        counts.update(_code_of(path, after))
    return sum(map(abs, counts.values()))


@cache
def _code_of(path: str, blob: str) -> tuple[str, ...]:
    return tuple(code(path, commits.content(blob))) if blob.strip("0") else ()
