"""The rows of a token table: one token sequence in each, at its own place in one array."""

import cython
import numpy as np

if not cython.compiled:
    from kvpool._plain import ids_in, new_ids
    from kvpool._plain_tokens import (
        behind,
        cells_of,
        copy_tokens,
        kind_of,
        new_tokens,
        put_number,
        swap_tokens,
        widen,
        within,
    )

    NOT_IN_USE, LINE = -1, 16


@cython.final
@cython.no_gc
@cython.cclass
class TokenRows:
    """`count` rows of up to `max_tokens` tokens, each in use or not.

    Rows:     `put`, `remove`, `swap`, `move`
    Tokens:   `append`, `write`, `truncate`
    Reading:  `in_use`, `lowest_not_in_use`, `state`, `packed`

    `lengths` says how many tokens a row holds, `appended` which append was the last that named it, NOT_IN_USE where it
    is not in use. `named` and `sampled` are room for the rows and tokens of the append that is under way. Arguments are
    trusted.
    """

    def __init__(self, count, max_tokens, dtype):
        # Rows of an odd number of cache lines: requests in step write to columns that a power of two would put into one
        # set of the cache.
        width = (-(-max_tokens // LINE) | 1) * LINE
        self.tokens = np.zeros((count, width), dtype)
        self.lengths = np.zeros(count, np.int64)
        self.appended = np.full(count, NOT_IN_USE, np.int64)
        self.named = np.zeros(count, np.int64)
        self.sampled = np.zeros(count, np.int64)
        self.appends = 0
        self.count = count
        self.max_tokens = max_tokens
        self.width = width
        self.kind = kind_of(dtype)
        self.cells = cells_of(self.tokens)
        self.length = ids_in(self.lengths)
        self.last_append = ids_in(self.appended)
        self.named_row = ids_in(self.named)
        self.sampled_token = ids_in(self.sampled)

    def in_use(self, row):
        """Tell whether a row is in use, which one that is not there is not."""
        return 0 <= row < self.count and self.last_append[row] != NOT_IN_USE

    def lowest_not_in_use(self):
        """Return the lowest row that is not in use, NOT_IN_USE where there is none."""
        row: cython.longlong
        for row in range(self.count):
            if self.last_append[row] == NOT_IN_USE:
                return row
        return NOT_IN_USE

    def put(self, row, tokens):
        """Take a row into use with tokens of its kind, which it has room for."""
        copy_tokens(self.cells, self.kind, row * self.width, tokens.cells, tokens.size)
        self.length[row] = tokens.size
        self.last_append[row] = 0

    def write(self, row, offset, tokens):
        """Put tokens of its kind, which it has room for, into a row from a place on that is not beyond its end."""
        copy_tokens(self.cells, self.kind, row * self.width + offset, tokens.cells, tokens.size)
        self.length[row] = max(self.length[row], offset + tokens.size)

    def truncate(self, row, length):
        """Keep the first `length` tokens of a row, which are there."""
        self.length[row] = length

    def swap(self, a, b):
        """Exchange the tokens of two rows in use."""
        if a != b:
            length: cython.longlong = self.length[a]
            left = behind(self.cells, self.kind, a * self.width)
            right = behind(self.cells, self.kind, b * self.width)
            swap_tokens(left, right, self.kind, max(length, self.length[b]))
            self.length[a] = self.length[b]
            self.length[b] = length

    def move(self, source, target):
        """Put the tokens of a row in use into one that is not, and take the first out of use."""
        cells = behind(self.cells, self.kind, source * self.width)
        copy_tokens(self.cells, self.kind, target * self.width, cells, self.length[source])
        self.length[target] = self.length[source]
        self.last_append[target] = 0
        self.remove(source)

    def remove(self, row):
        """Take a row out of use."""
        self.length[row] = 0
        self.last_append[row] = NOT_IN_USE

    def append(self, rows, tokens):
        """Append one token to each of many rows; False, and nothing has changed, where one cannot be.

        That is when a row is not in use, full or named twice, when a token does not fit, when they are of unequal
        number, and when either is of a kind that is not read in place.
        """
        count: cython.longlong = rows.size
        i: cython.longlong
        j: cython.longlong
        if count != tokens.size or count > self.count:
            return False
        # Copies, as nobody may hold the arrays' owners back from writing.
        if not widen(rows, self.named_row) or not widen(tokens, self.sampled_token):
            return False
        # Without the names of fields, which C reads again after each write.
        named, sampled, lengths, last_append = self.named_row, self.sampled_token, self.length, self.last_append
        cells, kind, width, rows_there, most = self.cells, self.kind, self.width, self.count, self.max_tokens
        self.appends += 1
        this: cython.longlong = self.appends
        for i in range(count):
            row: cython.longlong = named[i]
            # In use, and not named by this append before.
            if within(row, rows_there) and within(last_append[row], this):
                length: cython.longlong = lengths[row]
                if length < most and put_number(cells, kind, row * width + length, sampled[i]):
                    lengths[row] = length + 1
                    last_append[row] = this
                    continue
            for j in range(i):
                lengths[named[j]] -= 1
            return False
        return True

    def state(self):
        """Return a copy of what the rows are, for checks."""
        lengths, appended = new_ids(self.count), new_ids(self.count)
        state: dict = {"lengths": lengths, "appended": appended}
        state["max_tokens"] = self.max_tokens
        state["shape"] = self.tokens.shape
        state["appends"] = self.appends
        row: cython.longlong
        copied_length, copied_append = ids_in(lengths), ids_in(appended)
        for row in range(self.count):
            copied_length[row] = self.length[row]
            copied_append[row] = self.last_append[row]
        return state

    def packed(self):
        """Return the length of each row, NOT_IN_USE where that is what it is, and all rows' tokens in one array."""
        row: cython.longlong
        while True:
            size: cython.longlong = self._size()
            lengths, tokens = new_ids(self.count), new_tokens(self.kind, size)
            packed: tuple = (lengths, tokens)
            # Making them may have run a finaliser that changed the table.
            if self._size() != size:
                continue
            copied_length, cells = ids_in(lengths), cells_of(tokens)
            start: cython.longlong = 0
            for row in range(self.count):
                length: cython.longlong = self.length[row]
                copied_length[row] = length if self.in_use(row) else NOT_IN_USE
                copy_tokens(cells, self.kind, start, behind(self.cells, self.kind, row * self.width), length)
                start += length
            return packed

    def _size(self):
        """Return how many tokens there are in all rows."""
        row: cython.longlong
        size: cython.longlong = 0
        for row in range(self.count):
            size += self.length[row]
        return size
