"""Whatever interrupts a call, the tokens are as before it or as after it: threads, signals, elements, no memory."""

import copy
import gc
import pickle
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from kvpool import RequestTokens, TokenBuffer, TokenTable, match_prefix

CALLS = 20_000
APPENDS = 80_000
SOME = list(range(1000, 1040))

Call = Callable[[Any], Any]


class StruckError(Exception):
    """What a signal handler raises."""


def full_buffer() -> TokenBuffer:
    return TokenBuffer(range(1000, 1600))


def roomy_buffer() -> TokenBuffer:
    buffer = TokenBuffer(range(1000, 1600), np.int32)
    buffer.append(7)
    return buffer


def shortened_buffer() -> TokenBuffer:
    """What is appended next goes into a new buffer, as there was a view."""
    tokens = roomy_buffer()
    view = tokens.numpy()
    tokens.truncate(400)
    assert len(view) == 601
    return tokens


def request() -> RequestTokens:
    tokens = RequestTokens(range(1000, 1600))
    tokens.extend([5, 6])
    return tokens


def table() -> TokenTable:
    rows = TokenTable(6, 60)
    for tokens in (SOME, [1], [], range(60)):
        rows.add(tokens)
    rows.remove(1)
    return rows


def state_of(tokens: Any) -> Any:
    """All that a caller can see."""
    if isinstance(tokens, RequestTokens):
        assert len(tokens) == len(tokens.fill_ids)
        return tokens.fill_ids.dtype, tokens.origin.tolist(), tokens.output.tolist()
    tokens.check()
    if isinstance(tokens, TokenTable):
        in_use = [row for row, append in enumerate(tokens._state()["appended"].tolist()) if append >= 0]
        return tokens.lengths.tolist(), {row: tokens.row(row).tolist() for row in in_use}
    return tokens.dtype, tokens.tolist()


