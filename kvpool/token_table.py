"""The token ids of a batch of requests, in one two-dimensional array."""

import cython
import numpy as np
import torch

from kvpool import _signatures
from kvpool._arguments import as_int, as_int64, positive_int, repeated
from kvpool._python_types import attributes_of
from kvpool._signatures import ClassSignature
from kvpool._token_books import check_token_rows
from kvpool._tokens_input import INT64, contiguous, integer_dtype, tokens_as

if not cython.compiled:
    from kvpool._plain import small_int
    from kvpool._plain_tokens import INT64_TOKENS, packed, read_only, view_of, with_cinit
    from kvpool._tokens_input import readable

    NOT_IN_USE = -1
from kvpool._token_rows import TokenRows

_DTYPES = (np.dtype(np.int32), INT64)
_NO_ROWS = TokenRows(0, 1, np.dtype(np.int32))


@cython.no_gc
@cython.cclass
class TokenTable:
    """The token ids of up to `max_requests` requests of up to `max_tokens` each, a row of one array for each.

    Rows:      `add`, `remove`, `swap`, `move`
    Tokens:    `append`, one to each of many rows; `write` and `truncate`, in one row
    No copies: `row`, `lengths`, `tensor`

    Memory is taken at once: `max_requests * max_tokens` tokens of `dtype`, int32 or int64. A token that is no integer
    (bools are none) is a TypeError and one that the dtype cannot hold an OverflowError that is also a ValueError; a
    full table, an overlong row, and a row that is not in use or is named twice are ValueErrors. Whatever raises changes
    nothing, and every method is atomic, whatever interrupts it. Costs are given for k tokens.

    A view of a row shows the row's place in the table, as many tokens as there were when it was taken. `append` leaves
    them as they are; `write`, `swap` and what follows a `truncate` change what it shows. Once the row is removed, or
    moved to another place, it shows what is nobody's, until another request is put there.

    >>> table = TokenTable(max_requests=2, max_tokens=4)
    >>> first, second = table.add([11, 12]), table.add([21])
    >>> table.append([first, second], [13, 22])
    >>> table.row(first), table.lengths.tolist()
    (array([11, 12, 13], dtype=int32), [3, 2])
    >>> table.remove(first)
    >>> table.add([31]) == first
    True
    >>> table.write(second, offset=1, tokens=[23, 24])
    >>> table.swap(first, second)
    >>> table.row(first)
    array([21, 23, 24], dtype=int32)
    """

    __signature__ = ClassSignature(_signatures.token_table)

    def __cinit__(self):
        # Whoever forgets to call __init__ has a table of no rows.
        self._hold(_NO_ROWS)

    def __init__(self, max_requests, max_tokens, dtype=np.int32):
        requests, tokens = positive_int(max_requests, "max_requests"), positive_int(max_tokens, "max_tokens")
        token_dtype = integer_dtype(dtype)
        if token_dtype not in _DTYPES:
            raise TypeError(f"a table holds int32 or int64 tokens, not {token_dtype}")
        if tokens > np.iinfo(token_dtype).max:
            raise ValueError(f"max_tokens must fit {token_dtype}, but is {tokens}")
        self._hold(TokenRows(requests, tokens, token_dtype))

    @property
    def max_requests(self):
        """How many rows the table has."""
        return self.rows.count

    @property
    def max_tokens(self):
        """How many tokens a row holds at most."""
        return self.rows.max_tokens

    @property
    def dtype(self):
        """The dtype of the tokens."""
        return self.rows.tokens.dtype

    @property
    def lengths(self):
        """How many tokens each row holds: a read-only view that follows the table, 0 for rows not in use. O(1)."""
        rows: TokenRows = self.rows
        return read_only(rows.lengths, 0, rows.count)

    def add(self, tokens, row=None):
        """Put a request's tokens, of any accepted kind, into a row that is not in use and return the row's number.

        That is the lowest such row, unless one is named: a ValueError where that is in use. O(k), and without a name a
        search over the rows.
        """
        if row is not None and type(row) is not int:
            row = as_int(row, "row")
        values = self._readable(tokens)
        view = view_of(values)
        rows: TokenRows = self.rows
        if view.size > rows.max_tokens:
            raise ValueError(f"a row holds at most {rows.max_tokens} tokens, not {view.size}")
        number: cython.longlong = rows.lowest_not_in_use() if row is None else self._not_in_use(row)
        if number == NOT_IN_USE:
            raise ValueError(f"all {rows.count} rows of the table are in use")
        # Made before the row is taken.
        result: object = number
        rows.put(number, view)
        return result

    def write(self, row, offset, tokens):
        """Put tokens into a row from `offset` on: over those that are there, and beyond its end. O(k).

        The tokens are of any accepted kind. The offset is at most the row's length, which grows as far as they reach.
        """
        row = row if type(row) is int else as_int(row, "row")
        offset = offset if type(offset) is int else as_int(offset, "offset")
        values = self._readable(tokens)
        view = view_of(values)
        rows: TokenRows = self.rows
        number: cython.longlong = self._in_use(row)
        start: cython.longlong = small_int(offset)
        if not 0 <= start <= rows.length[number]:
            raise ValueError(f"offset must be between 0 and {rows.length[number]}, not {offset}")
        if view.size > rows.max_tokens - start:
            raise ValueError(f"a row holds at most {rows.max_tokens} tokens, not {start + view.size}")
        rows.write(number, start, view)

    def truncate(self, row, n):
        """Keep the first n tokens of a row; an n below 0 or above its length is a ValueError. O(1)."""
        row = row if type(row) is int else as_int(row, "row")
        n = n if type(n) is int else as_int(n, "n")
        rows: TokenRows = self.rows
        number: cython.longlong = self._in_use(row)
        length: cython.longlong = small_int(n)
        if not 0 <= length <= rows.length[number]:
            raise ValueError(f"n must be between 0 and {rows.length[number]}, not {n}")
        rows.truncate(number, length)

    def swap(self, a, b):
        """Exchange the tokens of two rows in use. O(k) for the longer of them."""
        a = a if type(a) is int else as_int(a, "a")
        b = b if type(b) is int else as_int(b, "b")
        rows: TokenRows = self.rows
        rows.swap(self._in_use(a), self._in_use(b))

    def move(self, source, target):
        """Put the tokens of a row in use into one that is not, and take the first out of use. O(k)."""
        source = source if type(source) is int else as_int(source, "source")
        target = target if type(target) is int else as_int(target, "target")
        rows: TokenRows = self.rows
        rows.move(self._in_use(source), self._not_in_use(target))

    def append(self, rows, tokens):
        """Append `tokens[i]` to row `rows[i]`, for every i. O(k) for k rows.

        Fastest where both are ndarrays, or tensors of the host, of int64 or int32.
        """
        if not self.rows.append(view_of(rows), view_of(tokens)):
            self._append_any(rows, tokens)

    def row(self, row):
        """Return a row's tokens: a read-only view of their number now, valid until the row is removed. O(1)."""
        number: cython.longlong = self._in_use(row if type(row) is int else as_int(row, "row"))
        rows: TokenRows = self.rows
        start: cython.longlong = number * rows.width
        return read_only(rows.tokens, start, start + rows.length[number])

    def remove(self, row):
        """Take a row out of use, so that `add` can give it to another request. O(1)."""
        row = row if type(row) is int else as_int(row, "row")
        rows: TokenRows = self.rows
        rows.remove(self._in_use(row))

    def tensor(self):
        """Return the whole table as a tensor of shape (max_requests, max_tokens) that shares its memory. O(1).

        What it shows beyond a row's length, and in rows not in use, is left from before or 0. torch has no read-only
        tensors: what is written into this one changes tokens, unchecked, and no length. Rows are some tokens further
        apart than they are long. It keeps the memory, also when the table is gone.
        """
        rows: TokenRows = self.rows
        return torch.from_numpy(rows.tokens[:, : rows.max_tokens])

    def check(self):
        """Assert that the table's parts agree. O(rows)."""
        check_token_rows(self._state())

    def __reduce__(self):
        rows: TokenRows = self.rows
        lengths, tokens = rows.packed()
        return _rebuilt, (type(self), rows.max_tokens, lengths, tokens), attributes_of(self, "rows")

    def __setstate__(self, state):
        # What no extension type pickled has the rows in it, by the names and in the layout of that time.
        held = {}
        for part in state if isinstance(state, tuple) else (state,):
            held.update(part or {})
        if "_cells" in held:
            self._hold(_of_cells(held.pop("_cells"), held.pop("_max_tokens")))
            held.pop("_append", None)
        for name, value in held.items():
            setattr(self, name, value)

    def _state(self):
        return self.rows.state()

    def _hold(self, rows):
        # The old ones are let go of last.
        before: object = self.rows  # noqa: F841
        self.rows = rows
        return 0

    def _readable(self, tokens):
        """Return tokens as an array of this table's kind that can be read in place."""
        values = readable(tokens, self.rows.kind)
        while view_of(values).kind != self.rows.kind:
            # Reading them has built this table anew, of another dtype.
            values = readable(values, self.rows.kind)
        return values

    def _append_any(self, rows, tokens):
        """Append what cannot be read in place, or raise what is wrong."""
        numbers = packed(rows, INT64_TOKENS)
        if numbers is None:
            numbers = as_int64(rows, "rows").copy()
        values = contiguous(tokens_as(tokens, self.dtype))
        while not self.rows.append(view_of(numbers), view_of(values)):
            # Where nothing is found, another thread has just made room: the table is asked again.
            self._raise_fault(numbers, values)
            values = contiguous(tokens_as(values, self.dtype))
        return 0

    def _raise_fault(self, numbers, values):
        """Raise what is wrong about appending these tokens to these rows."""
        if len(numbers) != len(values):
            raise ValueError(f"rows and tokens must be of equal length, not {len(numbers)} and {len(values)}")
        for number in numbers.tolist():
            self._in_use(number)
        twice = repeated(numbers)
        if len(twice):
            raise ValueError(f"rows must not name row {twice[0]} twice")
        full = numbers[self.lengths[numbers] == self.max_tokens]
        if len(full):
            raise ValueError(f"row {full[0]} already holds {self.max_tokens} tokens")

    # These take an int, and run no Python code: what they have found is so until the call ends.

    def _in_use(self, row):
        """Return the number of a row that is in use."""
        number: cython.longlong = self._in_range(row)
        if not self.rows.in_use(number):
            raise ValueError(f"row {number} is not in use")
        return number

    def _not_in_use(self, row):
        """Return the number of a row that is not in use."""
        number: cython.longlong = self._in_range(row)
        if self.rows.in_use(number):
            raise ValueError(f"row {number} is in use")
        return number

    def _in_range(self, row):
        """Return the number of a row that there is."""
        number: cython.longlong = small_int(row)
        if not 0 <= number < self.rows.count:
            raise ValueError(f"row must be between 0 and {self.rows.count - 1}, not {row}")
        return number


