"""Every public function, type, method and property of kvpool has its instructions counted, and its time measured."""

import inspect

import pytest
from asv_runner.discovery import disc_benchmarks

import kvpool
from benchmarks import bench_calls
from benchmarks.counted_calls import CASES

BENCHMARKS = {benchmark.name for benchmark in disc_benchmarks("benchmarks")}
# Of Python's own methods, those that do something with a pool or with tokens.
SPECIAL = (
    *("__len__", "__iter__", "__getitem__", "__contains__", "__eq__", "__add__", "__radd__", "__array__"),
    *("__reduce__", "__setstate__", "__call__", "__enter__", "__exit__", "__copy__", "__deepcopy__", "__iadd__"),
)

# What needs no count, and so no time either, by the reason.
UNCOUNTED = {
    "an error": {"CountError", "FreeError", "TakeError"},
    "a picture of a state without methods, which `snapshot` and `stats` make, whose calls are counted": {
        *("HostSnapshot", "HostStats", "LaneSnapshot", "PageCountsSnapshot", "PagedSnapshot"),
    },
    "a number or word that is kept": {
        *("HostAllocator.num_pages", "HostAllocator.num_reserved", "HostAllocator.page_size", "HostAllocator.size"),
        *("OwnerLaneAllocator.cp_size", "OwnerLaneAllocator.device", "OwnerLaneAllocator.num_pages"),
        *("OwnerLaneAllocator.page_size", "OwnerLaneAllocator.physical_pages", "OwnerLaneAllocator.selection"),
        *("OwnerLaneAllocator.size", "PagedAllocator.device", "PagedAllocator.num_pages", "PagedAllocator.order"),
        *("PagedAllocator.page_size", "PagedAllocator.size", "PageCounts.num_held", "PageCounts.num_pages"),
        *("BatchStager.capacity", "BatchStager.device", "TokenBuffer.dtype"),
        *("TokenTable.dtype", "TokenTable.max_requests", "TokenTable.max_tokens"),
    },
}
# What is counted and not timed, by the reason.
UNTIMED: dict[str, set[str]] = {}

ALLOC, PAGES, READS = "bench_host.ChurnedAlloc.time_alloc", "bench_pages.PageCalls.time_calls", "bench_pages.PoolReads"
ROWS, DRAFTS, COUNTS = "bench_tokens.TableRows.time_rows", "bench_tokens.Drafts.time_steps", "bench_pages.CountCalls"
FREE, PAGED_READS = "bench_paged.PagedFree.time_free", "bench_paged.PagedReads.time_calls"
# What times each of those that `bench_calls.Calls` does not.
TIMES = {
    "HostAllocator.alloc": ALLOC,
    "HostAllocator.alloc_contiguous_preferred": ALLOC,
    "HostAllocator.alloc_fewest_runs": ALLOC,
    "HostAllocator.alloc_pages": PAGES,
    "HostAllocator.alloc_runs": PAGES,
    "HostAllocator.alloc_runs_many": PAGES,
    "HostAllocator.take_pages": PAGES,
    "HostAllocator.return_pages": PAGES,
    "HostAllocator.free": "bench_host.Free.time_free",
    "HostAllocator.free_page_ids": f"{READS}.time_calls",
    "HostAllocator.largest_run": f"{READS}.time_calls",
    "HostAllocator.stats": f"{READS}.time_calls",
    "HostAllocator.snapshot": f"{READS}.time_calls",
    "HostAllocator.resize": f"{READS}.time_calls",
    "PageCounts.retain": f"{COUNTS}.time_retain_release",
    "PageCounts.release": f"{COUNTS}.time_retain_release",
    "OwnerLaneAllocator.alloc_pages_with_owners": "bench_lanes.LaneAlloc.time_alloc_pages",
    "OwnerLaneAllocator.select_pages": "bench_lanes.LaneSelect.time_select_only",
    "OwnerLaneAllocator.free": "bench_lanes.LaneFree.time_free",
    "OwnerLaneAllocator.return_pages": "bench_calls.LaneReturn.time_return",
    "OwnerLaneAllocator.merge_released": "bench_calls.LaneReturn.time_return",
    "OwnerLaneAllocator.compute_owner_lane_stats": "bench_lanes.LaneStats.time_stats",
    "OwnerLaneAllocator.compute_owner_lane_free_room_stats": "bench_lanes.LaneStats.time_free_room_stats",
    "PagedAllocator.alloc": "bench_paged.PagedAlloc.time_alloc",
    "PagedAllocator.alloc_pages": "bench_paged.PagedAlloc.time_alloc",
    "PagedAllocator.alloc_decode": "bench_paged.PagedDecode.time_decode",
    "PagedAllocator.alloc_extend": "bench_paged.PagedExtend.time_extend",
    "PagedAllocator.free": FREE,
    "PagedAllocator.free_rows": FREE,
    "PagedAllocator.return_pages": FREE,
    "PagedAllocator.free_group_begin": FREE,
    "PagedAllocator.free_group_end": FREE,
    "PagedAllocator.available_size": PAGED_READS,
    "PagedAllocator.free_pages": PAGED_READS,
    "PagedAllocator.snapshot": PAGED_READS,
    "PagedAllocator.restore": PAGED_READS,
    "PagedAllocator.clear": PAGED_READS,
    "match_prefix": "bench_tokens.PrefixMatch.time_batch",
    "RequestTokens": "bench_tokens.Ingest.time_batch",
    "RequestTokens.append": "bench_tokens.DecodeAppend.time_batch",
    "RequestTokens.extend": DRAFTS,
    "RequestTokens.truncate": DRAFTS,
    "RequestTokens.tolist": "bench_tokens.Listing.time_list",
    "RequestTokens.fill_ids": "bench_tokens.PrefillConcat.time_batch",
    "RequestTokens.committed": "bench_tokens.FinishConcat.time_batch",
    "TokenTable.add": ROWS,
    "TokenTable.remove": ROWS,
    "TokenTable.write": ROWS,
    "TokenTable.truncate": ROWS,
    "TokenTable.swap": ROWS,
    "TokenTable.move": ROWS,
    "TokenTable.row": ROWS,
    "TokenTable.tensor": ROWS,
    "TokenTable.append": "bench_tokens.DecodeAppend.time_batch",
    "BatchStager.stage": "bench_tokens.BatchTorchTensor.time_batch",
}


