"""Exact counts: what allocations look like, what they keep alive, what the books hold. No time is taken here.

All of them are lower-is-better and repeat exactly, so that any increase is a regression. The host pool has 34,375 pages
of 64 tokens; `method` is as in `bench_host`.
"""

import gc
import importlib.util
import tracemalloc

import numpy as np

from benchmarks import pools, workloads
from benchmarks.bench_host import CHURN_STEPS, NUM_PAGES, PAGE_SIZE, SEED
from benchmarks.bench_lanes import CP_SIZE, LANE_PAGES
from benchmarks.common import AtenCounter, Benchmark, book_bytes, floor, retained_bytes
from benchmarks.counted_calls import CASES, CONTROLS
from benchmarks.counted_process import turn

METHODS = list(pools.HOST_METHODS)
BIG_POOL = 4_194_304
# The types of which it is counted what their calls leave behind, and calls in a group.
KINDS = ["HostAllocator", "OwnerLaneAllocator", "PagedAllocator", "PageCounts", "TokenBuffer", "RequestTokens"]
KINDS += ["TokenTable", "BatchStager"]
GROUP = 32
# Calls after which Python keeps as many lists, dicts and floats as it ever does, to use them again.
WARM = 112


class HostRuns(Benchmark):
    """How scattered the allocations of a pool are that has always been used by one method."""

    version = "1"
    params = (METHODS,)
    param_names = ("method",)

    def setup(self, method):
        """Churn a new pool: 3,000 allocations of 1 to 512 pages at 90 % full; the last 1,000 count."""
        results, _ = churn(pools.host_pool(NUM_PAGES, PAGE_SIZE), method, PAGE_SIZE)
        self.runs = [run_count(slots.numpy(), PAGE_SIZE) for slots in results[-1_000:]]

    def track_runs_per_alloc(self, method):
        """Runs (transfer descriptors) per allocation, on average: 1 is best."""
        return float(np.mean(self.runs))

    def track_scattered_share(self, method):
        """Share of the allocations that are not one run, 0 to 1: 0 is best."""
        return float(np.mean(np.array(self.runs) > 1))

    track_runs_per_alloc.unit = "runs"
    track_scattered_share.unit = "share"


class Retention(Benchmark):
    """What results that are kept keep alive."""

    unit = "bytes"
    kept = 1_000

    def retained(self, allocate, request):
        """Return the bytes that as many live results keep alive."""
        found = retained_bytes(lambda: [allocate(request) for _ in range(self.kept)])
        if allocate(request) is None:
            raise NotImplementedError("the request does not fit")
        return found


class HostRetention(Retention):
    """What results of the host tier that are kept keep alive."""

    version = "2"
    params = ([*METHODS, "floor"],)
    param_names = ("method",)

    def setup(self, method):
        if method == "floor":
            self.allocate = floor
            return
        pool = pools.host_pool(NUM_PAGES, PAGE_SIZE)
        churn(pool, method, PAGE_SIZE)
        self.allocate = pools.host_method(pool, method)

    def track_retained_bytes(self, method):
        """Bytes that 1,000 live one-page results keep alive after churn.

        Of each, 512 are its 64 slots, 80 Python's tensor, and the rest is what owns the memory: 112 of numpy's in the
        cheapest result, `floor`.
        """
        return self.retained(self.allocate, PAGE_SIZE)


class LaneRetention(Retention):
    """What results of the device tier that are kept keep alive."""

    version = "1"
    params = (list(pools.SELECTIONS),)
    param_names = ("selection",)

    def setup(self, selection):
        self.owners = workloads.round_robin(CP_SIZE, CP_SIZE)
        pool = pools.lane_pool(LANE_PAGES, PAGE_SIZE, CP_SIZE, selection)
        pools.arrange_lanes(pool, "random", self.owners, SEED)
        self.allocate = pools.feature(pool, "alloc_pages_with_owners")

    def track_retained_bytes(self, selection):
        """Bytes that 1,000 live results of 8 pages, one of each rank, keep alive: 4,096 of each are slots."""
        return self.retained(self.allocate, self.owners)


class PagedRetention(Retention):
    """What results of the device tier of one rank that are kept keep alive."""

    version = "1"
    params = (list(pools.PAGE_ORDERS),)
    param_names = ("order",)

    def setup(self, order):
        pool = pools.paged_pool(NUM_PAGES, PAGE_SIZE, order)
        pools.arrange_paged(pool, workloads.shuffled(NUM_PAGES, SEED))
        self.allocate = pool.alloc

    def track_retained_bytes(self, order):
        """Bytes that 1,000 live one-page results keep alive, as `HostRetention` counts them."""
        return self.retained(self.allocate, PAGE_SIZE)


class LeftBehind(Benchmark):
    """What calls leave behind whose results are dropped, and whose pools are brought back."""

    version = "1"
    params = ([*KINDS, "functions"],)
    param_names = ("kind",)
    unit = "bytes/call"
    timeout = 300

    def setup(self, kind):
        pools.need_indexed("a straightforward allocator takes minutes for this")
        if importlib.util.find_spec("kvpool._kernels"):
            raise NotImplementedError("numba keeps memory of its own now and then")
        found = [prepare for name, prepare in CASES.items() if kind_of(name) == kind]
        self.cases = [prepare for prepare in found if is_there(prepare)]
        if not self.cases:
            raise NotImplementedError(f"this kvpool has no {kind}")

    def track_bytes_per_call(self, kind):
        """Bytes that one call of each of a type's counted cases leaves behind, of all cases together: 0 is best."""
        return float(sum(left_behind(self.cases)))


