"""The token containers as Python types: copies, pickles, subclasses, keyword arguments, signatures."""

import copy
import inspect
import pickle
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from kvpool import RequestTokens, TokenBuffer, TokenTable, match_prefix


class Buffer(TokenBuffer):
    """A subclass with an `__init__` of its own."""

    def __init__(self, tokens: Any, *, name: str = "") -> None:
        super().__init__(tokens)
        self.name = name


class Request(RequestTokens):
    """A subclass with attributes."""

    priority = 0


class Table(TokenTable):
    """A subclass with attributes."""

    name = ""


def table(kind: Any = TokenTable) -> Any:
    rows = kind(3, 5, np.int64)
    for tokens in ([1, 2], [3], []):
        rows.add(tokens)
    rows.remove(1)
    return rows


def shown(rows: TokenTable) -> Any:
    return rows.lengths.tolist(), rows.row(0).tolist(), rows.row(2).tolist(), rows.dtype, rows.max_tokens


COPIED: list[Callable[[Any], Any]] = [
    copy.copy,
    copy.deepcopy,
    *(lambda held, protocol=protocol: pickle.loads(pickle.dumps(held, protocol)) for protocol in range(6)),
]
every_copy = pytest.mark.parametrize("copied", COPIED)


@every_copy
def test_a_copy_of_a_table_shares_nothing(copied: Callable[[Any], Any]) -> None:
    rows = table()
    again = copied(rows)
    again.check()
    assert shown(again) == shown(rows) == ([2, 0, 0], [1, 2], [], np.int64, 5)
    again.append([0, 2], [7, 8])
    assert again.add([9]) == 1
    rows.append([0], [6])
    assert shown(again)[:3] == ([3, 1, 1], [1, 2, 7], [8])
    assert shown(rows)[:3] == ([3, 0, 0], [1, 2, 6], [])


@every_copy
def test_a_copy_of_a_request_shares_nothing(copied: Callable[[Any], Any]) -> None:
    request = RequestTokens(TokenBuffer([1, 2], np.int32))
    request.append(3)
    again = copied(request)
    again.append(4)
    request.append(5)
    assert (again.origin.tolist(), again.output.tolist()) == ([1, 2], [3, 4])
    assert (request.origin.tolist(), request.output.tolist()) == ([1, 2], [3, 5])
    assert again.fill_ids.dtype == np.int32


@every_copy
def test_a_copy_of_a_subclass_keeps_its_attributes(copied: Callable[[Any], Any]) -> None:
    request, rows = Request([1]), table(Table)
    request.priority = 3
    rows.name = "decode"
    again, rows_again = copied(request), copied(rows)
    assert (type(again), again.priority, again.origin.tolist()) == (Request, 3, [1])
    assert (type(rows_again), rows_again.name, shown(rows_again)) == (Table, "decode", shown(rows))
    assert type(copied(Buffer([1], name="a"))) is Buffer


def test_a_pickle_of_a_table_holds_its_tokens_and_no_room() -> None:
    rows = TokenTable(100, 10_000)
    rows.add(range(10))
    assert len(pickle.dumps(rows)) < 2_000


def test_a_damaged_pickle_of_a_table_is_refused() -> None:
    build, (kind, max_tokens, lengths, tokens) = table().__reduce__()[:2]
    for damaged in ([6, -1, 0], [5, -1, 0], [-2, -1, 0]):
        with pytest.raises(ValueError, match="row 0 is said to hold"):
            build(kind, max_tokens, np.array(damaged), tokens)
    assert shown(build(kind, max_tokens, lengths, tokens)) == shown(table())


def test_a_damaged_pickle_of_tokens_is_refused() -> None:
    for values in (np.zeros((2, 2), np.int64), np.zeros(2)):
        with pytest.raises(ValueError, match="one dimension of integers"):
            TokenBuffer._over(values)  # type: ignore[attr-defined]
    build, (kind, values, length) = RequestTokens([1, 2]).__reduce__()[:2]
    with pytest.raises(ValueError, match="the origin has 3 of 2 tokens"):
        build(kind, values, length + 1)


@pytest.mark.parametrize("values", [np.arange(6)[::2], np.arange(3, dtype=">i4"), np.arange(24, dtype=np.uint8)[1::8]])
def test_a_buffer_over_any_array_of_integers(values: Any) -> None:
    buffer = TokenBuffer._over(values)  # type: ignore[attr-defined]
    buffer.append(5)
    assert buffer.tolist() == [*values.tolist(), 5]
    buffer.check()


