"""The host tier by page ids: calls that hand out pages, transfer descriptors and reference counts, without slots.

The pool is the churned one of `bench_host`: 34,375 pages, 90 % full, its 3,440 free pages in some 250 runs. `floor` is
the cheapest way to return as many page ids from no pool at all, `np.arange`.
"""

import functools

import numpy as np

from benchmarks import bench_host, pools
from benchmarks.bench_host import CHURNED_CALLS, HostBenchmark, churned

CALLS = [
    "alloc_pages",
    "one_run",
    "alloc_runs",
    "alloc_runs_many",
    "return_pages",
    "return_front",
    "take_pages",
    "floor",
]
READS = ["free_page_ids", "free_page_ids_64", "largest_run", "stats", "snapshot", "resize"]
# Times each of them is called in a trace.
READ_CALLS = {
    "free_page_ids": 20,
    "free_page_ids_64": 100,
    "largest_run": 1_000,
    "stats": 100,
    "snapshot": 20,
    "resize": 1,
}
COUNT_PAGES = (1, 8, 64, 512)
COUNT_CALLS = {1: 1_000, 8: 1_000, 64: 400, 512: 80}


class PageCalls(HostBenchmark):
    """Handing out page ids, and taking them back."""

    version = "2"
    params = (list(CHURNED_CALLS), CALLS)
    param_names = ("pages", "call")

    def prepare(self, pages, call):
        calls = CHURNED_CALLS[pages]
        if call == "floor":
            self.hold(None)
            self.trace = [functools.partial(np.arange, pages)] * calls
        else:
            pool = pools.host_pool(bench_host.NUM_PAGES, bench_host.PAGE_SIZE)
            pools.arrange_host(pool, churned().free)
            self.trace = self.calls_of(pool, pages, call, calls)
            self.hold(pool)
            self.rewind()
        self.trace = self.trace[: self.rehearse(self.trace, calls // len(self.trace))]
        self.rewind()

    def calls_of(self, pool, pages, call, calls):
        """Return the calls of a trace; the pool is brought to the state that they start from."""
        match call:
            case "alloc_pages":
                return [functools.partial(pools.feature(pool, "alloc_pages"), pages)] * calls
            case "one_run":
                pools.feature(pool, "take_pages")
                return [functools.partial(pools.feature(pool, "alloc_pages"), pages, "one_run")] * calls
            case "alloc_runs":
                return [functools.partial(pools.feature(pool, "alloc_runs"), pages)] * calls
            case "alloc_runs_many":
                return [functools.partial(pools.feature(pool, "alloc_runs_many"), [pages] * calls)]
            case "take_pages":
                take = pools.feature(pool, "take_pages")
                scattered = np.random.Generator(np.random.PCG64(bench_host.SEED)).permutation(churned().free)
                return [functools.partial(take, ids) for ids in scattered[: calls * pages].reshape(calls, pages)]
        options = {"front": True} if call == "return_front" else {}
        if options:
            pools.feature(pool, "take_pages")
        taken = [pools.feature(pool, "alloc_pages")(pages) for _ in range(calls)]
        return [functools.partial(pools.feature(pool, "return_pages"), ids, **options) for ids in taken]

    def time_calls(self, pages, call):
        """Time of a call for `pages` pages.

        `one_run` is alloc_pages by that policy, `return_front` return_pages to the front of the order, and
        `alloc_runs_many` a request of 200 / 160 / 40 / 5 that one call serves. `take_pages` takes from anywhere in the
        order.
        """
        self.results = [each() for each in self.trace]


class PoolReads(HostBenchmark):
    """What a pool is asked that is not an allocation: its state, its figures, another size."""

    version = "2"
    params = (READS,)
    param_names = ("call",)

    def prepare(self, call):
        pool = pools.host_pool(bench_host.NUM_PAGES, bench_host.PAGE_SIZE)
        pools.arrange_host(pool, churned().free)
        name = call.removesuffix("_64")
        method = pools.feature(pool, name)
        if call == "free_page_ids_64":
            pools.feature(pool, "take_pages")
            method = functools.partial(method, limit=64)
        elif call == "resize":
            method = functools.partial(self.grow_and_shrink, method)
        self.trace = [method] * READ_CALLS[call]
        self.hold(pool)
        self.rewind()
        self.trace = self.trace[: self.rehearse(self.trace)]

    @staticmethod
    def grow_and_shrink(resize):
        """Give a pool 512 pages more, and take them away; return how many it has."""
        resize(bench_host.NUM_PAGES + 512)
        resize(bench_host.NUM_PAGES)
        return bench_host.NUM_PAGES

    def time_calls(self, call):
        """Time of a call; of `resize`, of two, which make the pool grow by 512 pages and shrink again.

        `free_page_ids` copies the whole order of 3,440 pages, `free_page_ids_64` the first 64.
        """
        self.results = [each() for each in self.trace]


class CountCalls(bench_host.Benchmark):
    """Reference counts of 34,375 pages."""

    version = "2"
    params = (list(COUNT_PAGES), ["kvpool", "floor"])
    param_names = ("pages", "implementation")

    def setup(self, pages, implementation):
        if hasattr(self, "trace"):
            return
        ids = churned().free[:pages]
        calls = COUNT_CALLS[pages]
        if implementation == "floor":
            self.trace = [functools.partial(np.arange, pages)] * calls
        else:
            counts = pools.page_counts(bench_host.NUM_PAGES)
            self.trace = [functools.partial(counts.retain, ids), functools.partial(counts.release, ids)] * (calls // 2)
        self.trace = self.trace[: self.rehearse(self.trace)]

    def time_retain_release(self, pages, implementation):
        """Time of a call for `pages` pages, retain and release in turn."""
        for each in self.trace:
            each()
