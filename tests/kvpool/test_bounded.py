"""No call of up to 8 pages pays for what happened to a pool before: an adversary ages pools, steps are counted."""

from collections.abc import Callable
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from kvpool import HostAllocator, PagedAllocator

LARGE = 4_194_304
MOST_STEPS = 400
POLICIES = ("fifo", "contiguous", "fewest_runs")


class Watched:
    """A pool whose calls of up to 8 pages are watched; `worst` says what each kind of them has cost at most."""

    def __init__(self, num_pages: int, page_size: int = 1) -> None:
        self.pool = HostAllocator(num_pages, page_size)
        self.page_size = page_size
        self.worst = dict.fromkeys(("alloc", "free", "return_pages", "take_pages"), 0)
        self.held: list[np.ndarray] = []

    def watched(self, name: str, call: Callable[[], Any]) -> Any:
        before = self.pool._steps
        result = call()
        steps = self.pool._steps - before
        self.worst[name] = max(self.worst[name], steps)
        assert steps <= MOST_STEPS, f"{name} took {steps} steps"
        return result

    def take_few(self, count: int) -> None:
        slots = self.watched("alloc", lambda: self.pool.alloc(count * self.page_size))
        if slots is not None and count:
            self.held.append(slots.numpy()[:: self.page_size] // self.page_size)

    def take(self, count: int, policy: str) -> None:
        """Take any number of pages by any policy, which may cost what it likes."""
        pages = self.pool.alloc_pages(count, policy)
        if pages is not None and count:
            self.held.append(pages)

    def give_few(self, pages: np.ndarray, as_slots: bool) -> None:
        pages = pages[:8]
        if as_slots:
            slots = (pages[:, None] * self.page_size + np.arange(self.page_size)).ravel()
            assert self.watched("free", lambda: self.pool.free(slots)) == slots.size
            return
        front = bool(pages.sum() % 2)
        assert self.watched("return_pages", lambda: self.pool.return_pages(pages, front=front)) == len(pages)
        if pages.sum() % 3 == 0:
            assert self.watched("take_pages", lambda: self.pool.take_pages(pages)) == len(pages)
            self.pool.return_pages(pages, front=front)

    def pick(self, which: int) -> np.ndarray:
        self.held[which], self.held[-1] = self.held[-1], self.held[which]
        return self.held.pop()

    def part(self, which: int, count: int, random: np.random.Generator, as_slots: bool) -> None:
        """Give up to 8 pages of an allocation back, in any order, and keep the others."""
        pages = random.permutation(self.pick(which))
        if len(pages) > count:
            self.held.append(pages[count:])
        self.give_few(pages[:count], as_slots)


class Adversary(RuleBasedStateMachine):
    """Small pools, where hypothesis finds what order of calls is worst."""

    @initialize(num_pages=st.sampled_from([9, 17, 40, 300, 1_100, 5_000]), page_size=st.sampled_from([1, 2]))
    def build(self, num_pages: int, page_size: int) -> None:
        self.watched = Watched(num_pages, page_size)

    @rule(count=st.integers(0, 8))
    def take_few(self, count: int) -> None:
        self.watched.take_few(count)

    @rule(share=st.floats(0, 1), policy=st.sampled_from(POLICIES))
    def take(self, share: float, policy: str) -> None:
        pool = self.watched.pool
        self.watched.take(int(share * pool.available_size() / pool.page_size), policy)

    @rule(runs=st.integers(1, 40), length=st.integers(1, 20))
    def take_from_the_middle(self, runs: int, length: int) -> None:
        for _ in range(runs):
            self.watched.take(length, "fewest_runs")

    @precondition(lambda self: self.watched.held)
    @rule(data=st.data(), count=st.integers(1, 8), seed=st.integers(0, 99), as_slots=st.booleans())
    def give_few(self, data: st.DataObject, count: int, seed: int, as_slots: bool) -> None:
        which = data.draw(st.integers(0, len(self.watched.held) - 1))
        self.watched.part(which, count, np.random.Generator(np.random.PCG64(seed)), as_slots)

    @precondition(lambda self: self.watched.held)
    @rule(data=st.data(), stride=st.integers(1, 40))
    def give_a_comb(self, data: st.DataObject, stride: int) -> None:
        pages = self.watched.pick(data.draw(st.integers(0, len(self.watched.held) - 1)))
        rest = np.delete(pages, np.arange(0, len(pages), stride))
        if len(rest):
            self.watched.held.append(rest)
        self.watched.pool.return_pages(pages[::stride])

    @rule()
    def restore(self) -> None:
        self.watched.pool.restore(self.watched.pool.snapshot())

    def teardown(self) -> None:
        if hasattr(self, "watched"):
            self.watched.pool.check()


TestAdversary = pytest.mark.compiled(Adversary.TestCase)
TestAdversary.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)


def small_calls(watched: Watched, random: np.random.Generator, count: int) -> None:
    """Make calls of up to 8 pages, as many that take as that give."""
    for size in random.integers(1, 9, count).tolist():
        if watched.held and random.random() < 0.5:
            watched.part(int(random.integers(len(watched.held))), size, random, as_slots=bool(size % 2))
        else:
            watched.take_few(size)


