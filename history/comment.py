"""What may be commented on a pull request, and on which one: ``python -m history.comment REPORT PULLS COMMENT``.

Runs where it may write to pull requests, on what a run of somebody else's code has left behind: the report is text of
which nothing is believed, and the pull request is the one that GitHub itself says the run was of. Imports nothing but
Python's own library, as nothing is installed there.
"""

import json
import os
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from history import UsageError

LONGEST = 60_000  # characters; GitHub takes 65,536

# Text that stands for itself: no markup, and nothing that GitHub makes a link, a mention or an image of.
_TEXT = r"(?:(?!www\.)(?:[A-Za-z0-9 .,;=?^{}()'\"+/%-]|[^\x00-\x7f]|:(?!//)|(?<=[A-Za-z0-9])_(?=[A-Za-z0-9])))+"
_FIRST = {
    1: re.compile(r"# C → C(, by instructions)?"),
    3: re.compile(rf"\*\*(No regression|\d+ confirmed regressions?|Not measured): {_TEXT}\*\*"),
}
_LINE = re.compile(rf"|(## |- |  )?{_TEXT}|\|( ({_TEXT} )?\|)+|\|( -{{3}}:? \|)+")
_ESCAPED = re.compile(r"\\[!-/:-@\[-`{-~]|[@#:.]&#8203;")
# It ends where as many backticks stand as begin it. In a table, a bar ends a cell even there.
_CODE = re.compile(r"(?P<fence>`+)(?!`)(?:\\\||[^|])+?(?<!`)(?P=fence)(?!`)")


def check(text: str) -> None:
    """Raise UsageError unless every line is one that a report has: our words, figures, and code, which does nothing."""
    if len(text) > LONGEST:
        raise UsageError(f"the report has {len(text)} characters, which is too long for one")
    lines = text.removesuffix("\n").split("\n")
    for number, line in enumerate(lines, start=1):
        if not line.isprintable() or not _FIRST.get(number, _LINE).fullmatch(_shape(line)):
            raise UsageError(f"line {number} is none of a report: {line[:80]!r}")
    if len(lines) < 3:
        raise UsageError("the report is cut off")


def pull_request(event: Mapping[str, Any], pulls: Sequence[Mapping[str, Any]]) -> int:
    """Return the number of the open pull request whose head the finished run was of, by what GitHub says of both."""
    run = event["workflow_run"]
    wanted = run["head_repository"]["full_name"], run["head_branch"], run["head_sha"]
    found = [
        each["number"]
        for each in pulls
        if ((each["head"]["repo"] or {}).get("full_name"), each["head"]["ref"], each["head"]["sha"]) == wanted
    ]
    if len(found) != 1:
        raise UsageError(f"{len(found)} open pull requests have the head that was measured, {wanted[2][:8]}")
    return int(found[0])


def main(report: str, pulls: str, comment: str) -> int:
    """Write the comment and print the number of its pull request; return 0, or 2 if there is nothing to comment."""
    try:
        path = Path(report)
        if path.is_symlink() or not path.is_file():
            raise UsageError("the run left no report")
        with path.open("rb") as file:
            text = file.read(4 * LONGEST + 1).decode("utf-8", "replace")
        check(text)
        event = json.loads(Path(os.environ["GITHUB_EVENT_PATH"]).read_text(encoding="utf-8"))
        number = pull_request(event, json.loads(Path(pulls).read_text(encoding="utf-8")))
        run = event["workflow_run"]
        origin = f"\nFigures as the [run]({run['html_url']}) of {run['head_sha'][:8]} has left them.\n"
        Path(comment).write_text(text + origin, encoding="utf-8")
    except UsageError as error:
        print(f"no comment: {error}", file=sys.stderr)
        return 2
    print(number)
    return 0


def _shape(line: str) -> str:
    """Return a line with C in place of each piece of code, and a letter in place of each escaped character."""
    found, place = "", 0
    while place < len(line):
        piece = _ESCAPED.match(line, place) or _CODE.match(line, place)
        letter = line[place] if piece is None else "C" if piece[0][0] == "`" else "e"
        found, place = found + letter, place + 1 if piece is None else piece.end()
    return found


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
