"""The asv suite of kvpool: what asv imports, and nothing else; `python -m benchmarks` runs its cases by hand."""

import ctypes
import os
import sys

# Before numpy and torch start their thread pools: threads make times vary, and threaded work done before the
# fork hangs asv's forkserver.
os.environ["OMP_NUM_THREADS"] = "1"

import torch

torch.set_num_threads(1)


def _keep_memory() -> None:
    """Have glibc keep the memory that results give back, rather than return it to the system.

    Otherwise whether a trace of megabytes pays page faults, ten times the time of its calls, depends on what the
    process freed before.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(-1, 1 << 30)  # M_TRIM_THRESHOLD
        mallopt(-3, 32 << 20)  # M_MMAP_THRESHOLD, at its maximum


if sys.platform == "linux":
    _keep_memory()
