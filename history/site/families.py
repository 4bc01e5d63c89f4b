"""What the front page shows: for each family of benchmarks, the figures that stand for it."""

import re
from typing import NamedTuple

from history.records import Case, is_control

# What rows call the cheapest way to the same result.
FLOOR = "the floor"


class Row(NamedTuple):
    """One figure of a family, and the one beside which it is read."""

    label: str
    case: Case
    beside: Case | None = None
    beside_name: str = ""


class Family(NamedTuple):
    """Benchmarks of one kind; the rows are what is shown, all that match count for the steps."""

    title: str
    about: str
    pattern: str
    rows: tuple[Row, ...]

    def holds(self, case: Case) -> bool:
        """Tell whether the case belongs to the family and runs code of kvpool."""
        return re.match(self.pattern, case.benchmark) is not None and not is_control(case)


def _row(label: str, benchmark: str, *parameters: str, beside: str = "") -> Row:
    """Return the row of a case; `beside` is another value of its last parameter, one of the references."""
    if not beside:
        return Row(label, Case(benchmark, parameters))
    other = Case(benchmark, (*parameters[:-1], repr(beside)))
    return Row(label, Case(benchmark, parameters), other, FLOOR if beside == "floor" else beside)


_CHURNED = "bench_host.ChurnedAlloc.time_alloc"
_BOOKS = "bench_memory.Books.track_book_bytes_per_page"
_LONG = "'2x10000'"

FAMILIES = (
    Family(
        "Host allocation",
        "HostAllocator with 34,375 pages of 64 tokens, 90 % full and churned; 64 pages each",
        r"bench_(host|replay\.ReplayTime)\.",
        (
            _row("Allocate, contiguous preferred", _CHURNED, "64", "'contiguous'", beside="floor"),
            _row("Allocate in FIFO order", _CHURNED, "64", "'fifo'", beside="floor"),
            _row("Allocate in the fewest runs", _CHURNED, "64", "'fewest_runs'", beside="floor"),
            _row("Free", "bench_host.Free.time_free", "64", "'kvpool'", beside="floor"),
        ),
    ),
    Family(
        "Lanes",
        "OwnerLaneAllocator with 8 lanes of 32,768 pages, a random half of them free",
        r"bench_lanes\.",
        (
            _row(
                "Allocate 512 pages, round-robin, contiguous",
                "bench_lanes.LaneAlloc.time_alloc_pages",
                "'round_robin'",
                "512",
                "'contiguous'",
                beside="floor",
            ),
            _row("Free 512 pages", "bench_lanes.LaneFree.time_free", "512", "'kvpool'", beside="floor"),
            _row("Statistics for 512 owners", "bench_lanes.LaneStats.time_stats", "512"),
        ),
    ),
    Family(
        "Prefix match",
        "A batch of two requests against sequences that share no memory",
        r"bench_tokens\.(PrefixMatch|CacheFinishedReq)\.",
        (
            _row("10,000 tokens", "bench_tokens.PrefixMatch.time_batch", _LONG, "'kvpool'", beside="floor"),
            _row("100,000 tokens", "bench_tokens.PrefixMatch.time_batch", "'2x100000'", "'kvpool'", beside="floor"),
            _row("When a request ends", "bench_tokens.CacheFinishedReq.time_batch", _LONG, "'kvpool'", beside="list"),
        ),
    ),
    Family(
        "Lifecycle stages",
        "A batch of two requests with prompts of 10,000 tokens, 1,000 decoded for each",
        r"bench_tokens\.(Ingest|Prefill\w+|BatchTorchTensor|DecodeAppend|FinishConcat)\.",
        (
            _row("Ingest the prompt", "bench_tokens.Ingest.time_batch", _LONG, "'kvpool'", beside="array"),
            _row("Build the prefill", "bench_tokens.PrefillConcat.time_batch", _LONG, "'kvpool'", beside="list"),
            _row("Send it as a tensor", "bench_tokens.BatchTorchTensor.time_batch", _LONG, "'kvpool'", beside="floor"),
            _row(
                "Append at each decode step", "bench_tokens.DecodeAppend.time_batch", _LONG, "'kvpool'", beside="list"
            ),
        ),
    ),
    Family(
        "Memory",
        "What books, results and tokens hold, and into how many transfers an allocation falls",
        r"bench_(memory\.|token_memory\.|replay\.ReplayRuns\.)",
        (
            _row("Books of the host pool, a page", _BOOKS, "'host'"),
            _row("Books of the lanes, a page", _BOOKS, "'lanes'"),
            _row("1,000 live one-page results", "bench_memory.HostRetention.track_retained_bytes", "'contiguous'"),
            _row("Runs an allocation", "bench_memory.HostRuns.track_runs_per_alloc", "'fewest_runs'"),
            _row(
                "Tokens of a request",
                "bench_token_memory.TokenBytes.track_bytes_per_token",
                "'at_once'",
                "'kvpool'",
                beside="list",
            ),
        ),
    ),
    Family(
        "Import and size",
        "What importing costs a process, and what calls cost as pools, lanes and threads become more",
        r"bench_(import|size)\.",
        (
            _row("Import kvpool, torch imported before", "bench_import.Import.timeraw_import"),
            _row("Pool of 16,777,216 pages", "bench_size.HugePool.time_alloc_free", "16777216", "512", "'contiguous'"),
            _row("Pool that 8 threads share", "bench_size.SharedPool.time_alloc_free", "8"),
            _row("64 lanes", "bench_size.Lanes.time_alloc_free", "64"),
        ),
    ),
)
