"""The host tier: how long HostAllocator takes to hand out pages and to take them back.

Unless said otherwise: a pool of 34,375 pages of 64 tokens (220 GB at 100 kB a token). `method` is how pages are chosen:
`fifo` (alloc), `contiguous` (alloc_contiguous_preferred), `fewest_runs` (alloc_fewest_runs); `floor` is the cheapest
way to return as many slots from no pool at all. A figure is the time of one call, the mean of a trace of them: read
`floor` beside it. Results are kept during the trace and dropped outside the clock.
"""

import functools

import torch

from benchmarks import pools, workloads
from benchmarks.common import Benchmark, floor

NUM_PAGES = 34_375
PAGE_SIZE = 64
METHODS = [*pools.HOST_METHODS, "floor"]
SEED = 0

# Calls in a trace, by the pages of each: 0.2 ms or more, and few enough results to stay in the cache.
FRESH_CALLS = {1: 200, 8: 160, 64: 96, 512: 20}
# As many as fit in what a pool that is 90 % full has free.
CHURNED_CALLS = {1: 200, 8: 160, 64: 40, 512: 5}
# Pairs of calls.
GROWTH_CALLS = {8: 64, 512: 16}
CHURN_STEPS = 3_000
TAIL_STEPS = 64


class HostBenchmark(Benchmark):
    """A host pool that every timed call finds in one state."""

    def setup(self, *params):
        if not hasattr(self, "snapshot"):
            self.prepare(*params)
        self.rewind()

    def hold(self, pool):
        """Keep the state of a pool, for every call to start from."""
        self.pool = pool
        self.snapshot = pool and pools.feature(pool, "snapshot")()

    def rewind(self):
        """Drop the results of the call before, and bring the pool back."""
        self.results = None
        if self.pool is not None:
            self.pool.restore(self.snapshot)
            pools.settle(self.pool)

    def prepare_requests(self, pages, method, calls, arrange):
        """Prepare a trace of equal requests to a pool that `arrange` brings to its state."""
        self.need = pages * PAGE_SIZE
        if method == "floor":
            self.hold(None)
            self.allocate = floor
        else:
            pool = pools.host_pool(NUM_PAGES, PAGE_SIZE)
            self.allocate = pools.host_method(pool, method)
            arrange(pool)
            self.hold(pool)
            self.rewind()
        self.calls = range(self.rehearse([lambda: self.allocate(self.need)] * calls))

    def allocate_all(self):
        """Make the requests of the trace, keeping the results."""
        allocate, need = self.allocate, self.need
        self.results = [allocate(need) for _ in self.calls]


class FreshAlloc(HostBenchmark):
    """Allocation from a pool that is all free, by the FIFO order of its pages."""

    version = "2"
    params = (list(workloads.HOST_PATTERNS), list(FRESH_CALLS), METHODS)
    param_names = ("order", "pages", "method")

    def prepare(self, order, pages, method):
        if method == "floor" and order != "contiguous_fifo":
            raise NotImplementedError("the floor knows no order: it is measured once")
        if pages == 1 and order != "contiguous_fifo":
            raise NotImplementedError("one page is served alike in every order: it is measured once")
        free_order = workloads.HOST_PATTERNS[order](NUM_PAGES, pages * FRESH_CALLS[pages], SEED)
        if free_order is None:
            raise NotImplementedError(f"a pool of {NUM_PAGES} pages has no {order} order for these requests")
        self.prepare_requests(pages, method, FRESH_CALLS[pages], lambda pool: pools.arrange_host(pool, free_order))

    def time_alloc(self, order, pages, method):
        """Time to allocate `pages` pages.

        `order` is the order in which the pages became free: ascending, shuffled, or as many scattered pages as the
        whole trace asks for, before a run of as many. All pages are free throughout, so a search always succeeds at
        once: this is the best case of every method, and its distance to `floor` is the cost of the call itself.
        """
        self.allocate_all()


class ChurnedAlloc(HostBenchmark):
    """Allocation from a pool that is 90 % full and has been churned."""

    version = "2"
    params = (list(CHURNED_CALLS), METHODS)
    param_names = ("pages", "method")

    def prepare(self, pages, method):
        state = churned()
        self.prepare_requests(pages, method, CHURNED_CALLS[pages], lambda pool: pools.arrange_host(pool, state.free))

    def time_alloc(self, pages, method):
        """Time to allocate `pages` pages.

        3,000 allocations of random sizes, with random frees, have gone before, in FIFO order whatever the method: the
        3,440 free pages lie in some 250 runs, the longest of 157, so that a search for 512 in one run fails. This is
        what a scheduler pays in service; the budgets of the design are for this state.
        """
        self.allocate_all()


