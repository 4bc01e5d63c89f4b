"""A benchmark that does not use kvpool: it changes only when the machine does."""

from benchmarks.common import Benchmark


class Canary(Benchmark):
    """A fixed loop of pure Python."""

    version = "1"

    def time_python_loop(self):
        """Time of 10,000 turns of a loop with an addition: a commit for which it is high was measured badly."""
        total = 0
        for number in range(10_000):
            total += number
        return total
