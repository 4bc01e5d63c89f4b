"""The device tier: how long OwnerLaneAllocator takes to choose pages by owner, and to take them back.

Unless said otherwise: 8 lanes of 32,768 pages of 64 tokens, on the CPU, owners given as an ndarray. `pages` is the size
of a request, `owners` how it is dealt to the ranks: `round_robin`, `one_rank` (all to rank 0), or `zigzag` (16 nearly
equal segments to ranks 0 .. 7, 7 .. 0). Lanes start from the `random` free set, a seeded half of each lane, unless
said otherwise. `floor` is the cheapest way to return as many slots from no pool at all. A figure is the time of one
call, the mean of a trace of them: read `floor` beside it.
"""

import functools

import numpy as np
import torch

from benchmarks import pools, workloads
from benchmarks.common import Benchmark, floor

LANE_PAGES = 32_768
PAGE_SIZE = 64
CP_SIZE = 8
SELECTIONS = list(pools.SELECTIONS)
OWNERS = list(workloads.OWNER_PATTERNS)
SEED = 0

# Calls in a trace, by the pages of each: they fit in half a lane even where one rank owns them all.
CALLS = {1: 100, 8: 64, 64: 40, 512: 16}
STATS_CALLS = 50


class LaneBenchmark(Benchmark):
    """A device pool that every timed call finds in one state."""

    device = "cpu"
    pool = None

    def setup(self, *params):
        if not hasattr(self, "calls"):
            self.prepare(*params)
        self.rewind()

    def rewind(self):
        """Drop the results of the call before, and bring the lanes back."""
        self.results = None
        if self.pool is not None:
            self.pool.restore(self.snapshot)

    def build(self, selection, free_set, request, calls, lane_pages=LANE_PAGES):
        """Build a pool with a free set made for all the requests of a trace."""
        self.pool = pools.lane_pool(lane_pages, PAGE_SIZE, CP_SIZE, selection, self.device)
        pools.arrange_lanes(self.pool, free_set, np.tile(request, calls), SEED)
        self.snapshot = pools.feature(self.pool, "snapshot")()

    def prepare_requests(self, selection, free_set, owners, pages, lane_pages=LANE_PAGES):
        """Prepare a trace of equal requests for slots."""
        self.request, calls = owned(owners, pages), CALLS[pages]
        if selection == "floor":
            self.call, self.request = floor, pages * PAGE_SIZE
        else:
            self.build(selection, free_set, self.request, calls, lane_pages)
            self.call = pools.feature(self.pool, "alloc_pages_with_owners")
        self.calls = range(self.rehearse([functools.partial(self.call, self.request)] * calls))

    def call_all(self):
        """Make the calls of the trace, keeping the results."""
        call, request = self.call, self.request
        self.results = [call(request) for _ in self.calls]


class LaneSelect(LaneBenchmark):
    """Choosing pages without taking them."""

    version = "2"
    params = (OWNERS, list(CALLS), SELECTIONS)
    param_names = ("owners", "pages", "selection")

    def prepare(self, owners, pages, selection):
        self.request = owned(owners, pages)
        self.build(selection, "random", self.request, CALLS[pages])
        self.call = pools.feature(self.pool, "select_pages")
        self.calls = range(self.rehearse([functools.partial(self.call, self.request)] * CALLS[pages]))

    def time_select_only(self, owners, pages, selection):
        """Time of `select_pages` for `pages` pages.

        Every call chooses the same pages. What `alloc_pages` takes beyond this is the change of the books and the
        making of the slots.
        """
        self.call_all()


class LaneAlloc(LaneBenchmark):
    """Allocation by owner."""

    version = "2"
    params = (OWNERS, list(CALLS), [*SELECTIONS, "floor"])
    param_names = ("owners", "pages", "selection")

    def prepare(self, owners, pages, selection):
        if selection == "floor" and owners != "round_robin":
            raise NotImplementedError("the floor knows no owners: it is measured once")
        self.prepare_requests(selection, "random", owners, pages)

    def time_alloc_pages(self, owners, pages, selection):
        """Time of `alloc_pages_with_owners` for `pages` pages.

        Half of each lane is free, in short stretches: 64 pages of one rank in one stretch are searched for in vain.
        """
        self.call_all()


