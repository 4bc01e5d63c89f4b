"""Single calls of the public methods that no other benchmark times, as `counted_calls` prepares them.

A figure is the time of one call, the mean of as many as `CALLS` says; the case's line in `counted_calls.CASES` says of
what. What a call has changed it finds changed when it is made again, so that only calls are here that cost as much
then. `floor` and `list` run no code of kvpool.
"""

import functools

import numpy as np

from benchmarks import pools
from benchmarks.bench_lanes import LaneBenchmark, owned
from benchmarks.common import Benchmark
from benchmarks.counted_calls import CASES

# Times each is called in a trace.
CALLS = {
    "HostAllocator": 4,
    "HostAllocator.from_size_gb": 4,
    "HostAllocator.available_size": 8_000,
    "HostAllocator.restore": 20,
    "HostAllocator.clear": 4,
    "HostAllocator.check 1024": 1,
    "HostAllocator.__reduce__": 40,
    "PageCounts": 100,
    "PageCounts.count": 1_000,
    "PageCounts.held_page_ids": 5,
    "PageCounts.snapshot": 40,
    "PageCounts.restore": 20,
    "PageCounts.clear": 200,
    "PageCounts.check": 40,
    "PageCounts.__reduce__": 40,
    "OwnerLaneAllocator": 8,
    "OwnerLaneAllocator.compute_owner_lane_capacity_pages": 4_000,
    "OwnerLaneAllocator.available_size": 1_000,
    "OwnerLaneAllocator.schedulable_size": 500,
    "OwnerLaneAllocator.free_pages 256": 60,
    "OwnerLaneAllocator.free_pages 256 assigned": 4,
    "OwnerLaneAllocator.release_pages 256": 500,
    "OwnerLaneAllocator.release_pages 256 assigned": 20,
    "OwnerLaneAllocator.snapshot": 40,
    "OwnerLaneAllocator.restore": 4,
    "OwnerLaneAllocator.clear": 10,
    "OwnerLaneAllocator.check 256": 1,
    "OwnerLaneAllocator.__reduce__": 40,
    "PagedAllocator": 10,
    "PagedAllocator.check 1024": 10,
    "PagedAllocator.__reduce__": 10,
    "count_runs 1": 10,
    "count_runs 64": 10,
    "page_runs 8": 20,
    "page_runs 512": 20,
    "floor 512": 20,
    "TokenBuffer 1000": 200,
    "TokenBuffer 1000 list": 100,
    "TokenBuffer.append": 8_000,
    "TokenBuffer.extend 8 list": 4_000,
    "TokenBuffer.truncate": 6_000,
    "TokenBuffer.tolist 1000": 40,
    "list 1000": 200,
    "TokenBuffer.numpy": 3_000,
    "TokenBuffer.torch": 400,
    "TokenBuffer.check": 100,
    "TokenBuffer.__len__": 4_000,
    "TokenBuffer.__iter__ 1000": 20,
    "TokenBuffer.__getitem__": 6_000,
    "TokenBuffer.__getitem__ slice": 1_000,
    "TokenBuffer.__eq__ 1000": 100,
    "TokenBuffer.__add__ 1000": 100,
    "TokenBuffer.__radd__ 8 list": 100,
    "TokenBuffer.__array__": 1_000,
    "TokenBuffer.__reduce__": 1_000,
    "RequestTokens.origin": 3_000,
    "RequestTokens.output": 3_000,
    "RequestTokens.__len__": 4_000,
    "RequestTokens.__array__": 1_000,
    "RequestTokens.__reduce__": 400,
    "RequestTokens.__setstate__": 40,
    "TokenTable 256": 8,
    "TokenTable.lengths": 3_000,
    "TokenTable.check 64": 30,
    "TokenTable.__reduce__ 64": 20,
    "TokenTable.__setstate__ 64": 8,
    "BatchStager": 200,
}
RETURNS = {8: 200, 512: 16}


class Calls(Benchmark):
    """A call that is made many times in a row."""

    version = "2"
    params = (list(CALLS),)
    param_names = ("call",)
    # Fewer rounds of more samples than elsewhere: there are many cases, and a round takes longer to start than to time.
    rounds = 4
    repeat = (2, 40, 0.012)

    def setup(self, call):
        if not hasattr(self, "calls"):
            self.prepare = CASES[call]
            self.call = self.prepare()
            self.calls = range(self.rehearse([self.made] * CALLS[call]))
        self.kept = None
        if self.call.rewind is None:
            self.call = self.prepare()
        else:
            self.call.rewind()

    def made(self):
        """Make a call; return that it was made, as what returns nothing is no refusal."""
        self.call.function(*self.call.arguments)
        return True

    def time_calls(self, call):
        """Time of a call; results are kept, and dropped off the clock."""
        function, arguments, _ = self.call
        self.kept = [function(*arguments) for _ in self.calls]


class LaneReturn(LaneBenchmark):
    """Giving pages back to their lanes by their ids."""

    version = "2"
    params = (list(RETURNS), ["return_pages", "merge_released", "floor"])
    param_names = ("pages", "call")
    rounds = 6

    def prepare(self, pages, call):
        calls, request = RETURNS[pages], owned("round_robin", pages)
        if call == "floor":
            self.trace = [functools.partial(np.arange, pages)] * calls
        else:
            self.build("contiguous", "random", request, calls)
            give_back, select = (pools.feature(self.pool, name) for name in ("return_pages", "select_pages"))
            taken = []
            for _ in range(calls):
                taken.append(select(request))
                self.pool.alloc_pages_with_owners(request)
            self.snapshot = self.pool.snapshot()
            self.trace = [functools.partial(give_back, each) for each in taken]
            if call == "merge_released":
                merge = pools.feature(self.pool, "merge_released")
                self.trace = [functools.partial(self.merged, each, merge) for each in self.trace]
        self.calls = self.trace[: self.rehearse(self.trace)]

    @staticmethod
    def merged(give_back, merge):
        """Give pages back and make them free; return how many."""
        given = give_back()
        merge()
        return given

    def time_return(self, pages, call):
        """Time to give `pages` pages back that were handed out round-robin.

        `merge_released` follows each with a call of it, which makes the pages free. `floor` makes as many ids.
        """
        self.results = [each() for each in self.calls]