def _filled(max_tokens, lengths, tokens):
    """Return rows of these lengths, NOT_IN_USE among them, that hold the tokens one after the other."""
    rows: TokenRows = TokenRows(len(lengths), max_tokens, integer_dtype(tokens.dtype))
    start = 0
    for number, length in enumerate(lengths.tolist()):
        if length != NOT_IN_USE:
            held = tokens[start : start + length]
            if not 0 <= length <= max_tokens or len(held) != length:
                raise ValueError(f"row {number} is said to hold {length} tokens")
            rows.put(number, view_of(held))
            start += length
    return rows


def _of_cells(cells, max_tokens):
    """Return the rows of the last version that was compiled by numba: two numbers before each row's tokens."""
    length, limit, header = 0, 1, 16
    in_use = cells[:, limit] > 0
    held = cells[:, header:][in_use[:, None] & (np.arange(cells.shape[1] - header) < cells[:, length, None])]
    return _filled(max_tokens, np.where(in_use, cells[:, length], NOT_IN_USE), held)


def _rebuilt(kind, max_tokens, lengths, tokens):
    """Build the table of these rows: what pickle and copy make of one."""
    table: TokenTable = kind.__new__(kind)
    table._hold(_filled(max_tokens, lengths, tokens))
    return table


if not cython.compiled:
    with_cinit(TokenTable, "rows")
