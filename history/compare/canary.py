"""A fixed loop in a process of its own, which imports nothing: what moves it is the machine."""

import subprocess
from pathlib import Path

from history.compare import NotMeasuredError

_LOOP = """
from time import perf_counter
times = []
for _ in range(30):
    start = perf_counter()
    total = 0
    for number in range(10_000):
        total += number
    times.append(perf_counter() - start)
print(sorted(times)[15])
"""


def seconds(python: Path) -> float:
    """Return the time of the loop: the median of 30, a hundredth of a second in all and the start of a process."""
    command = [python, "-I", "-S", "-c", _LOOP]
    try:
        return float(subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout)
    except (subprocess.SubprocessError, OSError, ValueError) as error:
        raise NotMeasuredError(f"the canary cannot be measured: {error}") from error