class LaneFreeSets(LaneBenchmark):
    """Allocation by owner, by what is free in the lanes."""

    version = "2"
    params = (list(workloads.FREE_PATTERNS), SELECTIONS)
    param_names = ("free_set", "selection")

    def prepare(self, free_set, selection):
        self.prepare_requests(selection, free_set, "round_robin", 64)

    def time_alloc_pages(self, free_set, selection):
        """Time of `alloc_pages_with_owners` for 64 pages round-robin, 8 of each rank.

        `sequential`: all free. `random`: a seeded half. `owner_fragmented_later_run`: every second page, and one
        stretch as long as the whole trace needs, from page 960 of the lane, which only `contiguous` goes to.
        """
        self.call_all()


class LaneSmall(LaneBenchmark):
    """Allocation by owner from lanes a quarter as long."""

    version = "2"
    params = (SELECTIONS,)
    param_names = ("selection",)

    def prepare(self, selection):
        self.prepare_requests(selection, "random", "round_robin", 64, lane_pages=8_192)

    def time_alloc_pages(self, selection):
        """Time of `alloc_pages_with_owners` for 64 pages round-robin in 8 lanes of 8,192 pages, half of each free.

        Beside `LaneFreeSets` with `random`, the same in lanes of 32,768 pages: a good allocator takes as long here.
        """
        self.call_all()


class LaneStats(LaneBenchmark):
    """What the scheduler asks before it allocates."""

    version = "2"
    params = ([8, 512],)
    param_names = ("pages",)

    def prepare(self, pages):
        self.request = owned("round_robin", pages)
        self.build("contiguous", "random", self.request, 1)
        self.stats = pools.feature(self.pool, "compute_owner_lane_stats")
        free_room_stats = pools.feature(self.pool, "compute_owner_lane_free_room_stats")
        self.free_room_stats = functools.partial(free_room_stats, target_ratio=0.15, trigger_ratio=0.05)
        calls = [functools.partial(call, self.request) for call in (self.stats, self.free_room_stats)]
        self.calls = range(self.rehearse(calls * (STATS_CALLS // 2)))

    def time_stats(self, pages):
        """Time of `compute_owner_lane_stats` for a request of `pages` pages, round-robin."""
        call, request = self.stats, self.request
        self.results = [call(request) for _ in self.calls]

    def time_free_room_stats(self, pages):
        """Time of `compute_owner_lane_free_room_stats` for `pages` pages, ratios 0.15 and 0.05."""
        call, request = self.free_room_stats, self.request
        self.results = [call(request) for _ in self.calls]


class LaneFree(LaneBenchmark):
    """Giving pages back to their lanes."""

    version = "2"
    params = ([8, 512], ["kvpool", "floor"])
    param_names = ("pages", "implementation")

    def prepare(self, pages, implementation):
        if implementation == "floor":
            self.call, self.returned = floor, [pages * PAGE_SIZE] * CALLS[pages]
        else:
            request = owned("round_robin", pages)
            self.build("contiguous", "random", request, CALLS[pages])
            allocate = pools.feature(self.pool, "alloc_pages_with_owners")
            self.returned = [allocate(request) for _ in range(CALLS[pages])]
            self.snapshot = self.pool.snapshot()
            self.call = pools.feature(self.pool, "free")
        self.calls = self.returned[: self.rehearse([functools.partial(self.call, each) for each in self.returned])]

    def time_free(self, pages, implementation):
        """Time to free a result of `pages` pages round-robin.

        `floor` is the time to make as many slots: a free has to read each of them.
        """
        call = self.call
        self.results = [call(slots) for slots in self.calls]


class LaneAllocCuda(LaneBenchmark):
    """Allocation by owner with the result on a CUDA device; n/a where there is none."""

    version = "2"
    device = "cuda"
    params = ([64, 512], SELECTIONS)
    param_names = ("pages", "selection")

    def prepare(self, pages, selection):
        if not torch.cuda.is_available():
            raise NotImplementedError("there is no CUDA device")
        self.prepare_requests(selection, "random", "round_robin", pages)

    def rewind(self):
        super().rewind()
        torch.cuda.synchronize()

    def time_alloc_pages(self, pages, selection):
        """Time of `alloc_pages_with_owners` for `pages` pages round-robin.

        The last copy of a trace to the device has arrived when the clock stops.
        """
        self.call_all()
        torch.cuda.synchronize()


def owned(owners, pages):
    """Return the owners of a request; n/a where they are the same as round-robin's, which is measured."""
    request = workloads.OWNER_PATTERNS[owners](pages, CP_SIZE)
    if owners != "round_robin" and np.array_equal(request, workloads.round_robin(pages, CP_SIZE)):
        raise NotImplementedError(f"{pages} pages are dealt by {owners} as by round_robin")
    return request
