"""Real traffic: what the requests of an engine ask of a host tier behind a prefix cache with LRU eviction.

The first requests of a drawn trace, on a pool of 34,375 pages of 64 tokens that is kept at most 92 % full;
`docs/traces.md` says how a trace is drawn and replayed. `trace` is `conversation` (chats, blocks of 512 tokens) or
`agentic` (24 coding sessions at a time, blocks of one page); `method` is as in `bench_host`.
"""

import functools

import numpy as np

from benchmarks import pools, replay, synthetic_traces
from benchmarks.common import Benchmark

# By trace. Agentic blocks are one page, and as many requests would free a quarter of a million.
REQUESTS = {"conversation": 1_000, "agentic": 250}


@functools.cache
def plan(trace):
    """Return the calls that the first requests of a drawn trace make of any allocator."""
    return replay.make_plan(synthetic_traces.KINDS[trace](), requests=REQUESTS[trace])


class ReplayBenchmark(Benchmark):
    """A replay, timed by a clock that runs in the allocator's own calls only."""

    # A replay takes a tenth of a second, most of it outside the allocator; where the allocator is slow, some seconds.
    rounds = 3
    repeat = (1, 5, 0.6)
    min_run_count = 1
    warmup_time = 0
    in_allocator = 0.0

    def setup(self, trace, allocator):
        self.outcome = None
        self.plan = plan(trace)
        self.pool = replay.build_pool(allocator, self.plan.block_pages)

    def timer(self):
        """Return the seconds spent in allocators so far, divided by the requests of a replay: asv's clock here."""
        return self.in_allocator / REQUESTS["conversation"]

    def run(self):
        """Replay the plan."""
        self.outcome = replay.replay(self.plan, self.pool)
        self.in_allocator += self.outcome.allocator_seconds


class ReplayTime(ReplayBenchmark):
    """The time that an engine's requests spend in the allocator."""

    version = "2"
    params = (["conversation"], list(pools.HOST_METHODS))
    param_names = ("trace", "method")

    def setup(self, trace, method):
        super().setup(trace, f"kvpool_{method}")

    def time_allocator(self, trace, method):
        """Time in the allocator for a request, the mean of 1,000: an allocation of 166 pages and 17 frees of 8."""
        self.run()


class ReplayRuns(ReplayBenchmark):
    """How scattered the allocations of an engine's requests are."""

    version = "1"
    params = (list(REQUESTS), list(pools.HOST_METHODS))
    param_names = ("trace", "method")
    unit = "runs"

    def setup(self, trace, method):
        super().setup(trace, f"kvpool_{method}")

    def track_runs_per_alloc(self, trace, method):
        """Runs (transfer descriptors) per allocation, on average: 1 is best."""
        self.run()
        return float(np.mean(self.outcome.runs))


class ReplayCache(Benchmark):
    """The cache before the allocator."""

    version = "1"
    params = (list(REQUESTS),)
    param_names = ("trace",)
    unit = "share"

    def setup(self, trace):
        # The cache is not kvpool's, but a kvpool without an allocator has nothing to show for it.
        pools.host_pool(1, 1)

    def track_miss_rate(self, trace):
        """Share of the blocks asked for that are not cached, 0 to 1. It is the same for every allocator."""
        return plan(trace).miss_rate
