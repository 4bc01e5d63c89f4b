"""Every public function, type, method and property of kvpool has its instructions counted, and its time measured."""

import inspect
import itertools
import re

import pytest
from asv_runner.discovery import disc_benchmarks

import kvpool
from benchmarks import bench_calls
from benchmarks.counted_calls import CASES
from benchmarks.timed import SAMPLE, TIMES, times_of
from history import records

TIMED = [
    str(records.Case(benchmark.name, parameters))
    for benchmark in disc_benchmarks("benchmarks")
    if benchmark.type != "track"
    for parameters in itertools.product(*benchmark.params)
]
# Of Python's own methods, those that do something with a pool or with tokens.
SPECIAL = (
    *("__len__", "__iter__", "__getitem__", "__contains__", "__eq__", "__add__", "__radd__", "__array__"),
    *("__reduce__", "__setstate__", "__call__", "__enter__", "__exit__", "__copy__", "__deepcopy__", "__iadd__"),
)

# What needs no count, and so no time either, by the reason.
UNCOUNTED = {
    "an error": {"CountError", "FreeError", "TakeError"},
    "a snapshot without methods, which `snapshot` and `stats` make, whose calls are counted": {
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


def timed(pattern):
    return any(re.search(pattern, case) for case in TIMED)


def without_time(module):
    names = set(public_names(module)) - excepted(UNCOUNTED) - excepted(UNTIMED)
    return {name for name in names if not any(map(timed, times_of(name)))}


def test_every_public_method_is_counted():
    assert without_count(kvpool) == set()


def test_every_public_method_is_timed():
    assert without_time(kvpool) == set()


def test_what_is_said_to_time_something_exists():
    patterns = [pattern for each in TIMES.values() for pattern in each]
    assert [pattern for pattern in (*patterns, *SAMPLE) if not timed(pattern)] == []
    assert bench_calls.CALLS.keys() <= CASES.keys()


def test_nothing_is_named_that_there_is_not():
    names = set(public_names(kvpool))
    assert set(TIMES) | excepted(UNCOUNTED) | excepted(UNTIMED) <= names
    assert not set(TIMES) & excepted(UNTIMED)


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
