"""Beside the engines: the same work on kvpool and on the allocators and token lists of SGLang, vLLM and LMCache.

Defined only where an engine is installed: `make peers` brings them, in an environment of its own. `peers.POOLS` says
what each allocator is and returns; an engine that is missing reads n/a. Pools have 34,375 pages of 64 tokens. A figure
is the time of one call. Traces are those of `bench_host`, called as `alloc(*request)` by everyone, `floor` too.
"""

import sys
from array import array

import numpy as np

import kvpool as installed_kvpool
from benchmarks import bench_replay, peers, pools, replay, workloads
from benchmarks.bench_host import CHURN_STEPS, CHURNED_CALLS, FRESH_CALLS, NUM_PAGES, PAGE_SIZE, SEED, churned
from benchmarks.common import Benchmark, book_bytes, floor, shown_bytes

ALLOCATORS = list(peers.POOLS)
# kvpool's methods differ in how they allocate only.
BOOKS = [name for name in ALLOCATORS if name not in ("kvpool_contiguous", "kvpool_fewest_runs")]
FLOORS = ["floor", "floor_pages"]
KEPT = 1_000
# Calls in a trace, by the tokens that match.
MATCHES = {100: 400, 1_000: 400, 10_000: 100, 100_000: 10}
APPENDS = 1_000
DECODED = range(1_000, 1_000 + APPENDS)


def beside_peers(benchmark):
    """Drop a benchmark where there is no engine: kvpool's own suite has its other half already."""
    return benchmark if peers.installed() else None


def build(allocator):
    """Build a pool; n/a where its engine is missing."""
    try:
        return peers.POOLS[allocator](NUM_PAGES, PAGE_SIZE)
    except peers.MissingPeerError as error:
        raise NotImplementedError(str(error)) from error


def peer(engine, name):
    """Return a class of an engine; n/a where it is missing."""
    try:
        return peers.peer_class(engine, name)
    except peers.MissingPeerError as error:
        raise NotImplementedError(str(error)) from error


def kvpool(name):
    """Return what the installed kvpool calls so; n/a on a commit that has nothing of the name."""
    return pools.feature(installed_kvpool, name)


def floor_pool(pages):
    """Return what does no work of an allocator: it makes as many slots, or page ids, in the cheapest way."""
    make, size = (np.arange, 1) if pages else (floor, PAGE_SIZE)
    return peers.Pool(
        alloc=make,
        free=lambda result: None,
        request=lambda pages: (pages * size,),
        parts=lambda result, pages: [],
        page_ids=lambda result: result,
        returns="nothing of a pool",
    )


class PeerBenchmark(Benchmark):
    """A pool to which each timed call gives back what it took."""

    # Some engines take a second to build a pool, in every round.
    rounds = 4
    repeat = (2, 50, 0.03)

    def setup(self, *params):
        if not hasattr(self, "pool"):
            self.prepare(*params)
        self.rewind()

    def hold(self, allocator, arrange):
        """Build a pool and bring it to its state."""
        if allocator in FLOORS:
            self.pool, self.rest = floor_pool(allocator == "floor_pages"), None
        else:
            self.pool = build(allocator)
            self.rest = arrange(self.pool)
        self.results = []

    def rewind(self):
        """Give back the results of the call before, the last one first."""
        while self.results:
            self.pool.free(*self.pool.release(self.results.pop()))

    def prepare_requests(self, pages, calls):
        """Prepare a trace of equal requests."""
        self.request = self.pool.request(pages)
        self.calls = range(self.rehearse([self.allocate] * calls))

    def allocate(self):
        """Make one request of the trace; None for a refusal."""
        try:
            result = self.pool.alloc(*self.request)
        except self.pool.refusals:
            return None
        if result is not None:
            self.results.append(result)
        return result

    def allocate_all(self):
        """Make the requests of the trace, keeping the results."""
        alloc, request = self.pool.alloc, self.request
        self.results = [alloc(*request) for _ in self.calls]


def arrange_churned(pool):
    """Bring a pool to the state of the suite's churned pool; return what stays allocated."""
    return peers.arrange(pool, NUM_PAGES, churned().free.tolist())


