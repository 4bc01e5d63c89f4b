"""The checks of the books are no formality: each field of a state, damaged, is named."""

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from kvpool import HostAllocator, OwnerLaneAllocator, PagedAllocator
from kvpool._books import check_free_pages, check_lane, check_order, check_run_index

Damage = Callable[[dict[str, Any]], None]


def aged_pool() -> HostAllocator:
    pool = HostAllocator(1_200, 1)
    pool.alloc_pages(1_200)
    pool.return_pages([*range(0, 600, 2), *range(700, 900), *range(1_100, 1_200)])
    pool.alloc_pages(7)
    pool.alloc_pages(120, "contiguous")
    pool.alloc_pages(20, "fewest_runs")
    return pool


def host_books() -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the books of a pool whose order has left the ascending one, with blocks linked and spare."""
    order, index = aged_pool()._books()
    assert order["spare"] != -1
    return order, index


def exact_index() -> dict[str, Any]:
    """Return an index of the same pages whose summaries are all exact, as one is that is built anew."""
    pool = aged_pool()
    pool.restore(pool.snapshot())
    return pool._books()[1]


def setting(name: str, value: Callable[[Any], Any]) -> Damage:
    def damage(state: dict[str, Any]) -> None:
        state[name] = value(state[name])

    return damage


def element(name: str, where: Callable[[dict[str, Any]], int], value: Callable[[int], int]) -> Damage:
    def damage(state: dict[str, Any]) -> None:
        place = where(state)
        state[name][place] = value(int(state[name][place]))

    return damage


def second(state: dict[str, Any]) -> int:
    """Return the block behind the first."""
    return int(state["next"][state["first"]])


def a_page(state: dict[str, Any]) -> int:
    """Return the first page of the second block."""
    return int(state["pages"][second(state) * 16])


ORDER_DAMAGE: dict[str, tuple[Damage, str]] = {
    "pages: another page": (element("pages", lambda state: second(state) * 16, lambda page: page + 1), "stands at"),
    "pages: nothing": (element("pages", lambda state: second(state) * 16, lambda page: -1), "counts"),
    "live": (element("live", second, lambda live: live - 1), "counts"),
    "next: skips a block": (
        lambda state: state["next"].__setitem__(state["first"], state["next"][second(state)]),
        "follows",
    ),
    "next: a circle": (lambda state: state["next"].__setitem__(second(state), state["first"]), "linked twice"),
    "next: ends early": (lambda state: state["next"].__setitem__(second(state), -1), "the last block is"),
    "previous": (element("previous", second, lambda block: block + 1), "follows"),
    "place: elsewhere": (element("place", a_page, lambda place: place + 1), "stands at"),
    "place: of a page not free": (element("place", lambda state: 650, lambda place: 3), "nowhere are"),
    "first": (setting("first", lambda first: -1), "the last block is"),
    "last": (setting("last", lambda last: last + 1), "the last block is|counts|follows"),
    "first_start": (setting("first_start", lambda start: 15), "counts"),
    "last_stop": (setting("last_stop", lambda stop: 0), "counts"),
    "length": (setting("length", lambda length: length + 1), "the order counts"),
    "spare": (setting("spare", lambda spare: -1), "have been used"),
    "spare: a circle": (lambda state: state["next"].__setitem__(state["spare"], state["spare"]), "spare twice"),
    "unused": (setting("unused", lambda unused: unused + 1), "have been used"),
}

INDEX_DAMAGE: dict[str, tuple[Damage, str]] = {
    "num_pages": (setting("num_pages", lambda pages: 1_150), "beyond the last"),
    "chunks": (setting("chunks", lambda chunks: chunks + 1), "chunks|leaves"),
    "leaves": (setting("leaves", lambda leaves: 2 * leaves), "leaves"),
    "free": (setting("free", lambda free: free - 1), "counts"),
    "words: a page more": (element("words", lambda state: 10, lambda word: word | 1 << 40), "counts"),
    "words: beyond the last": (element("words", lambda state: 20, lambda word: word | 1 << 40), "beyond the last"),
}


def summary(leaf: int, field: int, change: int) -> Damage:
    def damage(state: dict[str, Any]) -> None:
        values = list(state["summaries"][leaf])
        values[field] += change
        state["summaries"][leaf] = tuple(values)

    return damage


for _leaf, _what in ((4, "chunk 0"), (1, "node 1")):
    for _field, _name in enumerate(("leading", "longest", "trailing")):
        for _change in (1, -1):
            INDEX_DAMAGE[f"{_what}: {_name} {_change:+}"] = (summary(_leaf, _field, _change), _what)
INDEX_DAMAGE["chunk 0: lengths"] = (summary(4, 3, -1), "chunk 0 does not name|node 2")
INDEX_DAMAGE["node 1: lengths"] = (summary(1, 3, -1), "node 1")


def test_books_that_are_right_pass() -> None:
    order, index = host_books()
    check_order(order, check_run_index(index, "index"))
    check_run_index(exact_index(), "index")


@pytest.mark.parametrize(("damage", "found"), ORDER_DAMAGE.values(), ids=ORDER_DAMAGE.keys())
def test_a_damaged_order_is_found_out(damage: Damage, found: str) -> None:
    order, index = host_books()
    free = check_run_index(index, "index")
    damage(order)
    with pytest.raises(AssertionError, match=found):
        check_order(order, free)


def test_blocks_that_fit_into_one_are_found_out() -> None:
    pool = HostAllocator(16 * 6, 1)
    order, index = pool._books()
    free = check_run_index(index, "index")
    # Nine pages leave each of two neighbours without the blocks being merged.
    for block in (2, 3):
        gone = np.arange(block * 16, block * 16 + 9)
        order["pages"][gone] = -1
        order["place"][gone] = 2**32 - 1
        order["live"][block] = 7
        free[gone] = False
    order["length"] -= 18
    with pytest.raises(AssertionError, match="blocks 2 and 3 fit into one"):
        check_order(order, free)


def test_an_order_of_other_pages_than_are_free_is_found_out() -> None:
    order, index = host_books()
    free = check_run_index(index, "index")
    free[650] = True
    with pytest.raises(AssertionError, match="the order holds"):
        check_order(order, free)


@pytest.mark.parametrize(("damage", "found"), INDEX_DAMAGE.values(), ids=INDEX_DAMAGE.keys())
def test_a_damaged_index_is_found_out(damage: Damage, found: str) -> None:
    index = exact_index()
    damage(index)
    with pytest.raises(AssertionError, match=found):
        check_run_index(index, "index")


def test_a_summary_that_is_flagged_may_be_too_high_and_never_too_low() -> None:
    index = exact_index()
    index["flags"][0] = 1
    check_run_index(index, "index")
    leading, longest, trailing, lengths = index["summaries"][4]
    assert longest > 0
    index["summaries"][4] = leading, longest - 1, trailing, lengths
    with pytest.raises(AssertionError, match="chunk 0"):
        check_run_index(index, "index")


def test_a_flag_that_is_missing_is_found_out() -> None:
    pool = HostAllocator(1_200, 1)
    pool.alloc_pages(40)
    index = pool._books()[1]
    check_run_index(index, "index")
    index["flags"][:] = 0
    with pytest.raises(AssertionError, match="chunk 0"):
        check_run_index(index, "index")


def test_a_damaged_lane_is_found_out() -> None:
    pool = OwnerLaneAllocator(600, 1, 2)
    pool.alloc_pages_with_owners([0, 1] * 50)
    pool.return_pages(list(range(1, 20)))
    lanes = pool._books()
    for rank, (free, released) in enumerate(lanes):
        check_lane(rank, free, released)
        for name, state, other in (("free", free, released), ("released", released, free)):
            damaged = copy.deepcopy(state)
            damaged["free"] += 1
            books = (damaged, other) if name == "free" else (other, damaged)
            with pytest.raises(AssertionError, match=f"{name} set of rank {rank}"):
                check_lane(rank, *books)
        with pytest.raises(AssertionError, match=f"rank {rank}: both free and released"):
            check_lane(rank, free, free)


def paged_books(order: str) -> tuple[dict[str, Any], np.ndarray]:
    """Return the books of a pool whose first page stands in the middle of its ring, and of which a group is open."""
    pool = PagedAllocator(5_000, 2, order=order)
    pool.alloc_pages(3_000)
    pool.return_pages(list(range(1, 2_000, 3)))
    pool.alloc_pages(1_990)
    pool.return_pages([2_500, 2_400])
    pool.free_group_begin()
    pool.free([5_600, 5_601, 5_610], partial=True)
    pool.return_pages([2_701, 2_700])
    return pool._books()


def within(name: str, damage: Damage) -> Damage:
    return lambda state: damage(state[name])


PAGED_DAMAGE: dict[str, tuple[str, Damage, str]] = {
    "state: free": ("fifo", element("states", lambda state: 2_600, lambda page: 1), "the order holds"),
    "state: held": ("lifo", element("states", lambda state: 2_600, lambda page: 2), "the group has"),
    "state: taken": ("sorted", element("states", lambda state: 2_400, lambda page: 0), "the order holds"),
    "state: none": ("sorted", element("states", lambda state: 2_600, lambda page: 3), "neither"),
    "state: page 0": ("fifo", element("states", lambda state: 0, lambda page: 0), "reserved"),
    "length": ("fifo", setting("length", lambda length: length - 1), "the order holds"),
    "length: below 0": ("fifo", setting("length", lambda length: -1), "the order counts"),
    "length: too long": ("lifo", setting("length", lambda length: 5_001), "the order counts"),
    "length, sorted": ("sorted", setting("length", lambda length: length - 1), "the order counts"),
    "head": ("fifo", setting("head", lambda head: head + 1), "the order holds"),
    "head: beyond the ring": ("fifo", setting("head", lambda head: 5_000), "the first page stands at"),
    "ring": ("lifo", element("ring", lambda state: state["head"], lambda page: 2_600), "the order holds"),
    "free: count": ("sorted", within("free", setting("count", lambda count: count + 1)), "free pages: counts"),
    "free: words": (
        "sorted",
        within("free", element("words", lambda state: 40, lambda word: word ^ 1)),
        "free pages: counts",
    ),
    "free: a level": (
        "sorted",
        within("free", element("words", lambda state: state["starts"][1], lambda word: word ^ 1 << 50)),
        "free pages: level 1",
    ),
    "free: beyond the last": (
        "sorted",
        within("free", setting("num_pages", lambda pages: 4_000)),
        "free pages: pages beyond the last",
    ),
    "released: the last level": (
        "sorted",
        within("released", element("words", lambda state: state["starts"][2], lambda word: 0)),
        "released pages: level 2",
    ),
    "released: levels": (
        "sorted",
        within("released", setting("starts", lambda starts: [*starts[:-1], starts[-1] + 1])),
        "released pages: levels end at",
    ),
    "both": (
        "sorted",
        lambda state: state.update(released=state["free"]),
        "both free and released",
    ),
}


@pytest.mark.parametrize("order", ["fifo", "lifo", "sorted"])
def test_paged_books_that_are_right_pass(order: str) -> None:
    state, held = paged_books(order)
    assert held.tolist() == [2_800, 2_805, 2_701, 2_700]
    check_free_pages(state, held)
    with pytest.raises(AssertionError, match="the group has"):
        check_free_pages(state, held[1:])


@pytest.mark.parametrize(("order", "damage", "found"), PAGED_DAMAGE.values(), ids=PAGED_DAMAGE.keys())
def test_damaged_paged_books_are_found_out(order: str, damage: Damage, found: str) -> None:
    state, held = paged_books(order)
    damage(state)
    with pytest.raises(AssertionError, match=found):
        check_free_pages(state, held)
