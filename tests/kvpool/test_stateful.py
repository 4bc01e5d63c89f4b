"""Random actions on each allocator beside the oracle: same addresses, order, errors and state after a failure."""

import copy
from itertools import chain
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from kvpool import FreeError, HostAllocator, HostStats, OwnerLaneAllocator, TakeError, page_runs
from oracle import HostOracle, LaneOracle, PagedOracle, runs
from tests.kvpool.compiled import COMPILED
from tests.paged_traffic import OPERATIONS, Ours, Traffic

POLICIES = {
    "fifo": HostAllocator.alloc,
    "contiguous": HostAllocator.alloc_contiguous_preferred,
    "fewest_runs": HostAllocator.alloc_fewest_runs,
}


def page_ids_of(starts: Any, lengths: Any) -> list[int]:
    return [start + i for start, length in zip(starts.tolist(), lengths.tolist(), strict=True) for i in range(length)]


def spread(pages: list[int], page_size: int) -> list[int]:
    return [page * page_size + offset for page in pages for offset in range(page_size)]


class PoolMachine(RuleBasedStateMachine):
    """What the two machines share: giving back, snapshots, and the checks after each step."""

    pool: Any
    oracle: Any

    def __init__(self) -> None:
        super().__init__()
        self.held: list[int] = []
        self.snapshots: list[tuple[Any, Any, list[int]]] = []

    def state(self) -> Any:
        raise NotImplementedError

    def set_state(self, state: Any) -> None:
        raise NotImplementedError

    def oracle_gives_back(self, pages: list[int], **options: bool) -> None:
        raise NotImplementedError

    def give_back_options(self, data: st.DataObject) -> dict[str, bool]:
        """Return the options of a call that gives back, where the pool has any."""
        return {}

    @precondition(lambda self: self.held)
    @rule(data=st.data(), as_pages=st.booleans(), shuffled=st.booleans())
    def give_back(self, data: st.DataObject, as_pages: bool, shuffled: bool) -> None:
        size = data.draw(st.integers(1, len(self.held)))
        pages = data.draw(st.permutations(self.held))[:size]
        options = self.give_back_options(data)
        if as_pages:
            assert self.pool.return_pages(pages, **options) == len(pages)
        else:
            slots = spread(pages, self.pool.page_size)
            if shuffled:
                slots = data.draw(st.permutations(slots))
                pages = list(dict.fromkeys(slot // self.pool.page_size for slot in slots))
            assert self.pool.free(slots, **options) == len(slots)
        self.held = [page for page in self.held if page not in pages]
        self.oracle_gives_back(pages, **options)

    @rule(pages=st.lists(st.integers(-2, 40), min_size=1, max_size=6), drop=st.integers(0, 2))
    def give_back_wrongly(self, pages: list[int], drop: int) -> None:
        slots = spread(pages, self.pool.page_size)
        slots = slots[: max(1, len(slots) - drop)]
        pages = list(dict.fromkeys(slot // self.pool.page_size for slot in slots))
        if set(pages) <= set(self.held) and sorted(slots) == spread(sorted(pages), self.pool.page_size):
            return
        before = self.pool.snapshot()
        with pytest.raises(FreeError) as raised:
            self.pool.free(slots)
        assert {page for found in raised.value.faults.values() for page in found} <= set(pages)
        assert self.pool.snapshot() == before

    @rule()
    def take_a_snapshot(self) -> None:
        self.snapshots.append((self.pool.snapshot(), self.state(), list(self.held)))

    @precondition(lambda self: self.snapshots)
    @rule(data=st.data())
    def restore_a_snapshot(self, data: st.DataObject) -> None:
        snapshot, state, held = data.draw(st.sampled_from(self.snapshots))
        self.pool.restore(snapshot)
        self.set_state(state)
        self.held = list(held)
        assert self.pool.snapshot() == snapshot

    @invariant()
    def books_are_in_order(self) -> None:
        self.pool.check()


class HostMachine(PoolMachine):
    allocations = refusals = 0

    @initialize(num_pages=st.integers(1, 36), page_size=st.sampled_from([1, 2, 64]), num_reserved=st.integers(0, 3))
    def build(self, num_pages: int, page_size: int, num_reserved: int) -> None:
        reserved = min(num_pages, num_reserved)
        self.pool = HostAllocator(num_pages, page_size, num_reserved=reserved)
        self.oracle = HostOracle(num_pages, reserved)

    def state(self) -> list[int]:
        return list(self.oracle.free)

    def set_state(self, state: list[int]) -> None:
        self.oracle.free = list(state)

    def give_back_options(self, data: st.DataObject) -> dict[str, bool]:
        return {"front": data.draw(st.booleans())}

    def oracle_gives_back(self, pages: list[int], front: bool = False) -> None:
        self.oracle.free = pages + self.oracle.free if front else self.oracle.free + pages

    @rule(data=st.data())
    def take_pages(self, data: st.DataObject) -> None:
        pages = data.draw(st.lists(st.integers(-1, self.pool.num_pages), max_size=8))
        if data.draw(st.booleans()):
            pages = list(dict.fromkeys(page for page in pages if page in self.oracle.free))
        if len(set(pages)) < len(pages) or not set(pages) <= set(self.oracle.free):
            before = self.pool.snapshot()
            with pytest.raises(TakeError):
                self.pool.take_pages(pages)
            assert self.pool.snapshot() == before
            return
        assert self.pool.take_pages(pages) == len(pages)
        self.allocations += 1
        self.oracle.free = [page for page in self.oracle.free if page not in pages]
        self.held += pages

    @rule(n=st.integers(0, 12), policy=st.sampled_from([*POLICIES, "one_run"]), as_pages=st.booleans())
    def take(self, n: int, policy: str, as_pages: bool) -> None:
        expected = self.oracle.take(n, policy)
        size = n * self.pool.page_size
        as_pages = as_pages or policy not in POLICIES
        result = self.pool.alloc_pages(n, policy) if as_pages else POLICIES[policy](self.pool, size)
        if expected is None:
            assert result is None
            self.refusals += 1
            return
        self.allocations += 1
        assert result.tolist() == (expected if as_pages else spread(expected, self.pool.page_size))
        self.held += expected

    @rule(sizes=st.lists(st.integers(0, 9), max_size=5), policy=st.sampled_from([*POLICIES, "one_run"]))
    def take_many(self, sizes: list[int], policy: str) -> None:
        before = list(self.oracle.free)
        expected = [self.oracle.take(n, policy) for n in sizes]
        result = self.pool.alloc_runs_many(sizes, policy)
        if None in expected:
            assert result is None
            self.oracle.free = before
            self.refusals += 1
            return
        self.allocations += 1
        assert [page_ids_of(*each) for each in result] == expected
        assert all(page_runs(page_ids_of(*each))[0].tolist() == each[0].tolist() for each in result)
        self.held += chain.from_iterable(expected)

    @rule(num_pages=st.integers(1, 40))
    def resize(self, num_pages: int) -> None:
        former = self.pool.num_pages
        reserved = self.pool.num_reserved
        gone = set(range(max(num_pages, reserved), former))
        snapshot = self.pool.snapshot()
        if num_pages < reserved or not gone <= set(self.oracle.free):
            with pytest.raises(ValueError, match=r"in use|num_reserved"):
                self.pool.resize(num_pages)
            assert self.pool.snapshot() == snapshot
            return
        self.pool.resize(num_pages)
        self.oracle.free = [page for page in self.oracle.free if page not in gone] + [*range(former, num_pages)]
        if num_pages != former:
            with pytest.raises(ValueError, match="snapshot"):
                self.pool.restore(snapshot)
            self.snapshots = []

    @rule(data=st.data(), limit=st.none() | st.integers(0, 9))
    def read_a_part_of_the_order(self, data: st.DataObject, limit: int | None) -> None:
        after = data.draw(st.none() | st.sampled_from(self.oracle.free)) if self.oracle.free else None
        first = 0 if after is None else self.oracle.free.index(after) + 1
        expected = self.oracle.free[first:][:limit]
        assert self.pool.free_page_ids(after=after, limit=limit).tolist() == expected

    @rule()
    def clear(self) -> None:
        self.pool.clear()
        self.oracle.free, self.held = list(range(self.pool.num_reserved, self.pool.num_pages)), []

    @invariant()
    def same_free_pages_in_the_same_order(self) -> None:
        assert self.pool.free_page_ids().tolist() == self.oracle.free
        assert self.pool.available_size() == len(self.oracle.free) * self.pool.page_size
        lengths = [len(run) for run in runs(sorted(self.oracle.free))]
        assert self.pool.stats() == HostStats(
            len(self.oracle.free), len(lengths), max(lengths, default=0), self.allocations, self.refusals
        )


class LaneMachine(PoolMachine):
    @initialize(
        physical_pages=st.integers(1, 12),
        page_size=st.sampled_from([1, 2, 64]),
        cp_size=st.sampled_from([1, 3, 8]),
        selection=st.sampled_from(["fifo", "contiguous"]),
    )
    def build(self, physical_pages: int, page_size: int, cp_size: int, selection: str) -> None:
        self.pool = OwnerLaneAllocator(physical_pages, page_size, cp_size, selection=selection)
        self.oracle = LaneOracle(physical_pages, cp_size, selection)

    def state(self) -> tuple[list[list[int]], list[list[int]]]:
        return [list(lane) for lane in self.oracle.free], [list(lane) for lane in self.oracle.released]

    def set_state(self, state: tuple[list[list[int]], list[list[int]]]) -> None:
        self.oracle.free, self.oracle.released = ([list(lane) for lane in lanes] for lanes in state)

    def oracle_gives_back(self, pages: list[int], **options: bool) -> None:
        self.oracle.give_back(pages)

    @rule(data=st.data())
    def take(self, data: st.DataObject) -> None:
        owners = data.draw(st.lists(st.integers(0, self.pool.cp_size - 1), max_size=10))
        expected_stats = [owners.count(rank) for rank in range(self.pool.cp_size)]
        assert self.pool.compute_owner_lane_stats(owners)[0] == expected_stats
        chosen = self.pool.select_pages(owners)
        expected = self.oracle.take(owners)
        result = self.pool.alloc_pages_with_owners(owners)
        if expected is None:
            assert result is None
            assert chosen is None
            return
        assert chosen.tolist() == expected
        assert result.tolist() == spread(expected, self.pool.page_size)
        self.held += expected

    @rule()
    def merge_released(self) -> None:
        self.pool.merge_released()
        self.oracle.merge_released()

    @rule()
    def clear(self) -> None:
        self.pool.clear()
        fresh = LaneOracle(self.pool.physical_pages, self.pool.cp_size, self.pool.selection)
        self.set_state((fresh.free, fresh.released))
        self.held = []

    @rule(data=st.data())
    def replace_a_set(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(["free_pages", "release_pages"]))
        mine, other = self.oracle.free, self.oracle.released
        if name == "release_pages":
            mine, other = other, mine
        taken = {page for lane in other for page in lane}
        everything = range(1, self.pool.num_pages + 1)
        chosen = data.draw(st.sets(st.sampled_from(everything))) - taken
        setattr(self.pool, name, list(chosen))
        cp_size = self.pool.cp_size
        mine[:] = [sorted(page for page in chosen if (page - 1) % cp_size == rank) for rank in range(cp_size)]
        self.held = sorted(set(everything) - chosen - taken)

    @invariant()
    def same_page_sets(self) -> None:
        assert self.pool.free_pages.tolist() == [*chain.from_iterable(self.oracle.free)]
        assert self.pool.release_pages.tolist() == [*chain.from_iterable(self.oracle.released)]
        available = [len(f) + len(r) for f, r in zip(self.oracle.free, self.oracle.released, strict=True)]
        assert self.pool.compute_owner_lane_stats([])[1] == available


class PagedMachine(RuleBasedStateMachine):
    """An engine's traffic beside the oracle, wrong calls among it, and snapshots of all that there is."""

    @initialize(
        num_pages=st.integers(1, 30),
        page_size=st.sampled_from([1, 2, 3, 16]),
        order=st.sampled_from(["fifo", "lifo", "sorted"]),
    )
    def build(self, num_pages: int, page_size: int, order: str) -> None:
        ours, self.oracle = Ours(num_pages, page_size, order), PagedOracle(num_pages, page_size, order)
        self.pool = ours.pool
        self.traffic = Traffic(ours, self.oracle, page_size, lambda below: 0)
        self.snapshots: list[tuple[Any, dict[str, Any], dict[str, Any]]] = []

    @rule(data=st.data(), operation=st.sampled_from([*OPERATIONS, Traffic.clear]))
    def go_on(self, data: st.DataObject, operation: Any) -> None:
        self.traffic.draw = lambda below: data.draw(st.integers(0, below - 1))
        operation(self.traffic)

    @rule(slots=st.lists(st.integers(-3, 99), min_size=1, max_size=8), partial=st.booleans())
    def give_back_wrongly(self, slots: list[int], partial: bool) -> None:
        page_size, pages = self.pool.page_size, {slot // self.pool.page_size for slot in slots}
        group = self.oracle.group or []
        given = {slot for by_slots, values in group if by_slots for slot in values}
        by_ids = {page for by_slots, values in group if not by_slots for page in values}
        wrong = (
            pages - set(range(1, self.pool.num_pages + 1)),
            pages & {*self.oracle.free_pages, *self.oracle.released, *by_ids},
            len(set(slots)) < len(slots) or set(slots) & given,
            not partial and (len(slots) < len(pages) * page_size or pages & {slot // page_size for slot in given}),
        )
        if not any(wrong):
            return
        before = self.pool.snapshot()
        with pytest.raises(FreeError) as raised:
            self.pool.free(slots, partial=partial)
        assert {page for found in raised.value.faults.values() for page in found} <= pages
        assert self.pool.snapshot() == before

    @rule(bad=st.sampled_from(["prefix", "shorter", "place", "range"]), others=st.integers(0, 3))
    def grow_wrongly(self, bad: str, others: int) -> None:
        size = self.pool.page_size
        if size == 1 and bad in ("place", "range"):
            return
        wrong = {
            "prefix": (-1, 5, 5),
            "shorter": (size, size - 1, size),
            "place": (1, 2, size + 1),
            "range": (1, 2, self.pool.size + size),
        }
        before = self.pool.snapshot()
        with pytest.raises(ValueError, match=f"request {others}"):
            self.pool.alloc_extend(*zip(*[(0, 1, -1)] * others, wrong[bad], strict=True))
        assert self.pool.snapshot() == before

    @rule()
    def take_a_snapshot(self) -> None:
        self.snapshots.append((self.pool.snapshot(), *copy.deepcopy((vars(self.oracle), self.of_requests()))))

    @precondition(lambda self: self.snapshots)
    @rule(data=st.data())
    def restore_a_snapshot(self, data: st.DataObject) -> None:
        snapshot, oracle, of_requests = data.draw(st.sampled_from(self.snapshots))
        self.pool.restore(snapshot)
        vars(self.oracle).update(copy.deepcopy(oracle))
        vars(self.traffic).update(copy.deepcopy(of_requests))
        assert self.pool.snapshot() == snapshot

    def of_requests(self) -> dict[str, Any]:
        return {name: vars(self.traffic)[name] for name in ("requests", "blocks", "grouped")}

    @invariant()
    def same_free_pages_in_the_same_order(self) -> None:
        self.traffic.same_pages_are_free()
        self.pool.check()


MACHINE_SETTINGS = settings(max_examples=60 if COMPILED else 15, stateful_step_count=40, deadline=None)
TestHostMachine = HostMachine.TestCase
TestHostMachine.settings = MACHINE_SETTINGS
TestPagedMachine = PagedMachine.TestCase
TestPagedMachine.settings = MACHINE_SETTINGS
TestLaneMachine = LaneMachine.TestCase
TestLaneMachine.settings = MACHINE_SETTINGS
