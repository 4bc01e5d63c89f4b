"""The token ids of a batch of requests, in one two-dimensional array."""

from typing import Any

import numpy as np
import numpy.typing as npt

from kvpool._arguments import Int64Array, Integers, as_int, as_int64, positive_int, repeated
from kvpool._tokens_input import TokenArray, Tokens, integer_dtype, tokens_as

DTYPES = (np.dtype(np.int32), np.dtype(np.int64))


class TokenTable:
    """The token ids of up to `max_requests` requests of up to `max_tokens` each, a row of one array for each.

    Rows:     `add`, `remove`, `row`, `lengths`
    Decoding: `append`, one token to each of many rows

    Memory is taken at once: `max_requests * max_tokens` tokens of `dtype`, int32 or int64. A token that is no integer
    (bools are none) is a TypeError and one that the dtype cannot hold an OverflowError that is also a ValueError; a
    full table, an overlong row, and a row that is not in use or is named twice are ValueErrors. Whatever raises changes
    nothing.

    >>> table = TokenTable(max_requests=2, max_tokens=4)
    >>> first, second = table.add([11, 12]), table.add([21])
    >>> table.append([first, second], [13, 22])
    >>> table.row(first), table.lengths
    (array([11, 12, 13], dtype=int32), array([3, 2]))
    >>> table.remove(first)
    >>> table.add([31]) == first
    True
    """

    __slots__ = ("_cells", "_in_use", "_lengths")

    def __init__(self, max_requests: int, max_tokens: int, dtype: npt.DTypeLike = np.int32) -> None:
        shape = positive_int(max_requests, "max_requests"), positive_int(max_tokens, "max_tokens")
        token_dtype = integer_dtype(dtype)
        if token_dtype not in DTYPES:
            raise TypeError(f"a table holds int32 or int64 tokens, not {token_dtype}")
        self._cells: TokenArray = np.zeros(shape, token_dtype)
        self._lengths = np.zeros(shape[0], np.int64)
        self._in_use = np.zeros(shape[0], np.bool_)

    @property
    def max_requests(self) -> int:
        """How many rows the table has."""
        return len(self._cells)

    @property
    def max_tokens(self) -> int:
        """How many tokens a row holds at most."""
        return len(self._cells[0])

    @property
    def dtype(self) -> np.dtype[Any]:
        """The dtype of the tokens."""
        return self._cells.dtype

    @property
    def lengths(self) -> Int64Array:
        """How many tokens each row holds: a read-only view that follows the table, 0 for rows not in use. O(1)."""
        return _read_only(self._lengths)

    def add(self, tokens: Tokens) -> int:
        """Put a request's tokens, of any accepted kind, into the lowest row not in use and return its number.

        O(k) for k tokens, plus a search over the rows.
        """
        values = tokens_as(tokens, self.dtype)
        if len(values) > self.max_tokens:
            raise ValueError(f"a row holds at most {self.max_tokens} tokens, not {len(values)}")
        if self._in_use.all():
            raise ValueError(f"all {self.max_requests} rows of the table are in use")
        row = int(np.argmin(self._in_use))
        self._cells[row, : len(values)] = values
        self._lengths[row] = len(values)
        self._in_use[row] = True
        return row

    def append(self, rows: Integers, tokens: Tokens) -> None:
        """Append `tokens[i]` to row `rows[i]`, for every i. O(k) for k rows."""
        numbers = as_int64(rows, "rows")
        values = tokens_as(tokens, self.dtype)
        if len(numbers) != len(values):
            raise ValueError(f"rows and tokens must be of equal length, not {len(numbers)} and {len(values)}")
        for number in numbers:
            self._used(number)
        twice = repeated(numbers)
        if len(twice):
            raise ValueError(f"rows must not name row {twice[0]} twice")
        ends = self._lengths[numbers]
        if len(ends) and ends.max() == self.max_tokens:
            raise ValueError(f"row {numbers[ends.argmax()]} already holds {self.max_tokens} tokens")
        self._cells[numbers, ends] = values
        self._lengths[numbers] += 1

    def row(self, row: int) -> TokenArray:
        """Return a row's tokens: a read-only view of their number now, valid until the row is removed. O(1)."""
        number = self._used(row)
        return _read_only(self._cells[number, : self._lengths[number]])

    def remove(self, row: int) -> None:
        """Take a row out of use, so that `add` can give it to another request. O(1)."""
        number = self._used(row)
        self._lengths[number] = 0
        self._in_use[number] = False

    def check(self) -> None:
        """Assert that the table's parts agree. O(rows)."""
        assert self._lengths.shape == self._in_use.shape == self._cells.shape[:1], "the books differ in length"
        assert not self._lengths[~self._in_use].any(), f"rows not in use hold tokens: {self._lengths}, {self._in_use}"
        assert self._lengths.min() >= 0, f"a row has a negative length: {self._lengths}"
        assert self._lengths.max() <= self.max_tokens, f"a row is longer than {self.max_tokens}: {self._lengths}"

    def _used(self, row: object) -> int:
        """Return the number of a row in use."""
        number = as_int(row, "row")
        if not 0 <= number < self.max_requests:
            raise ValueError(f"row must be between 0 and {self.max_requests - 1}, not {number}")
        if not self._in_use[number]:
            raise ValueError(f"row {number} is not in use")
        return number


def _read_only(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    view = array[:]
    view.flags.writeable = False
    return view
