"""What all pages of the site are made of: the longest history that is recorded."""

import itertools
import json
import math
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from history import commits, records
from history.commits import Commit
from history.paths import MILESTONES
from history.records import Record
from history.site import names, trend
from history.site.families import Family


@dataclass(frozen=True)
class Recorded:
    """The records of one machine in the order of their commits, and what is known of them."""

    shown: list[Record]
    described: list[Commit]  # as `shown`
    reasons: dict[str, str]  # why a milestone is one
    suite: dict[str, dict[str, Any]]
    machines: dict[str, dict[str, Any]]
    measured: int  # when the latest of all records was, seconds since the epoch
    address: str = ""  # what a commit's hash is appended to, empty where the repository has none
    source_address: str = ""  # the same of a file's path

    @classmethod
    def read(cls, results: Path, address: str = "", source_address: str = "") -> "Recorded":
        """Return what the folder holds."""
        order = {commit: number for number, commit in enumerate(commits.all_in_order())}
        every = records.load(results)
        shown = trend.longest_history(every, order)
        hashes = [each.commit for each in shown]
        described = commits.describe(hashes)
        dates = trend.rising(each.date for each in described)
        files = sorted(results.glob("*/machine.json"))
        machines = [json.loads(path.read_text(encoding="utf-8")) for path in files]
        return cls(
            shown,
            [each._replace(date=date) if each.date else each for each, date in zip(described, dates, strict=True)],
            names.read(MILESTONES, hashes),
            records.suite(results),
            {each["machine"]: each for each in machines},
            max((each.measured for each in every), default=0),
            address,
            source_address,
        )

    @property
    def hashes(self) -> list[str]:
        """The commits that are shown."""
        return [each.commit for each in self.shown]

    @cached_property
    def noise(self) -> trend.Noise | None:
        """How far times lie apart that no commit has a part in."""
        return trend.noise(self.shown, self.is_timed)

    @cached_property
    def drifts(self) -> dict[str, float]:
        """By commit: the change of a time since the commit before, as a share, up to which it may be the machine's."""
        return {
            after.commit: trend.drift(before, after, self.is_timed) for before, after in itertools.pairwise(self.shown)
        }

    def is_noise(self, ratio: float, benchmark: str, first: int, last: int) -> bool:
        """Tell whether a figure may have changed by so much from one record to another without the code's doing."""
        if not self.is_timed(benchmark) or not 0 < ratio < math.inf:
            return False
        if (first, last) not in self._found:
            self._found[first, last] = trend.drift(self.shown[first], self.shown[last], self.is_timed)
        return abs(math.log(ratio)) <= math.log1p(self._found[first, last])

    @cached_property
    def _found(self) -> dict[tuple[int, int], float]:
        """What `is_noise` has found of pairs of records: it is asked of every figure."""
        return {}

    def is_noise_of(self, family: Family, step: trend.Step) -> bool:
        """Tell the same of a step of a family; the rows of one are all times or all counts."""
        return self.is_noise(step.ratio, family.rows[0].case.benchmark, step.index - 1, step.index)

    def source(self, benchmark: str) -> str:
        """Return the address of a benchmark's file, empty where the repository has none."""
        return f"{self.source_address}benchmarks/{benchmark.split('.')[0]}.py" if self.source_address else ""

    def is_timed(self, benchmark: str) -> bool:
        """Tell whether a benchmark takes times, which noise is in."""
        return benchmark in self.suite and self.suite[benchmark]["unit"] == "seconds"

    @property
    def milestones(self) -> list[tuple[str, str]]:
        """Commits and short names, in order."""
        return [(each.commit, self.name(each.commit)) for each in self.shown if each.commit in self.reasons]

    def title(self, index: int) -> str:
        """Return how a commit is named in words: by its hash and what it is known for."""
        commit = self.hashes[index]
        return f"{commit[:8]} {self.name(commit) or self.described[index].subject}".strip()

    def name(self, commit: str) -> str:
        """Return what stands at a commit's point."""
        return names.short(self.reasons[commit]) if commit in self.reasons else ""
