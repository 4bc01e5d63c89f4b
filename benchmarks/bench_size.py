"""Size: what a call costs on a pool for a rack, with more threads that share a pool, and with more lanes.

`bench_host.Growth` has the pools from 8,192 to 4,194,304 pages. A good allocator draws flat lines here: no cost grows
with the pool or with the lanes beyond the pages of the request, and threads take turns without waiting for locks.
"""

import collections
import functools
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from benchmarks import bench_host, pools, workloads
from benchmarks.common import Benchmark

SEED = 0
# Pairs of calls, whatever the number of threads.
PAIRS = 20_000
LANE_PAGES = 262_144
LANE_REQUEST = 512
# Lanes: what is measured of them is a trace of as many pairs of calls.
LANE_PAIRS = 24
SLOWEST_PAGES = 4_194_304
SLOWEST_PAIRS = 500_000
SLOWEST_NEED = 8


class HugePool(bench_host.Growth):
    """The calls of `Growth` on a pool of 16,777,216 pages: a rack's host memory."""

    version = "2"
    params = ([16_777_216], list(bench_host.GROWTH_CALLS), list(pools.HOST_METHODS))
    # A pool takes a second to bring to its state.
    rounds = 2
    repeat = (2, 100, 0.05)

    def prepare(self, num_pages, pages, method):
        pools.need_indexed("a straightforward allocator takes minutes and gigabytes for this")
        super().prepare(num_pages, pages, method)


class SlowestCalls(Benchmark):
    """The slowest of a million calls on a pool of 4,194,304 pages, from whose middle others take pages.

    What a scheduler waits for once in a while: a call that pays for what others did shows here, and in no median.
    """

    version = "1"
    rounds = 1
    repeat = 1
    number = 1
    warmup_time = 0
    min_run_count = 1
    timeout = 300

    def setup(self):
        pools.need_indexed("a straightforward allocator takes hours for this")
        self.pool = pools.host_pool(SLOWEST_PAGES, 1)
        pools.arrange_host(self.pool, workloads.aged_tenth(SLOWEST_PAGES, SEED))
        self.spent = 0.0
        self.timer = lambda: self.spent

    def call_times(self):
        """Return the nanoseconds of half a million allocations of 8 pages, and of the frees of those before the last.

        Outside the clock, 512 pages leave the middle of the order after every 64 of them, and come back at its end.
        """
        clock = time.perf_counter_ns
        alloc, free = self.pool.alloc, self.pool.free
        take, give_back = self.pool.alloc_pages, self.pool.return_pages
        times = np.empty((2, SLOWEST_PAIRS), np.int64)
        held = collections.deque(alloc(SLOWEST_NEED) for _ in range(64))
        taken = collections.deque(take(512, "contiguous") for _ in range(64))
        for i in range(SLOWEST_PAIRS):
            if i % 64 == 0:
                taken.append(take(512, "contiguous"))
                give_back(taken.popleft())
            slots = held.popleft()
            start = clock()
            free(slots)
            middle = clock()
            result = alloc(SLOWEST_NEED)
            end = clock()
            times[:, i] = middle - start, end - middle
            held.append(result)
        return times.ravel()

    def time_in_ten_thousand(self):
        """Time that one call in ten thousand takes longer than: the 99.99th percentile of a million calls."""
        self.spent += float(np.percentile(self.call_times(), 99.99)) / 1e9

    def time_longest(self):
        """Time of the longest of a million calls, whatever the machine did meanwhile: no comparison gates on it."""
        self.spent += int(self.call_times().max()) / 1e9


class SharedPool(Benchmark):
    """A pool that threads share."""

    version = "2"
    params = ([1, 2, 4, 8],)
    param_names = ("threads",)
    rounds = 6
    repeat = (3, 10, 0.2)
    sample_limit = 0.2
    # Threads that take turns for the GIL also wait for whatever else runs on the machine: CPU time does not.
    clock = staticmethod(time.process_time)
    need = 8

    def setup(self, threads):
        if not hasattr(self, "pool"):
            self.pool = pools.host_pool(bench_host.NUM_PAGES, 1)
            pools.arrange_host(self.pool, bench_host.churned().free)
            self.alloc, self.free = pools.host_method(self.pool, "fifo"), pools.feature(self.pool, "free")
            self.pairs = self.rehearse([self.pair] * PAIRS)
        self.executor = ThreadPoolExecutor(threads)
        list(self.executor.map(self.work, [1] * threads))

    def teardown(self, threads):
        """Let the threads end."""
        if hasattr(self, "executor"):
            self.executor.shutdown()

    def pair(self):
        """Allocate and free once."""
        return self.free(self.alloc(self.need))

    def work(self, pairs):
        """Do a thread's share."""
        alloc, free, need = self.alloc, self.free, self.need
        for _ in range(pairs):
            free(alloc(need))

    def time_alloc_free(self, threads):
        """CPU time of an allocation of 8 pages of one token and its free, the mean of 20,000 dealt to the threads.

        The pool is that of `bench_host`, 90 % full. Under the GIL a line over `threads` cannot fall: flat is best.
        """
        list(self.executor.map(self.work, [self.pairs // threads] * threads))


class Lanes(Benchmark):
    """A device pool of 262,144 pages in 1 to 64 lanes."""

    version = "2"
    params = ([1, 4, 16, 64],)
    param_names = ("lanes",)

    def setup(self, lanes):
        if not hasattr(self, "pool"):
            self.owners = workloads.round_robin(LANE_REQUEST, lanes)
            self.pool = pools.lane_pool(LANE_PAGES // lanes, 1, lanes, "contiguous")
            pools.arrange_lanes(self.pool, "random", self.owners, SEED)
            self.snapshot = pools.feature(self.pool, "snapshot")()
            self.allocate = pools.feature(self.pool, "alloc_pages_with_owners")
            self.free = pools.feature(self.pool, "free")
            self.stats = pools.feature(self.pool, "compute_owner_lane_stats")
            self.calls = range(self.rehearse([functools.partial(self.allocate, self.owners)] * LANE_PAIRS))
        self.results = []
        self.pool.restore(self.snapshot)

    def time_alloc_free(self, lanes):
        """Time of an allocation of 512 pages round-robin and of its free, a seeded half of each lane free."""
        allocate, free, owners = self.allocate, self.free, self.owners
        for _ in self.calls:
            slots = allocate(owners)
            self.results.append(slots)
            free(slots)

    def time_stats(self, lanes):
        """Time of `compute_owner_lane_stats` for 512 owners."""
        stats, owners = self.stats, self.owners
        for _ in self.calls:
            stats(owners)
