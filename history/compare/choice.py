"""Choose what to measure of a suite whose calls have been counted: what can have changed, and a fixed sample."""

import runpy
from collections.abc import Sequence
from pathlib import Path

from history.compare.exact import Exact
from history.compare.suites import Suite
from history.compare.verdict import count
from history.records import Case

COUNTED = "bench_instructions."
# The suite's own table of what times which method.
TABLE = "timed.py"


def choose(suite: Suite, counts: Exact) -> tuple[list[Case], str]:
    """Return the cases to be measured, in the suite's order, and a sentence that says which they are.

    Those are all exact counts of other things, whatever times a method of which a call has moved, and the sample.
    """
    table = runpy.run_path(str(Path(suite.folder) / TABLE))
    moved = list(dict.fromkeys(call.split()[0] for call in counts.moved))
    patterns = [pattern for method in moved for pattern in table["times_of"](method)]
    chosen = {*suite.select([*patterns, *table["SAMPLE"]]), *_tracked(suite)}
    if moved:
        what = f"what times the {count(moved, 'method')} of which a count has moved, and a sample of the others"
    else:
        what = "a sample, as no count has moved"
    return [case for case in everything(suite) if case in chosen], f"Timed was {what}; --all times everything."


def everything(suite: Suite) -> list[Case]:
    """Return all cases but those of the calls that are counted."""
    return [case for case in suite.select(None) if not case.benchmark.startswith(COUNTED)]


def _tracked(suite: Suite) -> Sequence[Case]:
    return [case for case in suite.cases if suite.benchmarks[case.benchmark]["type"] == "track"]