class Churn(HostBenchmark):
    """A pool that goes on being churned."""

    version = "2"
    params = (METHODS,)
    param_names = ("method",)

    def prepare(self, method):
        state = churned()
        if method == "floor":
            self.hold(None)
            self.allocate, self.free = floor, None
        else:
            pool = pools.host_pool(NUM_PAGES, PAGE_SIZE)
            self.allocate, self.free = pools.host_method(pool, method), pools.feature(pool, "free")
            pools.arrange_host(pool, state.free)
            self.hold(pool)
            self.rewind()
        pages = torch.arange(PAGE_SIZE)
        self.live = [(torch.from_numpy(ids)[:, None] * PAGE_SIZE + pages).ravel() for ids in state.live]
        self.operations = schedule(len(self.live), state.tail)
        self.results = list(self.live)
        steps = [functools.partial(self.step, *operation) for operation in self.operations]
        self.operations = self.operations[: self.rehearse(steps)]

    def rewind(self):
        super().rewind()
        self.results = list(getattr(self, "live", ()))

    def step(self, need, index):
        """Make one call of the trace."""
        if need:
            self.results.append(self.allocate(need))
        elif self.free is not None:
            self.free(self.results[index])
        return self.results

    def time_churn(self, method):
        """Time of a call, the mean of 64 allocations of 1 to 512 pages (2,457 in all) and the 56 frees that make room.

        The pool is 90 % full before and after. `floor` returns the slots of the allocations and frees nothing.
        """
        allocate, free, results = self.allocate, self.free, self.results
        for need, index in self.operations:
            if need:
                results.append(allocate(need))
            elif free is not None:
                free(results[index])


class Free(HostBenchmark):
    """Giving pages back to a pool that is 90 % full and has been churned."""

    version = "2"
    params = (list(CHURNED_CALLS), ["kvpool", "floor"])
    param_names = ("pages", "implementation")

    def prepare(self, pages, implementation):
        need, calls = pages * PAGE_SIZE, CHURNED_CALLS[pages]
        if implementation == "floor":
            self.hold(None)
            self.free, self.returned = floor, [need] * calls
        else:
            pool = pools.host_pool(NUM_PAGES, PAGE_SIZE)
            pools.arrange_host(pool, churned().free)
            allocate = pools.host_method(pool, "fifo")
            self.returned = [allocate(need) for _ in range(calls)]
            self.free = pools.feature(pool, "free")
            self.hold(pool)
            self.rewind()
        done = self.rehearse([functools.partial(self.free, each) for each in self.returned])
        self.returned = self.returned[:done]

    def time_free(self, pages, implementation):
        """Time to free a result of `pages` pages.

        The slots are what `alloc` returned, whole pages in a scattered order. `floor` is the time to make as many
        slots: a free has to read each of them.
        """
        free = self.free
        self.results = [free(slots) for slots in self.returned]


class Growth(Benchmark):
    """The same calls on pools of different sizes."""

    version = "2"
    params = ([8_192, 65_536, 524_288, 4_194_304], list(GROWTH_CALLS), METHODS)
    param_names = ("num_pages", "pages", "method")
    # Fewer rounds of more samples than elsewhere: each round builds its pool, the largest for a second or more where
    # the allocator is slow.
    rounds = 8
    repeat = (2, 50, 0.015)

    def setup(self, num_pages, pages, method):
        if not hasattr(self, "allocate"):
            self.prepare(num_pages, pages, method)
        self.results = None

    def prepare(self, num_pages, pages, method):
        if method == "floor":
            if num_pages != self.params[0][0]:
                raise NotImplementedError("the floor knows no pool: it is measured once")
            self.free, self.allocate = floor, lambda slots: slots
            self.need = pages
        else:
            pool = pools.host_pool(num_pages, 1)
            self.free = pools.feature(pool, "free")
            allocate = pools.host_method(pool, method)
            pools.arrange_host(pool, workloads.aged_tenth(num_pages, SEED))
            pools.settle(pool)
            self.need, self.allocate = pages, allocate
        pair = functools.partial(self.pair, self.allocate, self.free)
        self.pairs = range(self.rehearse([pair] * GROWTH_CALLS[pages]))

    def pair(self, allocate, free):
        """Allocate and free once; None if the request does not fit."""
        result = allocate(self.need)
        return None if result is None else (result, free(result))

    def time_alloc_free(self, num_pages, pages, method):
        """Time to allocate `pages` pages of one token and to free them again.

        Every page of the pool has been handed out before, and a tenth of them is free, in a shuffled FIFO order and in
        runs of at most 32 pages that are equally dense in each pool: a search for 8 pages succeeds, one for 512 fails.
        A good allocator draws a flat line over `num_pages`.
        """
        allocate, free, need = self.allocate, self.free, self.need
        results = []
        self.results = results
        for _ in self.pairs:
            slots = allocate(need)
            results.append(slots)
            free(slots)


@functools.cache
def churned():
    """Return the pool that 3,000 allocations of random sizes have churned, and its next calls."""
    return workloads.churned_pool(NUM_PAGES, CHURN_STEPS, TAIL_STEPS, SEED)


def schedule(live, operations):
    """Return churn calls as (slots to allocate, 0) and (0, index of the result to free), in order of being allocated.

    Indexes count the `live` allocations first: a result stays where it is when another is freed, so that the trace
    drops nothing.
    """
    places = list(range(live))
    calls = []
    for operation in operations.tolist():
        if operation > 0:
            places.append(live)
            live += 1
            calls.append((operation * PAGE_SIZE, 0))
        else:
            calls.append((0, places[-operation - 1]))
            places[-operation - 1] = places[-1]
            places.pop()
    return calls
