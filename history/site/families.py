"""What the front page shows: for each family of benchmarks, the figures that stand for it."""

import re
from typing import NamedTuple

from history.records import Case


class Row(NamedTuple):
    """One figure of a family, and the floor beside which it is read."""

    label: str
    case: Case
    floor: Case | None = None


class Family(NamedTuple):
    """Benchmarks of one kind; the rows are what is shown, all that match count for the steps."""

    title: str
    about: str
    pattern: str
    rows: tuple[Row, ...]

    def holds(self, case: Case) -> bool:
        """Tell whether the case belongs to the family: all do but the floors, which no commit changes."""
        return re.match(self.pattern, case.benchmark) is not None and "'floor'" not in case.parameters


def _beside_floor(label: str, benchmark: str, *parameters: str) -> Row:
    """Return the row of a case whose last parameter is what allocates; ``floor`` is another value of it."""
    return Row(label, Case(benchmark, parameters), Case(benchmark, (*parameters[:-1], "'floor'")))


_CHURNED = "bench_host.ChurnedAlloc.time_alloc"
_LANES = ("'round_robin'", "64", "'contiguous'")

FAMILIES = (
    Family(
        "Host allocation",
        "HostAllocator with 34,375 pages of 64 tokens, 90 % full and churned; 40 requests of 64 pages",
        r"bench_host\.",
        (
            _beside_floor("Allocate, contiguous preferred", _CHURNED, "64", "'contiguous'"),
            _beside_floor("Allocate in FIFO order", _CHURNED, "64", "'fifo'"),
            _beside_floor("Allocate in the fewest runs", _CHURNED, "64", "'fewest_runs'"),
            _beside_floor("Free", "bench_host.Free.time_free", "64", "'kvpool'"),
        ),
    ),
    Family(
        "Lanes",
        "OwnerLaneAllocator with 8 lanes of 32,768 pages, a random half of them free; owners round-robin",
        r"bench_lanes\.",
        (
            _beside_floor("Allocate 64 pages, contiguous", "bench_lanes.LaneAlloc.time_alloc_pages", *_LANES),
            _beside_floor("Free 512 pages", "bench_lanes.LaneFree.time_free", "512", "'kvpool'"),
            Row("Statistics for 512 owners", Case("bench_lanes.LaneStats.time_stats", ("512",))),
        ),
    ),
    Family(
        "Memory",
        "What books and results hold, and into how many transfers an allocation falls",
        r"bench_memory\.",
        (
            Row("Bytes of the books a page, host", Case("bench_memory.Books.track_book_bytes_per_page", ("'host'",))),
            Row("Bytes of the books a page, lanes", Case("bench_memory.Books.track_book_bytes_per_page", ("'lanes'",))),
            Row(
                "Bytes that 1,000 live one-page results hold",
                Case("bench_memory.HostRetention.track_retained_bytes", ("'contiguous'",)),
            ),
            Row("Runs an allocation", Case("bench_memory.HostRuns.track_runs_per_alloc", ("'fewest_runs'",))),
        ),
    ),
)
