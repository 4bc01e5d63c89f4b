"""The device tier of one rank: how long PagedAllocator takes to serve whole pages and batches of requests.

The pool has 34,375 pages of 64 tokens on the CPU, three quarters of them free, in shuffled order; where they are
sorted, a quarter is released. Requests of a batch are on average 1,000 tokens long, unless said otherwise, and
arguments are int64 tensors. `floor` is the cheapest way to return as many slots, or page ids, from no pool at all. A
figure is the time of one call, the mean of a trace of them: read `floor` beside it.
"""

import functools

import numpy as np
import torch

from benchmarks import pools, workloads
from benchmarks.common import Benchmark, book_bytes, floor

NUM_PAGES = 34_375
PAGE_SIZE = 64
SEED = 0
MOST_TOKENS = 2_000
ORDERS = list(pools.PAGE_ORDERS)
# Calls in a trace, by the pages of each.
CALLS = {1: 200, 8: 160, 64: 40, 512: 5}
BATCHES = (1, 128, 256)
STEPS = 64
# Requests and tokens of a prefill batch, and calls in a trace.
PREFILLS = {"1x10000": (1, 10_000, 40), "32x10000": (32, 10_000, 2), "128x500": (128, 500, 8)}
ENDED = 64
FREES = ["slots", "partial", "rows", "pages", "group"]
READS = ["available_size", "free_pages", "snapshot", "restore", "clear"]
# Times each of them is called in a trace.
READ_CALLS = {"available_size": 2_000, "free_pages": 20, "snapshot": 10, "restore": 5, "clear": 20}


class PagedBenchmark(Benchmark):
    """A pool that every timed call finds in one state."""

    device = "cpu"
    pool = None

    def setup(self, *params):
        if not hasattr(self, "trace"):
            self.prepare(*params)
        self.rewind()

    def rewind(self):
        """Drop the results of the call before, and bring the pool back."""
        self.results = None
        if self.pool is not None:
            self.pool.restore(self.snapshot)

    def build(self, order):
        """Build a pool and bring it to its state."""
        self.pool = pools.paged_pool(NUM_PAGES, PAGE_SIZE, order, self.device)
        pools.arrange_paged(self.pool, workloads.shuffled(NUM_PAGES, SEED))
        self.snapshot = self.pool.snapshot()

    def hold(self, trace, calls_each=1):
        """Keep what is to be timed, so many calls in each of the trace, and the state that it starts from."""
        if self.pool is not None:
            self.snapshot = self.pool.snapshot()
        self.trace = trace[: self.rehearse(trace, calls_each)]
        self.rewind()

    def call_all(self):
        """Make the calls of the trace, keeping the results."""
        self.results = [each() for each in self.trace]


class PagedAlloc(PagedBenchmark):
    """Allocation in whole pages."""

    version = "2"
    params = (list(CALLS), [*ORDERS, "pages", "floor", "floor_pages"])
    param_names = ("pages", "order")

    def prepare(self, pages, order):
        if order == "floor":
            call = functools.partial(floor, pages * PAGE_SIZE)
        elif order == "floor_pages":
            call = functools.partial(np.arange, pages)
        elif order == "pages":
            self.build("fifo")
            call = functools.partial(self.pool.alloc_pages, pages)
        else:
            self.build(order)
            call = functools.partial(self.pool.alloc, pages * PAGE_SIZE)
        self.hold([call] * CALLS[pages])

    def time_alloc(self, pages, order):
        """Time of `alloc` for `pages` pages.

        `pages` is `alloc_pages` in "fifo" order, which makes no slots, and `floor_pages` np.arange beside it.
        """
        self.call_all()


class PagedDecode(PagedBenchmark):
    """One slot for each request of a batch."""

    version = "2"
    params = (list(BATCHES), [*ORDERS, "lists", "floor"])
    param_names = ("batch", "order")

    def prepare(self, batch, order):
        if order == "floor":
            self.hold([functools.partial(floor, batch)] * STEPS)
            return
        self.build("fifo" if order == "lists" else order)
        slots, lengths = prefill(self.pool, workloads.request_lengths(batch, MOST_TOKENS, SEED))
        last, before, trace = slots[lengths.cumsum(0) - 1], self.pool.snapshot(), []
        for step in range(1, STEPS + 1):
            arguments = lengths + step, last
            if order == "lists":
                arguments = [each.tolist() for each in arguments]
            trace.append(functools.partial(self.pool.alloc_decode, *arguments))
            last = trace[-1]()
        self.pool.restore(before)
        self.hold(trace)

    def time_decode(self, batch, order):
        """Time of a step of `alloc_decode`, the mean of 64, in which each request comes to a new page once.

        `lists` is "fifo" order with lists for arguments.
        """
        self.call_all()


class PagedExtend(PagedBenchmark):
    """The slots of a prefill batch."""

    version = "2"
    params = (list(PREFILLS), [*ORDERS, "floor"])
    param_names = ("batch", "order")

    def prepare(self, batch, order):
        requests, tokens, calls = PREFILLS[batch]
        if order == "floor":
            call = functools.partial(floor, requests * tokens)
        else:
            self.build(order)
            nothing = torch.zeros(requests, dtype=torch.int64)
            call = functools.partial(self.pool.alloc_extend, nothing, nothing + tokens, nothing - 1)
        self.hold([call] * calls)

    def time_extend(self, batch, order):
        """Time of `alloc_extend` for `batch` requests x tokens."""
        self.call_all()