def an_isolated_head(watched: Watched, random: np.random.Generator) -> None:
    """One page first in the order, which only FIFO takes, and every search goes past it."""
    pages = watched.pool.alloc_pages(LARGE)
    assert pages is not None
    watched.pool.return_pages([1])
    watched.pool.return_pages(np.arange(3, LARGE))
    watched.held = [np.array([0, 2])]
    for policy in ("contiguous", "fewest_runs"):
        for size in (8, 64, 512, 100_000):
            watched.take(size, policy)


def middle_takes(watched: Watched, random: np.random.Generator) -> None:
    """Runs taken out of everywhere in an order that has nothing to do with addresses."""
    everything = watched.pool.alloc_pages(LARGE)
    assert everything is not None
    watched.pool.return_pages(random.permutation(everything))
    for _ in range(2_000):
        watched.take(int(random.integers(1, 12)), POLICIES[1 + int(random.integers(2))])
    watched.take(LARGE // 3, "fewest_runs")
    watched.take(LARGE // 3, "contiguous")


def all_but_a_few(watched: Watched, random: np.random.Generator) -> None:
    """A huge take that leaves a page of each thousand in the order, far apart."""
    everything = watched.pool.alloc_pages(LARGE)
    assert everything is not None
    kept = everything[::1_000]
    rest = np.delete(everything, np.arange(0, LARGE, 1_000))
    order = np.insert(rest.reshape(-1), np.arange(0, len(rest), 999)[: len(kept)], kept)
    watched.pool.return_pages(order)
    for _ in range(40):
        watched.take(100_000, "fewest_runs")
    watched.take(watched.pool.available_size() // 2, "fewest_runs")


def a_comb(watched: Watched, random: np.random.Generator) -> None:
    """Every second page free: no two neighbours, and no search that finds a run."""
    everything = watched.pool.alloc_pages(LARGE)
    assert everything is not None
    watched.pool.return_pages(everything[::2])
    watched.held = np.array_split(everything[1::2], 200_000)
    watched.take(8, "contiguous")
    watched.take(LARGE // 4, "fewest_runs")


def halves_that_meet(watched: Watched, random: np.random.Generator) -> None:
    """Free but for one page of each chunk, whose return joins runs and changes every summary above it."""
    everything = watched.pool.alloc_pages(LARGE)
    assert everything is not None
    borders = np.arange(511, LARGE, 512)
    watched.pool.return_pages(np.delete(everything, borders))
    watched.pool.alloc_contiguous_preferred(513)
    watched.pool.largest_run()
    watched.held = [random.permutation(borders)]


@pytest.mark.compiled  # As plain Python a pool of four million pages takes minutes to build.
@pytest.mark.parametrize("age", [an_isolated_head, middle_takes, all_but_a_few, a_comb, halves_that_meet])
def test_no_small_call_on_four_million_pages_pays_for_history(age: Any, record_property: Any) -> None:
    watched = Watched(LARGE)
    random = np.random.Generator(np.random.PCG64(4))
    small_calls(watched, random, 500)
    watched.held = []
    watched.pool.clear()
    age(watched, random)
    small_calls(watched, random, 10_000)
    while watched.pool.available_size() > 8 and len(watched.held) < 30_000:
        watched.take_few(8)
    small_calls(watched, random, 10_000)
    record_property("steps at most", watched.worst)
    print(age.__name__, watched.worst)


@pytest.mark.compiled
def test_the_dearest_return_joins_runs_at_the_borders_of_chunks() -> None:
    watched = Watched(LARGE)
    everything = watched.pool.alloc_pages(LARGE)
    assert everything is not None
    # Eight pages, each in a part of the tree of its own, and each before, between or behind free ones.
    spots = np.arange(8) * (LARGE // 8) + 512 * 7 + 511
    around = np.concatenate([spots - 1, spots + 1])
    for free in (np.empty(0, np.int64), spots - 1, spots + 1, around):
        watched.pool.clear()
        watched.pool.alloc_pages(LARGE)
        watched.pool.return_pages(free)
        watched.give_few(spots, as_slots=False)
    print(watched.worst)


@pytest.mark.compiled
@pytest.mark.parametrize("kept", [1, 7, 64, 100_000])
@pytest.mark.parametrize("order", ["fifo", "lifo", "sorted"])
def test_no_small_call_of_a_paged_pool_pays_for_what_is_free_or_released(order: str, kept: int) -> None:
    pool = PagedAllocator(LARGE, 1, order=order)
    random = np.random.Generator(np.random.PCG64(5))
    everything = pool.alloc_pages(LARGE)
    assert everything is not None
    # Far apart, and given back in an order that has nothing to do with addresses.
    free = everything[:: LARGE // kept]
    pool.return_pages(random.permutation(free))
    held = list(random.permutation(np.setdiff1d(everything[:: LARGE // 50_000], free)).reshape(-1, 1))
    worst = 0
    for size in random.integers(1, 9, 20_000).tolist():
        before = pool._steps
        if random.random() < 0.5:
            pages = pool.alloc_pages(size)
            held += [] if pages is None else [pages]
        else:
            pool.return_pages(held.pop(int(random.integers(len(held)))))
        worst = max(worst, pool._steps - before)
    pool.check()
    print(order, kept, worst)
    assert worst <= MOST_STEPS
