"""Which benchmarks time which method: what a comparison looks at once it knows whose instructions have moved.

Patterns are of cases as asv names them, and found anywhere in the name. Nothing of kvpool is imported here: a
comparison reads this file where there is none.
"""

import re

# Traces of allocations by a method of the host pool.
_BY = r"^bench_(host|size|replay)\..*'{}'\)$"
_FIFO, _CONTIGUOUS, _FEWEST = (_BY.format(method) for method in ("fifo", "contiguous", "fewest_runs"))
_PAIRS = (r"^bench_host\.(Churn|Growth)\.", r"^bench_replay\.ReplayTime", r"^bench_size\.(HugePool|SharedPool|Slowest)")
_PAGES = r"^bench_pages\.PageCalls\..*'{}'\)$"
_READS = r"^bench_pages\.PoolReads\..*'{}'\)$"
_LANES = (r"^bench_lanes\.Lane(Alloc|FreeSets|Small)\.", r"^bench_size\.Lanes\.time_alloc_free")
_LANE_STATS = (r"^bench_lanes\.LaneStats\.", r"^bench_size\.Lanes\.time_stats")
_PAGED = r"^bench_paged\.Paged{}\."
_PAGED_READS = r"^bench_paged\.PagedReads\..*'{}'"
_TOKENS = r"^bench_tokens\.{}\."
_ROWS = r"^bench_tokens\.TableRows\..*'{}'"

# By what is public, which is the first word of a counted call; beside the calls that `bench_calls` times by that name.
TIMES: dict[str, tuple[str, ...]] = {
    "HostAllocator.alloc": (_FIFO, r"^bench_size\.(SharedPool|Slowest)"),
    "HostAllocator.alloc_contiguous_preferred": (_CONTIGUOUS,),
    "HostAllocator.alloc_fewest_runs": (_FEWEST,),
    "HostAllocator.alloc_pages": (_PAGES.format("(alloc_pages|one_run)"),),
    "HostAllocator.alloc_runs": (_PAGES.format("alloc_runs"),),
    "HostAllocator.alloc_runs_many": (_PAGES.format("alloc_runs_many"),),
    "HostAllocator.take_pages": (_PAGES.format("take_pages"),),
    "HostAllocator.free": (r"^bench_host\.Free\.", *_PAIRS),
    "HostAllocator.return_pages": (_PAGES.format("return_(pages|front)"),),
    "HostAllocator.free_page_ids": (_READS.format(r"free_page_ids\w*"),),
    "HostAllocator.largest_run": (_READS.format("largest_run"),),
    "HostAllocator.stats": (_READS.format("stats"),),
    "HostAllocator.resize": (_READS.format("resize"),),
    "HostAllocator.snapshot": (_READS.format("snapshot"),),
    "PageCounts.retain": (r"^bench_pages\.CountCalls\.",),
    "PageCounts.release": (r"^bench_pages\.CountCalls\.",),
    "OwnerLaneAllocator.alloc_pages_with_owners": _LANES,
    "OwnerLaneAllocator.select_pages": (r"^bench_lanes\.LaneSelect\.",),
    "OwnerLaneAllocator.return_pages": (r"^bench_calls\.LaneReturn\.",),
    "OwnerLaneAllocator.merge_released": (r"^bench_calls\.LaneReturn\..*'merge_released'",),
    "OwnerLaneAllocator.free": (r"^bench_lanes\.LaneFree\.", r"^bench_size\.Lanes\.time_alloc_free"),
    "OwnerLaneAllocator.compute_owner_lane_stats": _LANE_STATS,
    "OwnerLaneAllocator.compute_owner_lane_free_room_stats": _LANE_STATS,
    "PagedAllocator.alloc": (_PAGED.format("Alloc"),),
    "PagedAllocator.alloc_pages": (r"^bench_paged\.PagedAlloc\..*pages'\)$",),
    "PagedAllocator.alloc_decode": (_PAGED.format("Decode"),),
    "PagedAllocator.alloc_extend": (_PAGED.format("Extend"),),
    "PagedAllocator.free": (_PAGED.format("Free"),),
    "PagedAllocator.free_rows": (r"^bench_paged\.PagedFree\..*'rows'",),
    "PagedAllocator.return_pages": (r"^bench_paged\.PagedFree\..*'pages'",),
    "PagedAllocator.free_group_begin": (r"^bench_paged\.PagedFree\..*'group'",),
    "PagedAllocator.free_group_end": (r"^bench_paged\.PagedFree\..*'group'",),
    "PagedAllocator.available_size": (_PAGED_READS.format("available_size"),),
    "PagedAllocator.free_pages": (_PAGED_READS.format("free_pages"),),
    "PagedAllocator.snapshot": (_PAGED_READS.format("snapshot"),),
    "PagedAllocator.restore": (_PAGED_READS.format("restore"),),
    "PagedAllocator.clear": (_PAGED_READS.format("clear"),),
    "match_prefix": (_TOKENS.format(r"PrefixMatch(From)?"),),
    "TokenBuffer": (_TOKENS.format(r"(Ingest|FinishConcat)"),),
    "TokenBuffer.append": (_TOKENS.format(r"(DecodeAppend|Drafts)"),),
    "TokenBuffer.extend": (_TOKENS.format(r"(PrefillConcat|FinishConcat|Drafts)"),),
    "TokenBuffer.truncate": (_TOKENS.format("Drafts"),),
    "TokenBuffer.tolist": (_TOKENS.format("Listing"),),
    "TokenBuffer.numpy": (_TOKENS.format(r"(PrefillPerreqSlice|CacheFinishedReq)"),),
    "TokenBuffer.torch": (_TOKENS.format(r"(BatchTorchTensor|Roads)"),),
    "TokenBuffer.__getitem__": (_TOKENS.format("PrefillPerreqSlice"),),
    "RequestTokens": (_TOKENS.format("Ingest"),),
    "RequestTokens.append": (_TOKENS.format("DecodeAppend"),),
    "RequestTokens.extend": (_TOKENS.format("Drafts"),),
    "RequestTokens.truncate": (_TOKENS.format("Drafts"),),
    "RequestTokens.tolist": (_TOKENS.format("Listing"),),
    "RequestTokens.fill_ids": (_TOKENS.format(r"(PrefillConcat|FinishConcat)"),),
    "RequestTokens.committed": (_TOKENS.format("CacheFinishedReq"),),
    "TokenTable.add": (_ROWS.format(r"add(_at)?"),),
    "TokenTable.append": (_TOKENS.format("DecodeAppend"),),
    "TokenTable.remove": (_ROWS.format("add(_at)?"),),
    "TokenTable.write": (_ROWS.format("write"),),
    "TokenTable.truncate": (_ROWS.format("truncate"),),
    "TokenTable.swap": (_ROWS.format("swap"),),
    "TokenTable.move": (_ROWS.format("move"),),
    "TokenTable.row": (_ROWS.format("row"),),
    "TokenTable.tensor": (_ROWS.format("tensor"),),
    "BatchStager.stage": (_TOKENS.format("BatchTorchTensor"),),
}