BUFFER_CALLS: dict[str, Call] = {
    "append": lambda tokens: tokens.append(5),
    "append, numpy int": lambda tokens: tokens.append(np.int64(5)),
    "append, large": lambda tokens: tokens.append(2**31 - 1),
    "append, too large": lambda tokens: tokens.append(2**64),
    "append, bool": lambda tokens: tokens.append(True),
    "extend, list": lambda tokens: tokens.extend(SOME),
    "extend, tuple of numpy ints": lambda tokens: tokens.extend(tuple(np.array(SOME))),
    "extend, long": lambda tokens: tokens.extend(range(5000)),
    "extend, generator": lambda tokens: tokens.extend(token for token in SOME),
    "extend, ndarray": lambda tokens: tokens.extend(np.array(SOME)),
    "extend, int32 tensor": lambda tokens: tokens.extend(torch.tensor(SOME, dtype=torch.int32)),
    "extend, too large": lambda tokens: tokens.extend([1, 2**64]),
    "truncate": lambda tokens: tokens.truncate(600 if len(tokens) > 600 else 300),
    "truncate, numpy int": lambda tokens: tokens.truncate(np.int64(600 if len(tokens) > 600 else 300)),
    "truncate, not": lambda tokens: tokens.truncate(-1),
    "tolist": lambda tokens: (tokens.tolist(5, -5), tokens.tolist(None, np.int64(9))),
    "construct": lambda tokens: TokenBuffer(SOME),
    "construct, int32 of int64": lambda tokens: TokenBuffer(np.array(SOME), np.int32),
    "construct, TokenBuffer": lambda tokens: TokenBuffer(TokenBuffer(SOME)),
    "construct again": lambda tokens: tokens.__init__(SOME),
    "construct, not": lambda tokens: tokens.__init__([1.5]),
    "match_prefix": lambda tokens: match_prefix(SOME, TokenBuffer(SOME)),
    "match_prefix, from a start": lambda tokens: match_prefix(tokens, SOME, start=np.int64(4), limit=9),
}
ONLY_BUFFER: dict[str, Call] = {
    "extend by itself": lambda tokens: tokens.extend(tokens),
    "extend by a view": lambda tokens: tokens.extend(tokens[::-1]),
    "extend by a tensor of itself": lambda tokens: tokens.extend(tokens.torch()),
    "+": lambda tokens: tokens + SOME,
    "+ on the right": lambda tokens: SOME + tokens,
    "==": lambda tokens: tokens == SOME,
    "views": lambda tokens: (tokens.numpy(), tokens[1:3], tokens.torch(), tokens.tolist(), tokens[-1]),
    "copy": lambda tokens: copy.copy(tokens),
    "pickle": lambda tokens: pickle.loads(pickle.dumps(tokens)),
    "repr": lambda tokens: repr(tokens),
}
TABLE_CALLS: dict[str, Call] = {
    "add": lambda rows: rows.add(SOME),
    "add, numpy ints": lambda rows: rows.add(list(np.array(SOME))),
    "add, too long": lambda rows: rows.add(range(61)),
    "add, to a row": lambda rows: rows.add(SOME, 5),
    "add, to a row in use": lambda rows: rows.add(SOME, np.int64(3)),
    "write": lambda rows: rows.write(0, 20, SOME),
    "write, numpy ints": lambda rows: rows.write(np.int64(0), np.int8(40), list(np.array(SOME[:20]))),
    "write, ndarray": lambda rows: rows.write(2, 0, np.array(SOME)),
    "write, too long": lambda rows: rows.write(0, 21, SOME),
    "write, beyond": lambda rows: rows.write(0, 41, []),
    "truncate": lambda rows: rows.truncate(3, 7),
    "truncate, numpy int": lambda rows: rows.truncate(np.int64(3), np.int64(7)),
    "truncate, not": lambda rows: rows.truncate(0, 41),
    "swap": lambda rows: rows.swap(0, 3),
    "swap, numpy ints": lambda rows: rows.swap(np.int8(2), np.int8(0)),
    "swap, not": lambda rows: rows.swap(0, 1),
    "move": lambda rows: rows.move(3, 1),
    "move, numpy ints": lambda rows: rows.move(np.int8(0), np.int8(5)),
    "move, not": lambda rows: rows.move(0, 3),
    "tensor": lambda rows: rows.tensor(),
    "append, ndarrays": lambda rows: rows.append(np.array([0, 2]), np.array([8, 9])),
    "append, tensors": lambda rows: rows.append(torch.tensor([0, 2]), torch.tensor([8, 9])),
    "append, lists": lambda rows: rows.append([0, 2], [8, 9]),
    "append, numpy ints": lambda rows: rows.append([np.int64(0), 2], [8, np.int16(9)]),
    "append, full": lambda rows: rows.append([0, 3], [8, 9]),
    "append, twice": lambda rows: rows.append([0, 2, 0], [8, 9, 8]),
    "append, too large": lambda rows: rows.append([0, 2], [8, 2**40]),
    "remove": lambda rows: rows.remove(0) or rows.add(range(3)),
    "row": lambda rows: rows.row(0),
    "lengths": lambda rows: rows.lengths,
    "construct": lambda rows: TokenTable(3, 3),
    "copy": lambda rows: copy.copy(rows),
    "pickle": lambda rows: pickle.loads(pickle.dumps(rows)),
}
HELD: dict[str, tuple[Callable[[], Any], dict[str, Call]]] = {
    "full buffer": (full_buffer, BUFFER_CALLS | ONLY_BUFFER),
    "roomy buffer": (roomy_buffer, BUFFER_CALLS | ONLY_BUFFER),
    "shortened buffer": (shortened_buffer, BUFFER_CALLS | ONLY_BUFFER),
    "request": (request, BUFFER_CALLS),
    "table": (table, {name: call for name, call in TABLE_CALLS.items() if name != "remove"}),
}


def outcomes(name: str, call: str) -> tuple[Any, Any]:
    """Return what is held before a call and after it."""
    build, calls = HELD[name]
    tokens = build()
    before = state_of(tokens)
    try:
        calls[call](tokens)
    except (ValueError, TypeError):
        assert state_of(tokens) == before
    return before, state_of(tokens)


def _strike(number: int, frame: Any) -> None:
    raise StruckError


