"""Exact counts: the instructions of one call of each public method. No time is taken here.

They repeat to the last digit, whatever else the machine does, and say in which function they are: see
`docs/measuring.md` for what they are good for, and what not.
"""

import math

from benchmarks import counting
from benchmarks.common import Benchmark
from benchmarks.counted_calls import CASES


def made_with():
    """Return what counts depend on beside the code, or why there are none."""
    try:
        return counting.made_with()
    except counting.CannotCountError as error:
        return f"not counted: {error}"


class Instructions(Benchmark):
    """What calls cost a processor in instructions, on warm caches and a pool in use."""

    version = "1"
    # Counts of another valgrind, C library, Python, compiler or kind of CPU are other cases: nothing compares them.
    params = (list(CASES), [made_with()])
    param_names = ("call", "counted_with")
    unit = "instructions"

    def setup_cache(self):
        """Count all cases, in one process of valgrind."""
        try:
            return counting.count()["cases"]
        except counting.CannotCountError as error:
            return {name: {"missing": str(error)} for name in CASES}

    setup_cache.timeout = 2 * counting.PATIENCE

    def setup(self, counted, call, counted_with):
        outcome = counted[call]
        if "missing" in outcome:
            raise NotImplementedError(outcome["missing"])

    def track_instructions(self, counted, call, counted_with):
        """Instructions of one call that was made before: of kvpool, and of all that it calls."""
        outcome = counted[call]
        if "failed" in outcome:
            raise RuntimeError(outcome["failed"])
        return outcome.get("instructions", math.nan)