class PagedFree(PagedBenchmark):
    """Requests that end."""

    version = "2"
    params = (FREES, [*ORDERS, "floor"])
    param_names = ("way", "order")

    def prepare(self, way, order):
        lengths = workloads.request_lengths(ENDED, MOST_TOKENS, SEED)
        if order == "floor":
            if way == "group":
                raise NotImplementedError("a group makes no more slots than its frees, whose floor is measured")
            sizes = [int(lengths.sum())] if way == "rows" else lengths.tolist()
            self.hold_ends([functools.partial(np.arange if way == "pages" else floor, size) for size in sizes])
            return
        self.build(order)
        slots, _ = prefill(self.pool, lengths)
        self.hold_ends(self.calls(way, lengths, slots.split(lengths.tolist())))

    def hold_ends(self, trace):
        """Keep what ends all requests, in one call or in one for each."""
        self.hold(trace, ENDED // len(trace))

    def calls(self, way, lengths, requests):
        """Return the calls that free requests in some way."""
        pool = self.pool
        if way == "rows":
            table = torch.zeros(len(requests), MOST_TOKENS, dtype=torch.int64)
            for row, request in zip(table, requests, strict=True):
                row[: len(request)] = request
            return [functools.partial(pool.free_rows, table, torch.from_numpy(lengths))]
        pages = [request[::PAGE_SIZE] // PAGE_SIZE for request in requests]
        if way == "pages":
            return [functools.partial(pool.return_pages, each) for each in pages]
        if way == "slots":
            whole = [(each[:, None] * PAGE_SIZE + torch.arange(PAGE_SIZE)).ravel() for each in pages]
            return [functools.partial(pool.free, each) for each in whole]
        each = [functools.partial(pool.free, request, partial=True) for request in requests]
        return [functools.partial(self.in_a_group, each)] if way == "group" else each

    def in_a_group(self, calls):
        """Make some calls in a group of frees; return how many."""
        self.pool.free_group_begin()
        for each in calls:
            each()
        self.pool.free_group_end()
        return len(calls)

    def time_free(self, way, order):
        """Time to free a request, the mean of 64 that end one after the other.

        `slots`: whole pages. `partial`: the slots that they have used. `rows`: one `free_rows` of a table of all.
        `pages`: `return_pages`. `group`: as `partial`, between the begin and the end of a group of all.
        `floor` is the time to make as many slots: a free has to read each of them.
        """
        self.call_all()


class PagedReads(PagedBenchmark):
    """What a pool is asked that is not an allocation, and what sets its whole state."""

    version = "2"
    params = (READS, ORDERS)
    param_names = ("call", "order")

    def prepare(self, call, order):
        self.build(order)
        method = self.free_pages if call == "free_pages" else getattr(self.pool, call)
        if call == "restore":
            method = functools.partial(method, self.snapshot)
        # What returns nothing is no refusal.
        self.hold([functools.partial(self.made, method)] * READ_CALLS[call])

    def free_pages(self):
        """Return the free pages."""
        return self.pool.free_pages

    def made(self, method):
        """Make a call; return its result, or that it was made."""
        result = method()
        return True if result is None else result

    def time_calls(self, call, order):
        """Time of a call."""
        self.call_all()


class PagedBooks(Benchmark):
    """What the books of a pool hold, after use."""

    version = "1"
    params = (ORDERS,)
    param_names = ("order",)
    unit = "bytes/page"

    def setup(self, order):
        self.build = functools.partial(used_pool, order)
        # What a process keeps once, however many pools it has, is paid here; and a kvpool without it reads n/a.
        self.build()

    def track_book_bytes_per_page(self, order):
        """Bytes a page that an allocator holds in all, its results not counted."""
        return book_bytes(self.build) / NUM_PAGES


class PagedCuda(PagedBenchmark):
    """A decode step and the end of a request with slots on a CUDA device; n/a where there is none."""

    version = "1"
    device = "cuda"
    params = (list(BATCHES), ["deferred", "waiting"])
    param_names = ("batch", "frees")

    def prepare(self, batch, frees):
        if not torch.cuda.is_available():
            raise NotImplementedError("there is no CUDA device")
        self.build("lifo")
        lengths = torch.from_numpy(workloads.request_lengths(batch, MOST_TOKENS, SEED))
        slots, _ = prefill(self.pool, lengths.numpy())
        self.ended, self.lengths = slots[: int(lengths[0])], lengths + 1
        self.last = slots[lengths.cumsum(0).to("cuda") - 1]
        self.options = {"partial": True, "deferred": frees == "deferred"}
        torch.cuda.synchronize()
        self.hold([self.step] * 1)

    def rewind(self):
        super().rewind()
        torch.cuda.synchronize()

    def step(self):
        """Decode, and end a request."""
        slots = self.pool.alloc_decode(self.lengths, self.last)
        self.pool.free(self.ended, **self.options)
        return slots

    def time_step(self, batch, frees):
        """Time of `alloc_decode` with the last slots on the device, and a `free` of one request's slots."""
        self.call_all()


def prefill(pool, lengths):
    """Have a pool serve new requests; return their slots and their lengths, as tensors."""
    after = torch.from_numpy(lengths)
    nothing = torch.zeros_like(after)
    slots = pool.alloc_extend(nothing, after, nothing - 1)
    if slots is None:
        raise NotImplementedError("the requests do not fit")
    return slots, after


def used_pool(order):
    """Return a pool after 64 requests that have come and gone."""
    pool = pools.paged_pool(NUM_PAGES, PAGE_SIZE, order)
    pools.arrange_paged(pool, workloads.shuffled(NUM_PAGES, SEED))
    for length in workloads.request_lengths(ENDED, MOST_TOKENS, SEED).tolist():
        pool.free(pool.alloc_extend([0], [length], [-1]), partial=True)
    return pool