@pytest.mark.compiled  # Plain Python is interrupted anywhere.
@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="there are no timers on this system")
@pytest.mark.parametrize("name", HELD)
def test_a_signal_leaves_the_tokens_as_before_or_after_the_call(name: str) -> None:
    build, calls = HELD[name]
    results = {call: outcomes(name, call) for call in calls}
    random = np.random.Generator(np.random.PCG64(8))
    struck = 0
    for _ in range(CALLS // len(calls) // 4 + 1):
        for call, made in calls.items():
            tokens = build()
            try:
                signal.signal(signal.SIGALRM, _strike)
                signal.setitimer(signal.ITIMER_REAL, float(random.uniform(1e-6, 3e-5)))
                made(tokens)
            except StruckError:
                struck += 1
            except (ValueError, TypeError):
                pass
            while True:
                try:
                    signal.setitimer(signal.ITIMER_REAL, 0)
                    signal.signal(signal.SIGALRM, signal.SIG_IGN)
                    break
                except StruckError:
                    struck += 1
            assert state_of(tokens) in results[call], f"{call} was torn"
    assert struck > CALLS // 400


@pytest.mark.compiled
@pytest.mark.parametrize("dtype", [np.int64, np.int32])
def test_threads_that_append_lose_nothing(dtype: Any) -> None:
    buffer, request = TokenBuffer((), dtype), RequestTokens([])
    rows = TokenTable(4, APPENDS, dtype)
    for _ in range(4):
        rows.add([])

    def append(number: int) -> None:
        row, token = np.array([number]), np.array([number])
        for turn in range(APPENDS):
            buffer.append(number)
            if turn % 4 == 0:
                buffer.extend([number, number])
            request.append(number)
            rows.append(row, token)

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        threads = [threading.Thread(target=append, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    assert np.bincount(buffer.numpy()).tolist() == [APPENDS + APPENDS // 2] * 4
    assert np.bincount(request.fill_ids).tolist() == [APPENDS] * 4
    assert [rows.row(row).tolist() for row in range(4)] == [[row] * APPENDS for row in range(4)]
    buffer.check()
    rows.check()


@pytest.mark.compiled
def test_threads_that_change_rows_of_their_own_do_not_disturb_each_other() -> None:
    shared, alone = TokenTable(9, 40), TokenTable(9, 40)
    for rows in (shared, alone):
        for row in range(8):
            rows.add([row])

    def change(rows: TokenTable, number: int) -> None:
        first, second = 2 * number, 2 * number + 1
        for turn in range(10_000):
            rows.write(first, 1, [number, turn] * (turn % 20))
            rows.swap(first, second)
            rows.append([first, second], [turn, number])
            rows.truncate(second, turn % 4)
            rows.remove(second)
            rows.add(rows.row(first)[-30:], row=second)

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        threads = [threading.Thread(target=change, args=(shared, number)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    for number in range(4):
        change(alone, number)
    assert state_of(shared) == state_of(alone)


class Calls:
    """An integer whose conversion calls back."""

    def __init__(self, value: int, back: Callable[[], Any]) -> None:
        self.value, self.back = value, back

    def __index__(self) -> int:
        self.back()
        return self.value


class CallsAsInt(int):
    """An integer by its type, whose conversion calls back."""

    back: Callable[[], Any]

    def __int__(self) -> int:
        self.back()
        return super().__int__()


def calls_as_int(value: int, back: Callable[[], Any]) -> CallsAsInt:
    number = CallsAsInt(value)
    number.back = back
    return number


class Refuses:
    """An integer whose conversion fails."""

    def __index__(self) -> int:
        raise KeyboardInterrupt


@pytest.mark.parametrize("name", HELD)
@pytest.mark.parametrize("place", [0, 20, 39])
def test_an_element_that_cannot_be_converted_changes_nothing(name: str, place: int) -> None:
    tokens = HELD[name][0]()
    before = state_of(tokens)
    values: list[Any] = [*SOME[:place], Refuses(), *SOME[place + 1 :]]
    calls: list[Callable[[], Any]] = [lambda: match_prefix(values, SOME), lambda: TokenBuffer(values)]
    if name == "table":
        calls += [
            lambda: tokens.add(values),
            lambda: tokens.append([0, Refuses()], [1, 1]),
            lambda: tokens.append([0, 2], [1, Refuses()]),
        ]
    else:
        calls += [
            lambda: tokens.extend(values),
            lambda: tokens.append(Refuses()),
            lambda: tokens.__init__(values),
        ]
    for call in calls:
        with pytest.raises(KeyboardInterrupt):
            call()
        assert state_of(tokens) == before


@pytest.mark.parametrize(
    "change",
    [list.clear, lambda values: values.extend([9] * 10_000), list.reverse],
    ids=["less", "more", "another order"],
)
@pytest.mark.parametrize("dtype", [np.int64, np.int32])
def test_a_list_that_its_elements_change_is_read_as_it_was(change: Any, dtype: Any) -> None:
    def changing() -> list[Any]:
        values: list[Any] = []
        values.extend([5, Calls(6, lambda: change(values)), 7, np.int64(8)])
        return values

    buffer = TokenBuffer(changing(), dtype)
    buffer.extend(changing())
    rows = TokenTable(2, 10, dtype)
    rows.add(changing())
    rows.add([])
    rows.append([0, 1], changing()[1:3])
    assert buffer.tolist() == [5, 6, 7, 8] * 2
    assert (buffer + changing()).tolist() == [5, 6, 7, 8] * 3
    assert RequestTokens(changing()).origin.tolist() == [5, 6, 7, 8]
    assert match_prefix(changing(), [5, 6, 7, 8, 9]) == 4
    assert (rows.row(0).tolist(), rows.row(1).tolist()) == ([5, 6, 7, 8, 6], [7])


def test_elements_that_append_to_the_buffer_they_extend() -> None:
    buffer = TokenBuffer([1])
    buffer.extend([Calls(2, lambda: buffer.append(8)), Calls(3, lambda: buffer.extend(range(600)))])
    assert buffer.tolist() == [1, 8, *range(600), 2, 3]
    buffer.append(Calls(4, lambda: buffer.extend(range(600))))
    assert buffer.tolist() == [1, 8, *range(600), 2, 3, *range(600), 4]
    buffer.check()


def test_an_element_that_appends_to_the_buffer_it_is_compared_with() -> None:
    buffer = TokenBuffer([1])
    assert match_prefix(buffer, [1, Calls(5, lambda: buffer.extend(range(5, 5_000)))]) == 2
    buffer.check()


def test_elements_that_shorten_the_buffer_they_extend() -> None:
    buffer = TokenBuffer(range(1000))
    view = buffer.numpy()
    buffer.extend([Calls(2, lambda: buffer.truncate(1)), 3])
    buffer.append(Calls(4, lambda: buffer.truncate(2)))
    assert buffer.tolist() == [0, 2, 4]
    assert view.tolist() == [*range(1000)]
    buffer.check()


def test_numbers_that_change_what_they_are_used_on() -> None:
    buffer, request = TokenBuffer(range(9)), RequestTokens(range(4))
    request.extend(range(4, 9))
    for held in (buffer, request):
        with pytest.raises(ValueError, match=r"n must be between (0|4, which the origin has,) and 5, not 8"):
            held.truncate(calls_as_int(8, lambda held=held: held.truncate(5)))
        assert held.tolist(calls_as_int(-3, lambda held=held: held.append(7)), -1) == [3, 4]
        assert held.tolist(0, calls_as_int(5, lambda held=held: held.truncate(4))) == [0, 1, 2, 3]
    with pytest.raises(ValueError, match="n must be between 9, which the origin has, and 9, not 5"):
        request.truncate(calls_as_int(5, lambda: request.__init__(range(9))))  # type: ignore[misc]
    assert request.tolist() == [*range(9)]
    buffer.check()


@pytest.mark.parametrize("dtypes", [(np.int64, np.int8), (np.int8, np.int64)])
def test_elements_that_build_what_they_are_added_to_anew(dtypes: Any) -> None:
    def building(again: Any, *arguments: Any) -> Calls:
        return Calls(3, lambda: again.__init__(*arguments, dtypes[1]))

    buffer = TokenBuffer([1] * 100, dtypes[0])
    buffer.extend([building(buffer, [2]), 4])
    assert buffer.tolist() == [2, 3, 4]
    buffer.append(building(buffer, []))
    assert buffer.tolist() == [3]
    assert buffer.dtype == dtypes[1]
    buffer.check()
    buffer.__init__([1], np.int64)  # type: ignore[misc]
    with pytest.raises(OverflowError, match="token 300 does not fit int8"):
        buffer.append(Calls(300, lambda: buffer.__init__([2], np.int8)))  # type: ignore[misc]
    assert buffer.tolist() == [2]


@pytest.mark.parametrize("dtypes", [(np.int64, np.int32), (np.int32, np.int64)])
def test_elements_that_build_the_table_anew(dtypes: Any) -> None:
    rows = TokenTable(2, 5, dtypes[0])
    again = Calls(3, lambda: rows.__init__(3, 4, dtypes[1]))  # type: ignore[misc]
    assert rows.add([again, 4]) == 0
    assert (rows.max_requests, rows.max_tokens, rows.dtype) == (3, 4, dtypes[1])
    with pytest.raises(ValueError, match="row 0 is not in use"):
        rows.append([0], [again])  # type: ignore[list-item]
    assert rows.lengths.tolist() == [0, 0, 0]
    rows.__init__(1, 5, np.int64)  # type: ignore[misc]
    rows.add([])
    with pytest.raises(OverflowError, match="does not fit int32"):
        rows.add([Calls(2**40, lambda: rows.__init__(1, 5, np.int32))])  # type: ignore[misc]
    assert rows.lengths.tolist() == [0]


def test_numbers_and_elements_that_change_the_table_they_are_used_on() -> None:
    rows = TokenTable(3, 5)
    rows.add([1, 2, 3])
    rows.add([4])
    with pytest.raises(ValueError, match="row 2 is in use"):
        rows.add([Calls(7, lambda: rows.add([9]))], row=2)
    with pytest.raises(ValueError, match="offset must be between 0 and 1, not 3"):
        rows.write(0, 3, [Calls(7, lambda: rows.truncate(0, 1))])
    with pytest.raises(ValueError, match="row 1 is not in use"):
        rows.write(calls_as_int(1, lambda: rows.remove(1)), 0, [5])
    with pytest.raises(ValueError, match="n must be between 0 and 1, not 2"):
        rows.truncate(calls_as_int(0, lambda: rows.truncate(0, 1)), 2)
    with pytest.raises(ValueError, match="n must be between 0 and 0, not 1"):
        rows.truncate(0, calls_as_int(1, lambda: rows.truncate(0, 0)))
    with pytest.raises(ValueError, match="row 2 is not in use"):
        rows.swap(2, calls_as_int(0, lambda: rows.remove(2)))
    with pytest.raises(ValueError, match="row 1 is in use"):
        rows.move(0, calls_as_int(1, lambda: rows.add([6])))
    rows.write(0, 1, [Calls(7, lambda: rows.swap(0, 1)), 8])
    assert state_of(rows)[1] == {0: [6, 7, 8], 1: []}


def test_elements_that_add_to_the_table_that_they_are_added_to() -> None:
    rows = TokenTable(2, 5)
    assert rows.add([1, Calls(2, lambda: rows.add([7]))]) == 1
    assert (rows.row(0).tolist(), rows.row(1).tolist()) == ([7], [1, 2])
    with pytest.raises(ValueError, match="row 0 is not in use"):
        rows.append([0, 1], [1, Calls(1, lambda: rows.remove(0))])
    assert rows.lengths.tolist() == [0, 2]


@pytest.mark.compiled  # As plain Python a list is read in many steps.
def test_a_list_that_a_thread_changes_is_read_in_one_step() -> None:
    values: list[int] = []
    stop = threading.Event()

    def change() -> None:
        # At every instant all of them, or none.
        while not stop.is_set():
            for target in (SOME, []):
                values[:] = target

    thread = threading.Thread(target=change)
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    thread.start()
    try:
        found = [0, 0]
        deadline = time.monotonic() + 5
        while min(found) < 100 and time.monotonic() < deadline:
            buffer = TokenBuffer(values, np.int32)
            buffer.extend(values)
            assert set(buffer.tolist()) <= set(SOME)
            assert len(buffer) % 40 == 0
            found[len(buffer) > 0] += 1
            assert match_prefix(values, SOME) in (0, 40)
    finally:
        stop.set()
        thread.join()
        sys.setswitchinterval(interval)
    assert found[1] > 0


class CallsBack:
    """Garbage in a cycle, whose finaliser calls a buffer."""

    def __init__(self, back: Callable[[], Any]) -> None:
        self.back, self.cycle = back, self

    def __del__(self) -> None:
        self.back()


@pytest.mark.compiled  # Plain Python runs finalisers anywhere.
def test_finalisers_that_append_run_between_steps() -> None:
    buffer, request, rows = TokenBuffer(), RequestTokens([]), TokenTable(2, 20_000)
    rows.add([])
    rows.add([])
    called = 0

    def back() -> None:
        nonlocal called
        called += 1
        buffer.append(1)
        request.append(1)
        rows.append([0], [1])

    thresholds = gc.get_threshold()
    gc.set_threshold(1)
    try:
        for turn in range(600):
            for call in (
                lambda: buffer.append(2),
                lambda: buffer.append(np.int64(2)),
                lambda: buffer.extend([2] * 40),
                lambda: request.extend((2, np.int64(2))),
                lambda: rows.append([0, 1], [2, 2]),
                lambda: rows.append(np.array([1, 0]), np.array([2, 2])),
            ):
                CallsBack(back)
                call()
            assert pickle.loads(pickle.dumps(buffer)) is not None
            if turn % 50 == 0:
                buffer.check()
                rows.check()
    finally:
        gc.set_threshold(*thresholds)
    gc.collect()
    assert called == 3600
    assert np.bincount(buffer.numpy()).tolist() == [0, called, 600 * 42]
    assert np.bincount(request.fill_ids).tolist() == [0, called, 600 * 2]
    assert np.bincount(rows.row(0)).tolist() == [0, called, 600 * 2]
    assert rows.lengths.tolist() == [called + 1200, 1200]


@pytest.mark.compiled  # Plain Python runs finalisers anywhere.
@pytest.mark.parametrize(
    "change",
    [lambda buffer: buffer.__init__([7] * 10, np.int8), lambda buffer: (buffer.truncate(0), buffer.extend([7] * 10))],
)
def test_a_finaliser_that_changes_a_buffer_while_it_is_listed(change: Any) -> None:
    buffer = TokenBuffer(range(1000))
    thresholds = gc.get_threshold()
    gc.set_threshold(1)
    try:
        for _ in range(100):
            buffer.__init__(range(1000))  # type: ignore[misc]
            CallsBack(lambda: change(buffer))
            assert buffer.tolist() in ([*range(1000)], [7] * 10)
    finally:
        gc.set_threshold(*thresholds)
    buffer.check()


# In a process of its own, as what else runs out of memory there is not ours to say.
WITHOUT_MEMORY = """
import gc, sys
import _testcapi
from tests.kvpool.test_token_interrupted import HELD, outcomes, state_of


def error_of(made, tokens, step):
    # In a function, whose variables take no memory.
    _testcapi.set_nomemory(step, step + 1)
    try:
        made(tokens)
    except BaseException as raised:
        return raised
    finally:
        _testcapi.remove_mem_hooks()

gc.disable()
build, calls = HELD[sys.argv[1]]
for call, made in calls.items():
    before, after = outcomes(sys.argv[1], call)
    for step in range(60):
        tokens = build()
        error = error_of(made, tokens, step)
        state = state_of(tokens)
        assert state in (before, after), f"{call}, step {step}: torn by {error!r}"
        assert state == before or error is None, f"{call}, step {step}: changed, and raised {error!r}"
"""


@pytest.mark.compiled
@pytest.mark.parametrize("name", HELD)
def test_no_memory_at_any_step_leaves_the_tokens_as_before_or_after(name: str) -> None:
    pytest.importorskip("_testcapi")
    done = subprocess.run(
        [sys.executable, "-X", "faulthandler", "-c", WITHOUT_MEMORY, name], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
