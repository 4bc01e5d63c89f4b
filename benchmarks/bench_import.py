"""What importing kvpool costs a process that starts."""

from benchmarks.common import Benchmark


class Import(Benchmark):
    """Import of kvpool in a fresh process; where numba compiles its kernels, they are already cached."""

    version = "1"
    # About a second each, in a process of its own: fewer than elsewhere.
    rounds = 8
    repeat = 1
    number = 1
    min_run_count = 1
    warmup_time = 0

    def timeraw_import(self):
        """Time to import kvpool where torch and numpy are already imported, as in an engine."""
        return "import kvpool", "import numpy, torch"
