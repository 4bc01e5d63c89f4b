"""Whose instructions stand beside a figure of the front page: a call of the suite of counts that does the same work."""

from collections.abc import Sequence

from history.records import Record
from history.site.trend import Line

BENCHMARK = "bench_instructions.Instructions.track_instructions"

_HOST, _LANES, _TOKENS = "bench_host.", "bench_lanes.", "bench_tokens."

CALLS = {
    _HOST + "ChurnedAlloc.time_alloc(64, 'contiguous')": "HostAllocator.alloc_contiguous_preferred 64",
    _HOST + "ChurnedAlloc.time_alloc(64, 'fifo')": "HostAllocator.alloc 64",
    _HOST + "ChurnedAlloc.time_alloc(64, 'fewest_runs')": "HostAllocator.alloc_fewest_runs 64",
    _HOST + "Free.time_free(64, 'kvpool')": "HostAllocator.free 64",
    _LANES + "LaneAlloc.time_alloc_pages('round_robin', 512, 'contiguous')": (
        "OwnerLaneAllocator.alloc_pages_with_owners 512"
    ),
    _LANES + "LaneFree.time_free(512, 'kvpool')": "OwnerLaneAllocator.free 512",
    _LANES + "LaneStats.time_stats(512)": "OwnerLaneAllocator.compute_owner_lane_stats 512",
    _TOKENS + "PrefixMatch.time_batch('2x100000', 'kvpool')": "match_prefix 100000",
    _TOKENS + "DecodeAppend.time_batch('2x10000', 'kvpool')": "RequestTokens.append",
}


def line(call: str, shown: Sequence[Record]) -> Line:
    """Return the instructions of a call, as they were counted last: by another valgrind or CPU they are others."""
    for record in reversed(shown):
        for case in sorted(record.figures):
            if case.benchmark == BENCHMARK and case.parameters[0] == repr(call):
                return Line(tuple(each.figures.get(case) for each in shown))
    return Line((None,) * len(shown))
