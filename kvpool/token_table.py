"""The token ids of a batch of requests, in one two-dimensional array."""

from typing import Any

import numpy as np
import numpy.typing as npt

from kvpool._arguments import Integers, as_int, as_int64, positive_int, repeated
from kvpool._kernels import ROW_LENGTH, ROW_LIMIT, TABLE_HEADER, append_to_int32_rows, append_to_int64_rows
from kvpool._tokens_input import INT64, TokenArray, Tokens, integer_dtype, tokens_as

KERNELS = {np.dtype(np.int32): append_to_int32_rows, INT64: append_to_int64_rows}
LINE = 16


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
    >>> table.row(first), table.lengths.tolist()
    (array([11, 12, 13], dtype=int32), [3, 2])
    >>> table.remove(first)
    >>> table.add([31]) == first
    True
    """

    # `_append` is the kernel for the dtype of `_cells`, whose layout kvpool._kernels describes.
    __slots__ = ("_append", "_cells", "_max_tokens")

    def __init__(self, max_requests: int, max_tokens: int, dtype: npt.DTypeLike = np.int32) -> None:
        rows, self._max_tokens = positive_int(max_requests, "max_requests"), positive_int(max_tokens, "max_tokens")
        token_dtype = integer_dtype(dtype)
        if token_dtype not in KERNELS:
            raise TypeError(f"a table holds int32 or int64 tokens, not {token_dtype}")
        if self._max_tokens > np.iinfo(token_dtype).max:
            raise ValueError(f"max_tokens must fit {token_dtype}, but is {self._max_tokens}")
        self._append = KERNELS[token_dtype]
        # Rows of an odd number of cache lines: requests in step write to columns that a power of two would put into one
        # set of the cache.
        lines = -(-(TABLE_HEADER + self._max_tokens) // LINE) | 1
        self._cells: TokenArray = np.zeros((rows, lines * LINE), token_dtype)

    @property
    def max_requests(self) -> int:
        """How many rows the table has."""
        return len(self._cells)

    @property
    def max_tokens(self) -> int:
        """How many tokens a row holds at most."""
        return self._max_tokens

    @property
    def dtype(self) -> np.dtype[Any]:
        """The dtype of the tokens."""
        return self._cells.dtype

    @property
    def lengths(self) -> npt.NDArray[Any]:
        """How many tokens each row holds: a read-only view that follows the table, 0 for rows not in use. O(1)."""
        return _read_only(self._lengths)

    def add(self, tokens: Tokens) -> int:
        """Put a request's tokens, of any accepted kind, into the lowest row not in use and return its number.

        O(k) for k tokens, plus a search over the rows.
        """
        values = tokens_as(tokens, self.dtype)
        if len(values) > self._max_tokens:
            raise ValueError(f"a row holds at most {self._max_tokens} tokens, not {len(values)}")
        row = int(self._cells[:, ROW_LIMIT].argmin())
        cells = self._cells[row]
        if cells[ROW_LIMIT]:
            raise ValueError(f"all {self.max_requests} rows of the table are in use")
        cells[TABLE_HEADER : TABLE_HEADER + len(values)] = values
        cells[ROW_LENGTH], cells[ROW_LIMIT] = len(values), self._max_tokens
        return row

    def append(self, rows: Integers, tokens: Tokens) -> None:
        """Append `tokens[i]` to row `rows[i]`, for every i. O(k) for k rows, fastest for ndarrays of int64."""
        try:
            # What is no ndarray has another kind of dtype or none; the kernel itself refuses other shapes and strides.
            if rows.dtype is tokens.dtype is INT64 and self._append(self._cells, rows, tokens):  # type: ignore[union-attr]
                return
        except (AttributeError, TypeError):
            pass
        self._append_any(rows, tokens)

    def _append_any(self, rows: Integers, tokens: Tokens) -> None:
        # Copies, as the kernel takes no strided or unaligned arrays.
        numbers = as_int64(rows, "rows").copy()
        values = tokens_as(tokens, self.dtype).astype(np.int64)
        if self._append(self._cells, numbers, values):
            return
        if len(numbers) != len(values):
            raise ValueError(f"rows and tokens must be of equal length, not {len(numbers)} and {len(values)}")
        for number in numbers:
            self._used(number)
        twice = repeated(numbers)
        if len(twice):
            raise ValueError(f"rows must not name row {twice[0]} twice")
        full = numbers[self._lengths[numbers] == self._max_tokens]
        raise ValueError(f"row {full[0]} already holds {self._max_tokens} tokens")

    def row(self, row: int) -> TokenArray:
        """Return a row's tokens: a read-only view of their number now, valid until the row is removed. O(1)."""
        cells = self._used(row)
        return _read_only(cells[TABLE_HEADER : TABLE_HEADER + cells[ROW_LENGTH]])

    def remove(self, row: int) -> None:
        """Take a row out of use, so that `add` can give it to another request. O(1)."""
        cells = self._used(row)
        cells[ROW_LENGTH] = cells[ROW_LIMIT] = 0

    def check(self) -> None:
        """Assert that the table's parts agree. O(rows)."""
        lengths, limits = self._lengths, self._cells[:, ROW_LIMIT]
        assert np.isin(limits, (0, self._max_tokens)).all(), f"a row is limited to neither all nor nothing: {limits}"
        assert (lengths >= 0).all(), f"a row has a negative length: {lengths}"
        assert (lengths <= limits).all(), f"a row is longer than its limit: {lengths}, {limits}"

    @property
    def _lengths(self) -> npt.NDArray[Any]:
        return self._cells[:, ROW_LENGTH]

    def _used(self, row: object) -> TokenArray:
        """Return the cells of a row in use."""
        number = as_int(row, "row")
        if not 0 <= number < self.max_requests:
            raise ValueError(f"row must be between 0 and {self.max_requests - 1}, not {number}")
        cells: TokenArray = self._cells[number]
        if not cells[ROW_LIMIT]:
            raise ValueError(f"row {number} is not in use")
        return cells


def _read_only(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    view = array[:]
    view.flags.writeable = False
    return view