def public_names(module):
    """Yield what a module exports: functions, types, and of these methods and properties."""
    for name in module.__all__:
        yield name
        found = getattr(module, name)
        if not inspect.isclass(found) or name in excepted(UNCOUNTED):
            continue
        for member, value in vars(found).items():
            is_used = not member.startswith("_") or (member in SPECIAL and value is not None)
            if is_used:
                yield f"{name}.{member}"


def excepted(reasons):
    return set().union(*reasons.values())


def methods_of(cases):
    """The methods that some cases are of: the first word of their names."""
    return {case.split()[0] for case in cases}


def without_count(module):
    return set(public_names(module)) - excepted(UNCOUNTED) - methods_of(CASES)


def without_time(module):
    return (
        set(public_names(module)) - excepted(UNCOUNTED) - excepted(UNTIMED) - methods_of(bench_calls.CALLS) - set(TIMES)
    )


def test_every_public_method_is_counted():
    assert without_count(kvpool) == set()


def test_every_public_method_is_timed():
    assert without_time(kvpool) == set()


def test_what_is_said_to_time_something_exists():
    assert set(TIMES.values()) <= BENCHMARKS
    assert bench_calls.CALLS.keys() <= CASES.keys()


def test_nothing_is_named_that_there_is_not():
    names = set(public_names(kvpool))
    assert set(TIMES) | excepted(UNCOUNTED) | excepted(UNTIMED) <= names
    assert not set(TIMES) & (methods_of(bench_calls.CALLS) | excepted(UNTIMED))


class Grown(kvpool.HostAllocator):
    """A pool that has gained a method and a property."""

    def defragment(self):
        pass

    @property
    def load(self):
        return 0

    def __len__(self):
        return 0

    def _hidden(self):
        pass


class Module:
    """A kvpool that has gained a function, and whose pool is another."""

    __all__ = ("HostAllocator", "rank_of")
    HostAllocator = Grown

    @staticmethod
    def rank_of():
        pass


@pytest.mark.parametrize("missing", [without_count, without_time])
def test_what_is_added_without_either_is_found(missing):
    assert missing(Module) == {"HostAllocator.defragment", "HostAllocator.load", "HostAllocator.__len__", "rank_of"}