@beside_peers
class PeerFreshAlloc(PeerBenchmark):
    """Allocation from a pool that is all free, in ascending order."""

    version = "2"
    params = (list(FRESH_CALLS), ALLOCATORS + FLOORS)
    param_names = ("pages", "allocator")

    def prepare(self, pages, allocator):
        self.hold(allocator, lambda pool: None)
        self.prepare_requests(pages, FRESH_CALLS[pages])

    def time_alloc(self, pages, allocator):
        """Time to allocate `pages` pages."""
        self.allocate_all()


@beside_peers
class PeerChurnedAlloc(PeerBenchmark):
    """Allocation from a pool that is 90 % full and has been churned."""

    version = "2"
    params = (list(CHURNED_CALLS), ALLOCATORS + FLOORS)
    param_names = ("pages", "allocator")

    def prepare(self, pages, allocator):
        self.hold(allocator, arrange_churned)
        self.prepare_requests(pages, CHURNED_CALLS[pages])

    def time_alloc(self, pages, allocator):
        """Time to allocate `pages` pages.

        The free pages, 3,440 in some 250 runs, are the same for all at first, and freed between the timed calls.
        `lmcache` wants one run, and there is none of 512 pages: n/a.
        """
        self.allocate_all()


@beside_peers
class PeerFree(PeerBenchmark):
    """Giving pages back to a pool that is 90 % full and has been churned."""

    version = "2"
    params = (list(CHURNED_CALLS), BOOKS + FLOORS)
    param_names = ("pages", "allocator")

    def prepare(self, pages, allocator):
        self.hold(allocator, arrange_churned)
        self.prepare_requests(pages, CHURNED_CALLS[pages])
        self.freed = False

    def rewind(self):
        if self.freed:
            self.allocate_all()
            self.freed = False
        self.returned = [self.pool.release(result) for result in self.results]
        self.free = self.pool.free
        if self.rest is None:
            self.returned, self.free = [self.request] * len(self.results), self.pool.alloc

    def time_free(self, pages, allocator):
        """Time to free a result of `pages` pages.

        A free has to read what it is given: `floor` is the time to make as many slots, `floor_pages` as many page ids.
        """
        free = self.free
        for arguments in self.returned:
            free(*arguments)
        self.freed = True


