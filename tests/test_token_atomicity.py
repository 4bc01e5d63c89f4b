"""Token containers that are interrupted, shared by threads, copied, or fed by lists that change."""

import copy
import gc
import pickle
import signal
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from kvpool import RequestTokens, TokenBuffer, TokenTable, match_prefix

try:
    from _testcapi import remove_mem_hooks, set_nomemory
except ImportError:  # Some distributions leave it out.
    set_nomemory = None


def table_of(rows: int) -> TokenTable:
    table = TokenTable(rows, 1_000)
    for row in range(rows):
        table.add([row])
    return table


def contents(held: Any) -> Any:
    if isinstance(held, TokenTable):
        return [held.row(row).tolist() for row in range(held.max_requests)]
    return held.fill_ids.tolist() if isinstance(held, RequestTokens) else held.tolist()


@pytest.mark.compiled  # Only one step in C is atomic.
def test_appends_of_several_threads_lose_nothing() -> None:
    buffer, request, table = TokenBuffer(), RequestTokens([]), TokenTable(4, 60_000)
    for _ in range(4):
        table.add(())

    def work(thread: int) -> None:
        for token in range(25_000):
            buffer.append(token)
            request.append(token)
            table.append([thread], [token])
            if token % 50 == 0:
                buffer.extend([thread] * 10)

    threads = [threading.Thread(target=work, args=(thread,)) for thread in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    buffer.check()
    assert len(buffer) == 4 * (25_000 + 500 * 10)
    assert len(request) == 100_000
    assert sorted(request.output.tolist()) == sorted([*range(25_000)] * 4)
    assert all(table.row(row).tolist() == [*range(25_000)] for row in range(4))


class InterruptedByTestError(Exception):
    pass


STEPS: dict[str, tuple[Callable[[], Any], Callable[[Any], Any]]] = {
    "append": (TokenBuffer, lambda held: held.append(7)),
    "append of a numpy integer": (TokenBuffer, lambda held: held.append(np.int64(7))),
    "extend by a list": (TokenBuffer, lambda held: held.extend([7] * 300)),
    "extend by a generator": (TokenBuffer, lambda held: held.extend(7 for _ in range(30))),
    "extend by itself": (lambda: TokenBuffer([1]), lambda held: held.extend(held[:5])),
    "request": (lambda: RequestTokens([1]), lambda held: held.extend((7, 8))),
    "table": (lambda: table_of(8), lambda held: held.append(np.arange(8), np.arange(8))),
    "table by lists": (lambda: table_of(8), lambda held: held.append([*range(8)], [*range(8)])),
}


@pytest.mark.compiled
@pytest.mark.parametrize("name", STEPS)
def test_an_interrupted_call_has_done_all_or_nothing(name: str) -> None:
    build, step = STEPS[name]
    expected = [contents(build())]
    twin = build()
    for _ in range(60):
        step(twin)
        expected.append(contents(twin))

    def interrupt(*_: object) -> None:
        raise InterruptedByTestError

    former = signal.signal(signal.SIGALRM, interrupt)
    try:
        interrupted = 0
        for round_ in range(200):
            held, done = build(), 0
            try:
                try:
                    signal.setitimer(signal.ITIMER_REAL, 1e-5 + 2e-6 * (round_ % 60))
                    while done < 59:
                        step(held)
                        done += 1
                finally:
                    signal.setitimer(signal.ITIMER_REAL, 0)
            except InterruptedByTestError:
                interrupted += 1
            held.check() if not isinstance(held, RequestTokens) else None
            assert contents(held) in (expected[done], expected[done + 1])
        assert interrupted > 0
    finally:
        signal.signal(signal.SIGALRM, former)


@pytest.mark.skipif(set_nomemory is None, reason="CPython's _testcapi is not installed")
@pytest.mark.compiled
@pytest.mark.parametrize("name", STEPS)
def test_a_call_without_memory_has_done_all_or_nothing(name: str) -> None:
    build, step = STEPS[name]
    before, twin = contents(build()), build()
    step(twin)
    after = contents(twin)
    failed = 0
    gc.disable()
    try:
        for nth in range(1, 60):
            held = build()
            try:
                set_nomemory(nth, nth + 1)
                try:
                    step(held)
                finally:
                    remove_mem_hooks()
            except MemoryError:
                failed += 1
            assert contents(held) in (before, after)
    finally:
        gc.enable()
    assert failed > 0 or name == "append"


class Changing:
    """An integer that changes the list it is in when it is asked for its value."""

    def __init__(self, change: Callable[[], Any]) -> None:
        self.change = change

    def __index__(self) -> int:
        self.change()
        return 5


@pytest.mark.parametrize("change", [list.clear, lambda tokens: tokens.extend(range(5_000)), list.reverse])
def test_a_list_that_its_elements_change_is_read_from_a_copy(change: Callable[[list[Any]], Any]) -> None:
    for build in (TokenBuffer, lambda tokens: TokenBuffer() + tokens, RequestTokens):
        tokens: list[Any] = [1, 2]
        tokens += [Changing(lambda tokens=tokens: change(tokens)), 4]
        assert contents(build(tokens)) == [1, 2, 5, 4]
    tokens = [1]
    tokens += [Changing(lambda: change(tokens)), 4]
    assert match_prefix(tokens, [1, 5, 4]) == 3


def test_an_element_that_appends_to_the_buffer_it_is_compared_with() -> None:
    buffer = TokenBuffer([1])
    assert match_prefix(buffer, [1, Changing(lambda: buffer.extend(range(5, 5_000)))]) == 2
    buffer.check()


@pytest.mark.compiled
def test_a_list_that_another_thread_changes_never_shows_what_nobody_wrote() -> None:
    shared: list[int] = []
    stop = threading.Event()

    def work() -> None:
        while not stop.is_set():
            shared.extend([7] * 500)
            shared.clear()

    thread = threading.Thread(target=work)
    thread.start()
    try:
        for _ in range(3_000):
            assert set(TokenBuffer(shared).tolist()) <= {7}
    finally:
        stop.set()
        thread.join()


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, lambda held: pickle.loads(pickle.dumps(held))])
def test_copies_share_nothing(copied: Callable[[Any], Any]) -> None:
    request = RequestTokens(TokenBuffer([1, 2], np.int32))
    request.append(3)
    other = copied(request)
    other.append(4)
    assert (request.fill_ids.tolist(), other.fill_ids.tolist()) == ([1, 2, 3], [1, 2, 3, 4])
    assert (other.origin.tolist(), other.fill_ids.dtype) == ([1, 2], np.int32)
    table = TokenTable(4, 5, np.int64)
    for tokens in ([1, 2], [3], [4]):
        table.add(tokens)
    table.remove(1)
    other = copied(table)
    other.check()
    other.append([0], [9])
    assert other.lengths.tolist() == [3, 0, 1, 0]
    assert table.lengths.tolist() == [2, 0, 1, 0]
    assert other.add([5]) == 1
    assert (other.dtype, other.max_requests, other.max_tokens) == (np.int64, 4, 5)


def test_what_was_not_initialised_is_empty_and_harmless() -> None:
    buffer = TokenBuffer.__new__(TokenBuffer)
    if not hasattr(buffer, "dtype"):
        pytest.skip("as plain Python it is an object without fields")
    buffer.append(3)
    assert buffer.tolist() == [3]
    request = RequestTokens.__new__(RequestTokens)
    request.append(3)
    assert request.fill_ids.tolist() == [3]
    table = TokenTable.__new__(TokenTable)
    with pytest.raises(ValueError, match="row"):
        table.append([0], [1])
    with pytest.raises(ValueError, match="row"):
        table.row(0)