class Books(Benchmark):
    """What the books of a pool hold, after use."""

    version = "2"
    params = (["host", "lanes"],)
    param_names = ("allocator",)
    unit = "bytes/page"

    def setup(self, allocator):
        self.build, self.num_pages = {
            "host": (churned_host, NUM_PAGES),
            "lanes": (used_lanes, LANE_PAGES * CP_SIZE),
        }[allocator]
        # What a process keeps once, however many pools it has, is paid here; and a kvpool without it reads n/a.
        self.build()

    def track_book_bytes_per_page(self, allocator):
        """Bytes a page that an allocator holds in all, its results not counted.

        `host`: after 3,000 allocations in FIFO order at 90 % full. `lanes`: 8 lanes of 32,768 pages, a seeded half of
        each free, after 20 allocations of 64 pages and their frees.
        """
        return book_bytes(self.build) / self.num_pages


class HostAten(Benchmark):
    """What an allocation asks of torch's dispatcher, host tier."""

    version = "1"
    params = (METHODS,)
    param_names = ("method",)
    unit = "operations"

    def setup(self, method):
        pool = pools.host_pool(NUM_PAGES, PAGE_SIZE)
        pools.arrange_host(pool, workloads.random_fragmented(NUM_PAGES, 1, SEED))
        self.allocate = pools.host_method(pool, method)

    def track_aten_ops(self, method):
        """ATen operations dispatched by one allocation of 64 pages from a pool in shuffled order: 1 is the floor."""
        return dispatched(self.allocate, 64 * PAGE_SIZE)


class LaneAten(Benchmark):
    """What an allocation asks of torch's dispatcher, device tier."""

    version = "1"
    params = (list(pools.SELECTIONS),)
    param_names = ("selection",)
    unit = "operations"

    def setup(self, selection):
        pool = pools.lane_pool(1_024, PAGE_SIZE, CP_SIZE, selection)
        self.allocate = pools.feature(pool, "alloc_pages_with_owners")

    def track_aten_ops(self, selection):
        """ATen operations dispatched by one allocation of 64 pages round-robin, on the CPU."""
        return dispatched(self.allocate, workloads.round_robin(64, CP_SIZE))


class PeakMemory(Benchmark):
    """The memory of a process that holds a large pool."""

    version = "1"

    def setup(self):
        # Here rather than in the benchmark, so that a kvpool without it reads n/a.
        pools.host_pool(1, 1)

    def peakmem_host_pool(self):
        """Peak memory of a process that builds a pool of 4,194,304 pages; the imports are most of it."""
        pools.host_pool(BIG_POOL, PAGE_SIZE)


def churn(pool, method, page_size):
    """Churn a pool with a method; return all that was allocated, in order, and what is still live."""
    allocate, free = pools.host_method(pool, method), pools.feature(pool, "free")
    results, live = [], []
    for operation in workloads.churn_operations(pool.num_pages, CHURN_STEPS, SEED).tolist():
        if operation > 0:
            slots = allocate(operation * page_size)
            if slots is None:
                raise NotImplementedError("the request does not fit")
            results.append(slots)
            live.append(slots)
        else:
            free(live[-operation - 1])
            live[-operation - 1] = live[-1]
            live.pop()
    return results, live


def kind_of(case):
    """Return the type whose call a counted case is; "functions" of those of none, None of what is not kvpool's."""
    name = case.split()[0].split(".")[0]
    if name in CONTROLS:
        return None
    return name if name in KINDS else "functions"


def is_there(prepare):
    """Tell whether the installed kvpool has what a counted case calls."""
    try:
        prepare()
    except NotImplementedError:
        return False
    return True


def left_behind(cases):
    """Return the bytes of Python and numpy that counted cases leave behind a call, of each.

    It is the least of three groups of calls, as what is kept once, or once in a while, is no growth.
    """
    gc.collect()
    gc.disable()
    try:
        # Python keeps so many tuples of a size to use them again: more than there are calls.
        for size in range(1, 20):
            [tuple([size] * size) for _ in range(2_000)]
        return [least_growth(prepare) / GROUP for prepare in cases]
    finally:
        gc.enable()


def least_growth(prepare):
    """Return the bytes that a group of calls leaves behind at least; 0, unless three more do so twice."""
    least = max(0, min(np.diff(traced(prepare)).tolist()))
    if least and any(held[-1] <= held[0] for held in (traced(prepare) for _ in range(2))):
        return 0
    return least


def traced(prepare):
    """Return how many bytes are held after each of four groups of calls of a counted case."""
    call, held = prepare(), np.zeros(4, np.int64)
    for _ in range(WARM):
        call = turn(prepare, call)
    tracemalloc.start()
    try:
        for group in range(len(held)):
            for _ in range(GROUP):
                call = turn(prepare, call)
            held[group] = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    return held


def run_count(slots, page_size):
    """Return in how many runs of pages an allocation lies, in its own order."""
    return 1 + int(np.count_nonzero(np.diff(slots[::page_size]) != page_size))


def churned_host():
    """Build a host pool, churn it in FIFO order and return it alone."""
    pool = pools.host_pool(NUM_PAGES, PAGE_SIZE)
    churn(pool, "fifo", PAGE_SIZE)
    return pool


def used_lanes():
    """Build a device pool with half of its pages free, use it and return it alone."""
    pool = pools.lane_pool(LANE_PAGES, PAGE_SIZE, CP_SIZE, "contiguous")
    owners = workloads.round_robin(64, CP_SIZE)
    pools.arrange_lanes(pool, "random", owners, SEED)
    allocate, free = pools.feature(pool, "alloc_pages_with_owners"), pools.feature(pool, "free")
    for _ in range(20):
        free(allocate(owners))
    return pool


def dispatched(call, *arguments):
    """Return how many ATen operations a call dispatches."""
    with AtenCounter() as counter:
        call(*arguments)
    return counter.operations
