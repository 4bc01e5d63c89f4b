"""The suite that is measured, and those of the two commits: what HEAD has dropped is not measured, and not noticed."""

import json
import os
import re
import tempfile
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import Any

from asv import util
from asv.runner import BENCHMARK_RUN_SCRIPT

from history import commits
from history.compare import NotMeasuredError
from history.compare.reasons import why
from history.compare.sides import Side
from history.records import CANARY, Case, is_control


class Suite:
    """The benchmarks of a folder, as asv finds them, and their cases."""

    def __init__(self, folder: str, found: Sequence[dict[str, Any]]):
        self.folder = folder
        self.benchmarks = {each["name"]: each for each in sorted(found, key=lambda each: each["name"])}
        self._indexes = {
            Case(name, parameters): index
            for name, each in self.benchmarks.items()
            for index, parameters in enumerate(product(*each["params"]))
        }

    @property
    def cases(self) -> list[Case]:
        """All cases, in the order in which they are run."""
        return list(self._indexes)

    def index(self, case: Case) -> int:
        """Return the place of a case among the combinations of its benchmark's parameters."""
        return self._indexes[case]

    def rounds(self, case: Case) -> int:
        """Return in how many rounds a case is to be run."""
        return self.benchmarks[case.benchmark].get("rounds", 1)

    def select(self, patterns: Sequence[str] | None) -> list[Case]:
        """Return the cases that match any of the patterns (all, if there is none), and the controls beside them."""
        chosen = [case for case in self.cases if matches(case, patterns) and not case.benchmark.startswith(CANARY)]
        names = {case.benchmark for case in chosen}
        return [case for case in self.cases if case in chosen or (is_control(case) and case.benchmark in names)]


def matches(case: Case, patterns: Sequence[str] | None) -> bool:
    """Tell whether any of the patterns is somewhere in the case's name; without a pattern, all match."""
    return not patterns or any(re.search(pattern, str(case)) for pattern in patterns)


def discover(folder: Path, side: Side) -> Suite:
    """Return the benchmarks of a folder, as asv finds them beside the commit of `side`."""
    with tempfile.TemporaryDirectory() as scratch:
        answer = Path(scratch) / "benchmarks.json"
        command = [BENCHMARK_RUN_SCRIPT, "discover", os.path.abspath(folder), str(answer)]
        try:
            side.environment.run(command, cwd=scratch, dots=False, display_error=False)
        except util.ProcessError as error:
            reason = why(error.retcode, error.stderr or error.stdout, side.environment._install_timeout)
            raise NotMeasuredError(f"the suite cannot be imported beside {side}: {reason}") from error
        found = json.loads(answer.read_text(encoding="utf-8"))
    for each in found:
        if each.get("timeout") is None:
            each["timeout"] = side.environment._default_benchmark_timeout
    return Suite(str(folder), found)


def dropped(base: Side, head: Side, measured: Suite, name: str, patterns: Sequence[str] | None) -> list[Case]:
    """Return the matching cases of BASE's own suite that HEAD's own or the measured one has not.

    `name` is the folder's in both commits. Renamed is dropped as well: nothing says that the new one measures the same.
    """
    commits_of = base.commit.hash, head.commit.hash
    if not commits.differs(name, *commits_of) and not commits.differs(name, commits_of[0]):
        return []
    try:
        wanted = _own(base, name)
    except NotMeasuredError as error:
        return [Case(f"all of BASE's suite, as nobody knows what it has: {error}", ())]
    there = set(measured.cases) & set(_own(head, name))
    return [case for case in wanted if case not in there and matches(case, patterns)]


def _own(side: Side, name: str) -> list[Case]:
    folder = side.source / name
    return discover(folder, side).cases if folder.is_dir() else []
