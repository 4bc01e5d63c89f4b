"""The budgets of the design, measured now: `python -m benchmarks budgets`.

Every figure is the ratio of two things timed in one process, alternating. A line over its budget is measured again, up
to twice, since a neighbour on the machine can cost any single run its tail; what is printed is the last measurement.
"""

import importlib
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

ATTEMPTS = 3
FAMILIES = ("allocators", "tokens")


class Line(NamedTuple):
    """One budget: what was measured and what it may be, in the same unit."""

    operation: str
    measured: float
    budget: float
    unit: str

    @property
    def ok(self) -> bool:
        """Whether the budget is kept."""
        return self.measured <= self.budget

    def __str__(self) -> str:
        verdict = "ok" if self.ok else "MISSED"
        return f"{self.operation:72s} {self.measured:9.3f}  <= {self.budget:9.3f} {self.unit:10s} {verdict}"


Measure = Callable[[], list[Line]]


def measure_again_where_missed(measurements: Iterable[Measure]) -> Iterator[Line]:
    """Yield the lines of each measurement, from its first attempt with none over budget, or its last."""
    for measure in measurements:
        for attempt in range(ATTEMPTS):
            lines = measure()
            if all(line.ok for line in lines):
                break
            missed = sum(not line.ok for line in lines)
            print(f"# attempt {attempt + 1}: {missed} over budget in {lines[0].operation} ...", file=sys.stderr)
        yield from lines


def main(arguments: list[str]) -> int:
    """Print the budgets of all families, or of those named; return 1 where one is missed."""
    modules = {family: f"sweeps.budgets_{family}" for family in FAMILIES}
    unknown = [name for name in arguments if name not in modules]
    if unknown:
        print(
            f"python -m benchmarks budgets: unknown family {unknown[0]!r}: write {', '.join(modules)}", file=sys.stderr
        )
        return 2
    missed = 0
    for family in arguments or modules:
        for line in measure_again_where_missed(importlib.import_module(modules[family]).measurements()):
            print(line, flush=True)
            missed += not line.ok
    print(f"{missed} budgets missed" if missed else "all budgets kept")
    return 1 if missed else 0