def test_what_was_never_initialised_holds_nothing() -> None:
    for kind in (TokenBuffer, Buffer):
        buffer = kind.__new__(kind)
        buffer.truncate(0)
        assert (len(buffer), buffer.tolist(), buffer.torch().tolist()) == (0, [], [])
        buffer.append(5)
        assert buffer.tolist() == [5]
        buffer.check()
    request = RequestTokens.__new__(RequestTokens)
    request.append(5)
    assert (request.origin.tolist(), request.output.tolist()) == ([], [5])
    request.truncate(0)
    assert request.tolist() == []
    rows = TokenTable.__new__(TokenTable)
    rows.check()
    rows.append([], [])
    assert rows.lengths.tolist() == []
    assert rows.tensor().shape == (0, 1)
    for call in (
        lambda: rows.add([1]),
        lambda: rows.add([1], 0),
        lambda: rows.row(0),
        lambda: rows.append([0], [1]),
        lambda: rows.write(0, 0, [1]),
        lambda: rows.truncate(0, 0),
        lambda: rows.swap(0, 0),
        lambda: rows.move(0, 0),
    ):
        with pytest.raises(ValueError, match="row"):
            call()


def test_every_type_can_be_referred_to_weakly() -> None:
    for held in (TokenBuffer(), RequestTokens([]), table()):
        assert weakref.ref(held)() is held


def test_views_keep_the_memory_that_they_are_of() -> None:
    buffer, request, rows = TokenBuffer([1, 2]), RequestTokens([1, 2]), table()
    views = [buffer.numpy(), buffer[1:], request.origin, request.committed(1), rows.row(0), rows.lengths]
    tensor, whole = buffer.torch(), rows.tensor()
    expected = [view.tolist() for view in views]
    del buffer, request, rows
    again = [TokenBuffer(range(1000)), table()]
    assert [view.tolist() for view in views] == expected
    assert tensor.tolist() == [1, 2]
    assert whole[0, :2].tolist() == [1, 2]
    del again


def test_arguments_are_taken_by_name() -> None:
    buffer = TokenBuffer(tokens=[1], dtype=np.int32)
    buffer.append(token=2)
    buffer.extend(tokens=[3])
    assert buffer.tolist(start=1, stop=3) == [2, 3]
    buffer.truncate(n=3)
    request = RequestTokens(origin=[1, 2])
    request.append(token=3)
    request.extend(tokens=[4])
    request.truncate(n=4)
    assert request.tolist(start=1, stop=-1) == [2, 3]
    rows = TokenTable(max_requests=2, max_tokens=3, dtype=np.int64)
    assert rows.add(tokens=[1]) == 0
    rows.append(rows=[0], tokens=[2])
    assert rows.row(row=0).tolist() == request.committed(length=2).tolist() == [1, 2]
    rows.truncate(row=0, n=1)
    rows.write(row=0, offset=1, tokens=[7])
    rows.move(source=0, target=1)
    assert rows.add(tokens=[], row=0) == 0
    rows.swap(a=0, b=1)
    assert rows.row(0).tolist() == [1, 7]
    rows.remove(row=0)
    assert match_prefix(a=buffer, b=request, page_size=2, start=2, limit=3) == 2


def test_signatures_are_those_of_the_functions() -> None:
    assert str(inspect.signature(match_prefix)) == "(a, b, page_size=1, *, start=0, limit=None)"
    assert list(inspect.signature(TokenTable.append).parameters) == ["self", "rows", "tokens"]
    assert list(inspect.signature(Request).parameters) == ["origin"]
    assert list(inspect.signature(Buffer).parameters) == ["tokens", "name"]


@pytest.mark.parametrize("kind", [TokenBuffer, RequestTokens, TokenTable])
def test_every_public_method_says_what_it_does(kind: Any) -> None:
    for name, method in vars(kind).items():
        if not name.startswith("_"):
            assert method.__doc__, name
            assert not method.__doc__.startswith(name), f"{name} begins with its signature"


@pytest.mark.parametrize("masked", [np.ma.array([1, 2], mask=[False, True]), np.ma.array([1, 2])])
def test_a_masked_array_is_refused(masked: Any) -> None:
    buffer, table = TokenBuffer([1]), TokenTable(2, 4)
    for call in (TokenBuffer, RequestTokens, buffer.extend, table.add, lambda tokens: match_prefix([1, 2], tokens)):
        with pytest.raises(TypeError, match="masked"):
            call(masked)
    assert buffer.tolist() == [1]
    assert table.lengths.tolist() == [0, 0]