# What is timed whatever the counts say: what instructions do not show, in a case of each family.
SAMPLE: tuple[str, ...] = (
    r"^bench_host\.ChurnedAlloc\.time_alloc\(64, 'fifo'\)$",
    r"^bench_host\.Churn\.time_churn",
    r"^bench_host\.Free\.time_free\(64, 'kvpool'\)$",
    r"^bench_host\.Growth\.time_alloc_free\(4194304, 512, 'fifo'\)$",
    r"^bench_import\.",
    r"^bench_lanes\.LaneAlloc\.time_alloc_pages\('round_robin', 64, 'contiguous'\)$",
    r"^bench_lanes\.LaneFree\.time_free\(512, 'kvpool'\)$",
    r"^bench_paged\.PagedDecode\.time_decode\(256, 'fifo'\)$",
    r"^bench_paged\.PagedExtend\.time_extend\('32x10000', 'fifo'\)$",
    r"^bench_memory\.PeakMemory\.",
    r"^bench_size\.SlowestCalls\.",
    r"^bench_tokens\.PrefixMatch\.time_batch\('2x10000', 'kvpool'\)$",
    r"^bench_tokens\.DecodeAppend\.time_batch\('64x1000', 'kvpool'\)$",
    r"^bench_tokens\.BatchTorchTensor\.time_batch\('2x10000', 'kvpool'\)$",
)


def times_of(method: str) -> tuple[str, ...]:
    """Return the patterns of the cases that time a method."""
    return *TIMES.get(method, ()), rf"^bench_calls\.Calls\..*\('{re.escape(method)}( [^']*)?'\)$"