@beside_peers
class PeerRetention(Benchmark):
    """What small results that are kept keep alive."""

    version = "1"
    params = (ALLOCATORS,)
    param_names = ("allocator",)
    unit = "bytes"

    def setup(self, allocator):
        """Churn a new pool at 90 % full, and keep 1,000 results of one page taken meanwhile, one in three steps."""
        self.pool = build(allocator)
        self.results, self.live = [], []
        steps = 0
        for operation in workloads.churn_operations(NUM_PAGES, CHURN_STEPS, SEED).tolist():
            if operation < 0:
                self.pool.free(*self.pool.release(self.live[-operation - 1]))
                self.live[-operation - 1] = self.live[-1]
                self.live.pop()
                continue
            steps += 1
            self.live.append(self.pool.try_alloc(operation))
            if steps % (CHURN_STEPS // KEPT) == 0:
                self.results.append(self.pool.try_alloc(1))
            if self.live[-1] is None or (self.results and self.results[-1] is None):
                raise NotImplementedError("the pool refuses a request that it has the pages for")

    def track_retained_bytes(self, allocator):
        """Bytes that 1,000 live one-page results keep alive, taken during a churn of 3,000 steps.

        Of slots 512,000 is best (64 of 8 bytes each). Of lists only the list is counted: what is in them is the pool's.
        """
        own = sum(sys.getsizeof(result) for result in self.results if isinstance(result, (list, tuple)))
        return own + shown_bytes(self.results)


@beside_peers
class PeerBooks(Benchmark):
    """What the books of a pool hold, after use."""

    version = "2"
    params = (BOOKS,)
    param_names = ("allocator",)
    unit = "bytes/page"

    def setup(self, allocator):
        # What an engine keeps once, however many pools it has, is paid here.
        self.used_pool(allocator)

    def used_pool(self, allocator):
        """Build a pool, hand out all of it and take it back."""
        pool = build(allocator)
        pool.free(*pool.release(pool.alloc(*pool.request(NUM_PAGES))))
        return pool

    def track_book_bytes_per_page(self, allocator):
        """Bytes a page that an allocator holds in all, when every page has been handed out and is free again."""
        return book_bytes(lambda: self.used_pool(allocator)) / NUM_PAGES


@beside_peers
class PeerPrefixMatch(Benchmark):
    """The common prefix of two token sequences that are equal and share no memory."""

    version = "2"
    params = (list(MATCHES), ["kvpool_int64", "kvpool_int32", "sglang", "floor"])
    param_names = ("tokens", "container")

    def setup(self, tokens, container):
        if hasattr(self, "match"):
            return
        one, other = (list(range(1_000, 1_000 + tokens)) for _ in range(2))
        if container == "floor":
            one, other = (array("q", each).tobytes() for each in (one, other))
            self.match, self.arguments = one.__eq__, (other,)
        elif container == "sglang":
            one, other = (peer("sglang", "RadixKey")(array("q", each)) for each in (one, other))
            self.match, self.arguments = one.match, (other,)
        else:
            dtype = container.removeprefix("kvpool_")
            self.match = kvpool("match_prefix")
            self.arguments = tuple(kvpool("TokenBuffer")(each, dtype) for each in (one, other))
        if self.match(*self.arguments) != (True if container == "floor" else tokens):
            raise NotImplementedError("the match is not what it should be")
        self.calls = range(MATCHES[tokens])
        self.share_out(MATCHES[tokens])

    def time_match(self, tokens, container):
        """Time to find that all tokens match.

        `sglang` is RadixKey.match on array('q'); `floor` compares the bytes of two int64 sequences.
        """
        match, arguments = self.match, self.arguments
        for _ in self.calls:
            match(*arguments)


@beside_peers
class PeerAppend(Benchmark):
    """Decoded tokens, appended one at a time to a request with a prompt of 10,000."""

    version = "2"
    params = (["kvpool_buffer", "kvpool_request", "vllm", "list", "array"],)
    param_names = ("container",)

    def setup(self, container):
        prompt = list(range(1_000, 11_000))
        if container == "vllm":
            # A request says when it ends by its own parameters; nothing else of them matters here.
            sampling = peer("vllm", "SamplingParams")(max_tokens=APPENDS)
            self.append = peer("vllm", "Request")("0", prompt, sampling, None).append_output_token_ids
        else:
            make = {
                "kvpool_buffer": lambda: kvpool("TokenBuffer")(prompt),
                "kvpool_request": lambda: kvpool("RequestTokens")(prompt),
                "list": lambda: prompt,
                "array": lambda: array("q", prompt),
            }
            self.append = make[container]().append
        self.share_out(APPENDS)

    def time_append(self, container):
        """Time to append a token.

        `vllm` is the request's own method, which keeps two lists; `list` and `array` are what engines build on.
        """
        append = self.append
        for token in DECODED:
            append(token)


class PeerReplay(bench_replay.ReplayBenchmark):
    """The replay of `bench_replay` against every allocator."""

    def setup(self, trace, allocator):
        try:
            super().setup(trace, allocator)
        except peers.MissingPeerError as error:
            raise NotImplementedError(str(error)) from error


@beside_peers
class PeerReplayTime(PeerReplay):
    """The time that an engine's requests spend in the allocator."""

    version = "2"
    params = (["conversation"], replay.ALLOCATORS)
    param_names = ("trace", "allocator")

    def time_allocator(self, trace, allocator):
        """Time in the allocator for a request, the mean of 1,000: an allocation of 166 pages and 17 frees of 8."""
        self.run()


@beside_peers
class PeerReplayRuns(PeerReplay):
    """How scattered the allocations of an engine's requests are."""

    version = "1"
    params = (list(bench_replay.REQUESTS), replay.ALLOCATORS)
    param_names = ("trace", "allocator")
    unit = "runs"

    def track_runs_per_alloc(self, trace, allocator):
        """Runs (transfer descriptors) per allocation, on average: 1 is best."""
        self.run()
        return float(np.mean(self.outcome.runs))
