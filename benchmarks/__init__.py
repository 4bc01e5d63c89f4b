"""The asv suite of kvpool, and the sweeps that run its cases by hand (`python -m benchmarks`)."""

import os

# Before numpy and torch start their thread pools: threads make times vary, and threaded work done before the
# fork hangs asv's forkserver.
os.environ["OMP_NUM_THREADS"] = "1"

import torch

torch.set_num_threads(1)
