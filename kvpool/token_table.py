"""The token ids of a batch of requests, in one two-dimensional array."""

import cython
import numpy as np

from kvpool import _signatures
from kvpool._arguments import as_int, as_int64, positive_int, repeated
from kvpool._books import check_token_rows
from kvpool._signatures import ClassSignature
from kvpool._tokens_input import integer_dtype, tokens_as

if not cython.compiled:
    from kvpool._plain import (
        cell,
        cells_in,
        code_of,
        copy_cells,
        fits,
        free_scratch,
        new_scratch,
        part,
        prefetch,
        put,
        rows_in,
        tokens_in,
        view_on,
        widen,
    )

_LINE = 16
_TOKEN_ROW = np.dtype([("length", np.int64), ("limit", np.int64), ("named", np.int64)])


@cython.cclass
class TokenTable:
    """The token ids of up to `max_requests` requests of up to `max_tokens` each, a row of one array for each.

    Rows:     `add`, `remove`, `row`, `lengths`
    Decoding: `append`, one token to each of many rows

    Memory is taken at once: `max_requests * max_tokens` tokens of `dtype`, int32 or int64. A token that is no integer
    (bools are none) is a TypeError and one that the dtype cannot hold an OverflowError that is also a ValueError; a
    full table, an overlong row, and a row that is not in use or is named twice are ValueErrors. Every method is atomic,
    and whatever raises changes nothing.

    >>> table = TokenTable(max_requests=2, max_tokens=4)
    >>> first, second = table.add([11, 12]), table.add([21])
    >>> table.append([first, second], [13, 22])
    >>> table.row(first), table.lengths.tolist()
    (array([11, 12, 13], dtype=int32), [3, 2])
    >>> table.remove(first)
    >>> table.add([31]) == first
    True
    """

    __signature__ = ClassSignature(_signatures.token_table)

    def __cinit__(self):
        # Whoever forgets to call __init__ has a table of no rows.
        self.dtype = np.dtype(np.int32)
        self.row_array = np.zeros(0, _TOKEN_ROW)

    def __init__(self, max_requests, max_tokens, dtype=np.int32):
        rows, tokens = positive_int(max_requests, "max_requests"), positive_int(max_tokens, "max_tokens")
        token_dtype = integer_dtype(dtype)
        if token_dtype not in (np.int32, np.int64):
            raise TypeError(f"a table holds int32 or int64 tokens, not {token_dtype}")
        if tokens > np.iinfo(token_dtype).max:
            raise ValueError(f"max_tokens must fit {token_dtype}, but is {tokens}")
        # Rows of an odd number of cache lines: requests in step write to columns that a power of two would put into one
        # set of the cache.
        lines = -(-tokens // _LINE) | 1
        cells = np.zeros(rows * lines * _LINE, token_dtype)
        row_array = np.zeros(rows, _TOKEN_ROW)
        self.max_requests = rows
        self.max_tokens = tokens
        self.dtype = token_dtype
        self.code = code_of(token_dtype)
        self.stride = lines * _LINE
        self.calls = 0
        self.tokens = cells
        self.cells = cells_in(cells)
        self.row_array = row_array
        self.rows = rows_in(row_array)

    @property
    def lengths(self):
        """How many tokens each row holds: a read-only view that follows the table, 0 for rows not in use. O(1)."""
        view = self.row_array["length"]
        view.flags.writeable = False
        return view

    def add(self, tokens):
        """Put a request's tokens, of any accepted kind, into the lowest row not in use and return its number.

        O(k) for k tokens, plus a search over the rows.
        """
        values = tokens_as(tokens, self.dtype)
        count: cython.longlong = len(values)
        if count > self.max_tokens:
            raise ValueError(f"a row holds at most {self.max_tokens} tokens, not {count}")
        row: cython.longlong = 0
        while row < self.max_requests and self.rows[row].limit:
            row += 1
        if row == self.max_requests:
            raise ValueError(f"all {self.max_requests} rows of the table are in use")
        number: object = row
        copy_cells(self.cells, row * self.stride, cells_in(values), count, self.code)
        self.rows[row].length = count
        self.rows[row].limit = self.max_tokens
        return number

    def append(self, rows, tokens):
        """Append `tokens[i]` to row `rows[i]`, for every i. O(k) for k rows, fastest for arrays or CPU tensors."""
        row_view = tokens_in(rows)
        token_view = tokens_in(tokens)
        if row_view.size < 0 or token_view.size != row_view.size:
            # Both before either is looked at, as converting runs Python code.
            numbers = as_int64(rows, "rows")
            values = tokens_as(tokens, self.dtype)
            if len(numbers) != len(values):
                raise ValueError(f"rows and tokens must be of equal length, not {len(numbers)} and {len(values)}")
            row_view = tokens_in(numbers)
            token_view = tokens_in(values)
        count: cython.longlong = row_view.size
        scratch = new_scratch(2 * count)
        try:
            # A copy, which nobody writes to while it is checked and used.
            widen(row_view, scratch)
            widen(token_view, part(scratch, count))
            if not self._append(scratch, part(scratch, count), count):
                self._refuse([scratch[i] for i in range(count)], [scratch[count + i] for i in range(count)])
        finally:
            free_scratch(scratch)

    def row(self, row):
        """Return a row's tokens: a read-only view of their number now, valid until the row is removed. O(1)."""
        number: cython.longlong = self._used(row)
        start: cython.longlong = number * self.stride
        return view_on(self.tokens, self.cells, start, start + self.rows[number].length, self.code, False)

    def remove(self, row):
        """Take a row out of use, so that `add` can give it to another request. O(1)."""
        number: cython.longlong = self._used(row)
        self.rows[number].length = 0
        self.rows[number].limit = 0

    def check(self):
        """Assert that the table's parts agree. O(rows)."""
        check_token_rows(*self._books())

    def __reduce__(self):
        return _rebuilt, (
            type(self),
            self.max_requests,
            self.max_tokens,
            self.dtype,
            [self.row(row) if self.rows[row].limit else None for row in range(self.max_requests)],
        )

    def __deepcopy__(self, memo):
        return self.__copy__()

    def __copy__(self):
        kind, fields = self.__reduce__()
        return kind(*fields)

    def _books(self):
        """Return a copy of what is known of the rows."""
        return self.row_array.copy(), self.max_tokens, self.calls

    def _append(self, rows, tokens, count):
        """Append a token to each row, or nothing: then return False.

        That is when a row is not in use, full or named twice, or when a token does not fit.
        """
        i: cython.longlong
        row: cython.longlong
        self.calls += 1
        for i in range(count):
            row = rows[i]
            if row < 0 or row >= self.max_requests or not fits(tokens[i], self.code):
                return False
            if self.rows[row].length >= self.rows[row].limit or self.rows[row].named == self.calls:
                return False
            self.rows[row].named = self.calls
            prefetch(cell(self.cells, row * self.stride + self.rows[row].length, self.code), 1)
        for i in range(count):
            row = rows[i]
            put(self.cells, row * self.stride + self.rows[row].length, self.code, tokens[i])
            self.rows[row].length += 1
        return True

    def _refuse(self, rows, tokens):
        """Raise for rows and tokens that cannot be appended."""
        tokens_as(np.array(tokens, np.int64), self.dtype)
        for row in rows:
            self._used(row)
        twice = repeated(np.array(rows, np.int64))
        if len(twice):
            raise ValueError(f"rows must not name row {twice[0]} twice")
        for row in rows:
            if self.rows[row].length == self.rows[row].limit:
                raise ValueError(f"row {row} already holds {self.max_tokens} tokens")
        raise RuntimeError("another thread has changed the table meanwhile")

    def _used(self, row):
        """Return the number of a row in use."""
        number = as_int(row, "row")
        if not 0 <= number < self.max_requests:
            raise ValueError(f"row must be between 0 and {self.max_requests - 1}, not {number}")
        if not self.rows[number].limit:
            raise ValueError(f"row {number} is not in use")
        return number


def _rebuilt(kind, max_requests, max_tokens, dtype, rows):
    """Build the table of some rows: what pickle and copy make of one."""
    table = kind(max_requests, max_tokens, dtype)
    # The rows not in use between others are filled, so that each gets its number.
    for tokens in rows:
        table.add(() if tokens is None else tokens)
    for row, tokens in enumerate(rows):
        if tokens is None:
            table.remove(row)
    return table
