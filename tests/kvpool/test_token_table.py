"""TokenTable: rows that come and go, one decode step for many of them, and everything it refuses."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from kvpool import TokenBuffer, TokenTable
from kvpool._token_books import check_token_rows
from tests.kvpool.pools import INPUTS as INTEGERS
from tests.kvpool.tokens import EMPTY, INPUTS, REFUSED, REFUSED_IDS, Convert

TOKENS = [5, 6, 7]
DTYPES = [np.int32, np.int64]
every_dtype = pytest.mark.parametrize("dtype", DTYPES)


def contents(table: TokenTable) -> Any:
    """All that a caller can see of a table."""
    rows: list[list[int] | None] = []
    for row in range(table.max_requests):
        try:
            rows.append(table.row(row).tolist())
        except ValueError:
            rows.append(None)
    return rows, table.lengths.tolist()


@pytest.fixture(params=DTYPES)
def table(request: pytest.FixtureRequest) -> TokenTable:
    """Four rows of five: three tokens, not in use, full, none."""
    table = TokenTable(4, 5, request.param)
    for tokens in ([1, 2, 3], [4], range(5), []):
        table.add(tokens)
    table.remove(1)
    return table


@pytest.fixture
def unchanged(table: TokenTable) -> Any:
    before = contents(table)
    yield table
    assert contents(table) == before
    table.check()
    table.append([0, 3], [9, 8])
    assert table.row(0).tolist() == [1, 2, 3, 9]
    assert table.row(3).tolist() == [8]
    assert table.add([]) == 1


@pytest.mark.parametrize("convert", INPUTS.values(), ids=INPUTS.keys())
@every_dtype
def test_adds_and_appends_every_input(convert: Convert, dtype: Any) -> None:
    table = TokenTable(3, 4, dtype)
    rows = [table.add(convert(TOKENS)) for _ in range(3)]
    assert rows == [0, 1, 2]
    table.append(rows, convert(TOKENS))
    assert [table.row(row).tolist() for row in rows] == [[*TOKENS, token] for token in TOKENS]
    assert table.row(0).dtype == table.dtype == dtype
    table.check()


@pytest.mark.parametrize("convert", INTEGERS.values(), ids=INTEGERS.keys())
@every_dtype
def test_appends_to_rows_of_every_input(convert: Callable[[list[int]], Any], dtype: Any) -> None:
    table = TokenTable(3, 4, dtype)
    for _ in range(3):
        table.add([])
    table.append(convert([2, 0]), [5, 6])
    assert contents(table) == ([[6], [], [5]], [1, 0, 1])


@pytest.mark.parametrize("empty", EMPTY.values(), ids=EMPTY.keys())
def test_adds_and_appends_nothing(empty: Any, table: TokenTable) -> None:
    before = contents(table)
    table.append([], empty())
    table.append(empty(), [])
    assert contents(table) == before
    assert table.add(empty()) == 1
    assert len(table.row(1)) == 0


@every_dtype
def test_holds_the_limits_of_its_dtype_and_nothing_beyond(dtype: Any) -> None:
    limits = np.iinfo(dtype)
    low, high = int(limits.min), int(limits.max)
    table = TokenTable(2, 3, dtype)
    table.add([low, high])
    table.add(np.array([high, low], dtype))
    table.append([0, 1], [low, high])
    assert contents(table)[0] == [[low, high, low], [high, low, high]]
    table.remove(0)
    table.remove(1)
    table.add([])
    table.add([])
    for beyond in (low - 1, high + 1):
        for tokens in ([1, beyond], [beyond, 1]):
            with pytest.raises(OverflowError, match=f"token {beyond} does not fit"):
                table.append([0, 1], tokens)
            if -(2**63) <= beyond < 2**63:
                with pytest.raises(OverflowError, match=f"token {beyond} does not fit"):
                    table.append(np.array([0, 1]), np.array(tokens, np.int64))
    assert contents(table) == ([[], []], [0, 0])


def test_a_full_table_refuses_another_request(unchanged: TokenTable) -> None:
    assert unchanged.add([1]) == 1
    with pytest.raises(ValueError, match="all 4 rows of the table are in use"):
        unchanged.add([1])
    unchanged.remove(1)


def test_refuses_a_request_longer_than_a_row(unchanged: TokenTable) -> None:
    with pytest.raises(ValueError, match="a row holds at most 5 tokens, not 6"):
        unchanged.add(range(6))


@pytest.mark.parametrize(("name", "tokens", "error"), REFUSED, ids=REFUSED_IDS)
def test_refuses_what_are_no_tokens(name: str, tokens: Any, error: type[Exception], unchanged: TokenTable) -> None:
    with pytest.raises(error):
        unchanged.add(tokens)
    with pytest.raises(error):
        unchanged.append([0, 3], tokens)


@pytest.mark.parametrize(
    ("rows", "tokens", "message"),
    [
        ([0, 3, 2], [1, 1, 1], "row 2 already holds 5 tokens"),
        ([2], [1], "row 2 already holds 5 tokens"),
        ([0, 1], [1, 1], "row 1 is not in use"),
        ([0, 3, 0], [1, 1, 1], "rows must not name row 0 twice"),
        ([3, 3], [1, 1], "rows must not name row 3 twice"),
        ([0, 4], [1, 1], "row must be between 0 and 3, not 4"),
        ([0, -1], [1, 1], "row must be between 0 and 3, not -1"),
        ([0, -(2**63)], [1, 1], "row must be between 0 and 3"),
        ([0, 3], [1], "equal length, not 2 and 1"),
        ([0], [1, 2], "equal length, not 1 and 2"),
        ([], [1], "equal length, not 0 and 1"),
    ],
)
@pytest.mark.parametrize("convert", [list, lambda values: np.array(values, np.int64), torch.tensor])
def test_refuses_rows(rows: Any, tokens: Any, message: str, convert: Any, unchanged: TokenTable) -> None:
    with pytest.raises(ValueError, match=message):
        unchanged.append(convert(rows), convert(tokens))


@pytest.mark.parametrize("rows", [[True], [1.0], "0", None, [None], np.array([True]), torch.tensor([0.0])], ids=repr)
def test_refuses_rows_that_are_no_integers(rows: Any, unchanged: TokenTable) -> None:
    with pytest.raises(TypeError):
        unchanged.append(rows, [1])


@pytest.mark.parametrize(
    ("row", "error"),
    [(1, ValueError), (4, ValueError), (-1, ValueError), (True, TypeError), (0.0, TypeError), (None, TypeError)],
)
def test_reads_and_removes_no_row_that_is_not_in_use(row: Any, error: type[Exception], unchanged: TokenTable) -> None:
    with pytest.raises(error, match="row"):
        unchanged.row(row)
    with pytest.raises(error, match="row"):
        unchanged.remove(row)


def test_a_removed_row_is_used_again_and_holds_nothing_of_before(table: TokenTable) -> None:
    table.remove(2)
    assert table.add([8]) == 1
    assert table.add([]) == 2
    assert table.row(2).tolist() == []
    table.append([1, 2], [7, 6])
    assert table.row(1).tolist() == [8, 7]
    assert table.row(2).tolist() == [6]


@pytest.mark.parametrize("convert", INPUTS.values(), ids=INPUTS.keys())
@every_dtype
def test_writes_every_input(convert: Convert, dtype: Any) -> None:
    table = TokenTable(2, 9, dtype)
    table.add(range(3), row=1)
    for offset, expected in ((1, [0, *TOKENS]), (4, [0, *TOKENS, *TOKENS]), (0, [*TOKENS, 7, *TOKENS])):
        assert table.write(1, offset, convert(TOKENS)) is None
        assert table.row(1).tolist() == expected
        assert table.lengths.tolist() == [0, len(expected)]
        table.check()


@pytest.mark.parametrize("convert", [np.array, torch.tensor], ids=["ndarray", "tensor"])
def test_takes_tokens_held_in_the_other_width(convert: Any) -> None:
    narrow, wide = TokenTable(2, 3, np.int32), TokenTable(2, 3, np.int64)
    limits = [-(2**31), 2**31 - 1]
    for table, dtype in ((narrow, "int64"), (wide, "int32")):
        kind = getattr(torch if convert is torch.tensor else np, dtype)
        assert table.add(convert(limits, dtype=kind)) == 0
        table.add([1])
        table.write(1, 0, convert(limits[::-1], dtype=kind))
        assert contents(table)[0] == [limits, limits[::-1]]
    kind = torch.int64 if convert is torch.tensor else np.int64
    before = narrow.tensor().clone()
    for beyond in (2**31, -(2**31) - 1, 2**32, 2**63 - 1, -(2**63)):
        for tokens in ([beyond, 1], [1, beyond]):
            with pytest.raises(OverflowError, match=f"token {beyond} does not fit int32"):
                narrow.write(0, 0, convert(tokens, dtype=kind))
    assert torch.equal(narrow.tensor(), before)


@pytest.mark.parametrize("row", [1, np.int8(1)])
def test_adds_to_a_row_that_is_named(row: Any, table: TokenTable) -> None:
    assert table.add([7, 8], row) == 1
    assert table.row(1).tolist() == [7, 8]
    table.remove(0)
    table.remove(1)
    number = table.add([9], row=row)
    assert (number, type(number)) == (1, int)
    assert contents(table) == ([None, [9], [0, 1, 2, 3, 4], []], [0, 1, 5, 0])
    table.check()


def test_adds_to_no_row_that_is_in_use(unchanged: TokenTable) -> None:
    for row in (0, 2, 3):
        with pytest.raises(ValueError, match=f"row {row} is in use"):
            unchanged.add([1], row)
    with pytest.raises(ValueError, match="a row holds at most 5 tokens, not 6"):
        unchanged.add(range(6), 1)
    with pytest.raises(OverflowError, match="does not fit"):
        unchanged.add([2**64], 1)


def test_a_row_is_written_to_and_shortened(table: TokenTable) -> None:
    table.write(0, 3, [])
    table.write(0, 0, [])
    assert table.row(0).tolist() == [1, 2, 3]
    table.write(0, np.int64(1), [8])
    table.write(0, 3, (6, 7))
    assert table.row(0).tolist() == [1, 8, 3, 6, 7]
    table.truncate(0, np.uint8(2))
    assert table.row(0).tolist() == [1, 8]
    table.append([0], [4])
    table.truncate(2, 5)
    table.truncate(2, 0)
    assert contents(table) == ([[1, 8, 4], None, [], []], [3, 0, 0, 0])
    table.check()


def test_writes_what_is_in_the_table_already(table: TokenTable) -> None:
    table.write(2, 1, table.row(2)[:4])
    assert table.row(2).tolist() == [0, 0, 1, 2, 3]
    table.write(2, 0, table.row(2)[1:])
    assert table.row(2).tolist() == [0, 1, 2, 3, 3]
    table.write(0, 1, table.tensor()[2, :2])
    assert table.row(0).tolist() == [1, 0, 1]


@pytest.mark.parametrize("max_tokens", [5, 1025, 5000])
@every_dtype
def test_rows_change_places(max_tokens: int, dtype: Any) -> None:
    table = TokenTable(4, max_tokens, dtype)
    tokens = [np.arange(max_tokens), np.arange(max_tokens // 2) + 7, np.arange(0)]
    for each in tokens:
        table.add(each)
    table.swap(0, 1)
    table.swap(np.int64(2), 1)
    table.swap(2, 2)
    for row, expected in enumerate((tokens[1], tokens[2], tokens[0])):
        assert table.row(row).tolist() == expected.tolist()
    table.move(2, 3)
    table.move(0, np.int8(2))
    with pytest.raises(ValueError, match="row 0 is not in use"):
        table.row(0)
    for row, expected in ((1, tokens[2]), (2, tokens[1]), (3, tokens[0])):
        assert table.row(row).tolist() == expected.tolist()
    assert table.lengths.tolist() == [0, 0, max_tokens // 2, max_tokens]
    assert table.add([5]) == 0
    table.append([2, 1], [9, 8])
    assert table.row(2).tolist() == [*tokens[1].tolist(), 9]
    table.check()


REFUSED_CALLS: dict[str, tuple[Callable[[TokenTable], Any], type[Exception], str]] = {
    "write beyond the end": (lambda table: table.write(0, 4, [1]), ValueError, "offset must be between 0 and 3, not 4"),
    "write nothing beyond it": (lambda table: table.write(0, 4, []), ValueError, "offset must be between 0 and 3"),
    "write before the start": (lambda table: table.write(0, -1, [1]), ValueError, "offset must be between 0 and 3"),
    "write nowhere": (
        lambda table: table.write(0, 2**70, [1]),
        ValueError,
        "offset must be between 0 and 3, not 1",
    ),
    "write too many": (lambda table: table.write(0, 3, [1, 2, 3]), ValueError, "a row holds at most 5 tokens, not 6"),
    "write too large": (lambda table: table.write(0, 0, [1, 2**64]), OverflowError, "does not fit"),
    "write to no row": (lambda table: table.write(1, 0, [1]), ValueError, "row 1 is not in use"),
    "write at a float": (lambda table: table.write(0, 1.0, [1]), TypeError, "offset must be an integer"),
    "write at a bool": (lambda table: table.write(0, True, [1]), TypeError, "offset must be an integer"),
    "write to a bool": (lambda table: table.write(False, 0, [1]), TypeError, "row must be an integer"),
    "truncate to more": (lambda table: table.truncate(0, 4), ValueError, "n must be between 0 and 3, not 4"),
    "truncate to less": (lambda table: table.truncate(0, -1), ValueError, "n must be between 0 and 3, not -1"),
    "truncate to much more": (lambda table: table.truncate(0, 2**70), ValueError, "n must be between 0 and 3"),
    "truncate no row": (lambda table: table.truncate(1, 0), ValueError, "row 1 is not in use"),
    "truncate a row out of range": (lambda table: table.truncate(4, 0), ValueError, "row must be between 0 and 3"),
    "truncate to a bool": (lambda table: table.truncate(0, True), TypeError, "n must be an integer"),
    "truncate to a float": (lambda table: table.truncate(0, 1.0), TypeError, "n must be an integer"),
    "swap with no row": (lambda table: table.swap(0, 1), ValueError, "row 1 is not in use"),
    "swap no row": (lambda table: table.swap(1, 0), ValueError, "row 1 is not in use"),
    "swap no row with itself": (lambda table: table.swap(1, 1), ValueError, "row 1 is not in use"),
    "swap out of range": (lambda table: table.swap(-1, 0), ValueError, "row must be between 0 and 3, not -1"),
    "swap a bool": (lambda table: table.swap(0, True), TypeError, "b must be an integer"),
    "swap None": (lambda table: table.swap(None, 0), TypeError, "a must be an integer"),  # type: ignore[arg-type]
    "move to a row in use": (lambda table: table.move(0, 2), ValueError, "row 2 is in use"),
    "move to itself": (lambda table: table.move(0, 0), ValueError, "row 0 is in use"),
    "move no row": (lambda table: table.move(1, 1), ValueError, "row 1 is not in use"),
    "move out of range": (lambda table: table.move(0, 4), ValueError, "row must be between 0 and 3, not 4"),
    "move out of int64": (lambda table: table.move(2**64, 1), ValueError, "row must be between 0 and 3"),
    "move a float": (lambda table: table.move(0.0, 1), TypeError, "source must be an integer"),  # type: ignore[arg-type]
    "move to a bool": (lambda table: table.move(0, True), TypeError, "target must be an integer"),
    "add out of range": (lambda table: table.add([1], 4), ValueError, "row must be between 0 and 3, not 4"),
    "add to a negative row": (lambda table: table.add([1], -2), ValueError, "row must be between 0 and 3, not -2"),
    "add to a bool": (lambda table: table.add([1], True), TypeError, "row must be an integer"),
    "add to a float": (lambda table: table.add([1], 1.0), TypeError, "row must be an integer"),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("name", REFUSED_CALLS)
def test_refuses_and_stays_as_it_was(name: str, unchanged: TokenTable) -> None:
    call, error, message = REFUSED_CALLS[name]
    memory = unchanged.tensor().clone()
    with pytest.raises(error, match=message):
        call(unchanged)
    assert torch.equal(unchanged.tensor(), memory)


@pytest.mark.parametrize(("name", "tokens", "error"), REFUSED, ids=REFUSED_IDS)
def test_writes_nothing_that_are_no_tokens(name: str, tokens: Any, error: type[Exception], table: TokenTable) -> None:
    before = contents(table)
    with pytest.raises(error):
        table.write(0, 1, tokens)
    with pytest.raises(error):
        table.add(tokens, 1)
    assert contents(table) == before


def test_a_tensor_is_the_table_itself(table: TokenTable) -> None:
    tensor = table.tensor()
    assert tensor.shape == (4, 5)
    assert tensor.dtype == (torch.int32 if table.dtype == np.int32 else torch.int64)
    assert tensor[0, :3].tolist() == [1, 2, 3]
    table.append([0, 3], [4, 9])
    table.write(0, 0, [8])
    assert tensor[0, :4].tolist() == [8, 2, 3, 4]
    assert tensor[3, :1].tolist() == [9]
    tensor[0, 1] = 7
    tensor[:, 4] = 5
    assert table.row(0).tolist() == [8, 7, 3, 4]
    assert table.row(2).tolist() == [0, 1, 2, 3, 5]
    assert table.lengths.tolist() == [4, 0, 5, 1]
    assert np.shares_memory(tensor.numpy(), table.row(0))
    table.check()
    del table
    assert tensor[0].tolist() == [8, 7, 3, 4, 5]


def test_what_a_view_of_a_row_shows_when_the_row_changes(table: TokenTable) -> None:
    first, full = table.row(0), table.row(2)
    table.append([0], [4])
    assert first.tolist() == [1, 2, 3]
    table.write(0, 1, [7, 8, 9])
    assert first.tolist() == [1, 7, 8]
    table.truncate(0, 1)
    assert first.tolist() == [1, 7, 8]
    table.append([0], [5])
    assert first.tolist() == [1, 5, 8]
    table.swap(0, 2)
    assert first.tolist() == [0, 1, 2]
    assert full[:2].tolist() == [1, 5]


def test_a_row_is_a_view_of_its_tokens_at_the_time(table: TokenTable) -> None:
    view = table.row(0)
    table.append([0], [4])
    table.remove(2)
    table.add([9])
    assert view.tolist() == [1, 2, 3]
    assert np.shares_memory(view, table.row(0))
    with pytest.raises(ValueError, match="read-only"):
        view[0] = 9


def test_lengths_follow_the_table_and_cannot_be_written_to(table: TokenTable) -> None:
    lengths = table.lengths
    assert lengths.dtype.kind == "i"
    assert lengths.tolist() == [3, 0, 5, 0]
    table.append([3], [1])
    assert table.lengths.tolist() == lengths.tolist() == [3, 0, 5, 1]
    with pytest.raises(ValueError, match="read-only"):
        lengths[0] = 1
    with pytest.raises(AttributeError):
        table.lengths = lengths  # type: ignore[misc]


def test_adds_its_own_rows(table: TokenTable) -> None:
    assert table.add(table.row(0)) == 1
    assert table.row(1).tolist() == [1, 2, 3]
    assert table.max_requests == 4
    assert table.max_tokens == 5


@pytest.mark.parametrize(
    ("shape", "error"),
    [((0, 1), ValueError), ((1, 0), ValueError), ((-1, 1), ValueError), ((1.0, 1), TypeError), ((1, True), TypeError)],
)
def test_refuses_a_shape_that_holds_nothing(shape: Any, error: type[Exception]) -> None:
    with pytest.raises(error, match=r"max_(requests|tokens) must be"):
        TokenTable(*shape)


@pytest.mark.parametrize("dtype", [np.float32, np.int16, np.uint64, bool])
def test_refuses_a_dtype_that_tokens_do_not_have(dtype: Any) -> None:
    with pytest.raises(TypeError, match=r"integer dtype|int32 or int64 tokens"):
        TokenTable(1, 1, dtype)


@pytest.mark.parametrize("max_tokens", [1, 1024, 4096])
def test_rows_keep_apart_at_their_ends(max_tokens: int) -> None:
    table = TokenTable(3, max_tokens)
    for row in range(3):
        table.add(np.full(max_tokens - 1, row))
    table.append([2, 0, 1], [12, 10, 11])
    for row in range(3):
        assert table.row(row).tolist() == [row] * (max_tokens - 1) + [10 + row]


def test_takes_the_slices_of_a_buffer(table: TokenTable) -> None:
    rows, tokens = TokenBuffer([7, 0, 3])[1:], TokenBuffer([9, 8], np.int32)
    table.append(rows, tokens)
    assert table.row(0).tolist()[-1] == 9
    assert table.row(3).tolist() == [8]


@pytest.mark.parametrize(
    ("part", "row", "damage", "message"),
    [
        ("lengths", 0, -1, "a row has a negative length"),
        ("lengths", 0, 6, "a row holds more than 5 tokens"),
        ("lengths", 1, 1, "a row that is not in use holds tokens"),
        ("appended", 0, -1, "a row that is not in use holds tokens"),
        ("appended", 3, 9, "of 0 appends"),
        ("appended", 1, -2, "of 0 appends"),
    ],
)
def test_check_finds_books_that_disagree(part: str, row: int, damage: int, message: str, table: TokenTable) -> None:
    table.check()
    state = table._state()
    check_token_rows(state)
    state[part][row] = damage
    with pytest.raises(AssertionError, match=message):
        check_token_rows(state)
    table.check()


@pytest.mark.parametrize("shape", [(3, 16), (4, 4)])
def test_check_finds_an_array_of_another_shape(shape: tuple[int, int], table: TokenTable) -> None:
    with pytest.raises(AssertionError, match=r"rows with|cells for"):
        check_token_rows(table._state() | {"shape": shape})


def test_refuses_rows_longer_than_a_length_can_say() -> None:
    with pytest.raises(ValueError, match="max_tokens must fit int32"):
        TokenTable(1, 2**31)
