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

    `lengths` says how many tokens a row holds, `limits` how many it may: `max_tokens`, or 0 where it is not in use.
    `named` and `sampled` are room for the rows and tokens of the append that is under way. Arguments are trusted.
    """

    def __init__(self, count, max_tokens, dtype):
        # Rows of an odd number of cache lines: requests in step write to columns that a power of two would put into one
        # set of the cache.
        width = (-(-max_tokens // LINE) | 1) * LINE
        self.tokens = np.zeros((count, width), dtype)
        self.lengths = np.zeros(count, np.int64)
        self.limits = np.zeros(count, np.int64)
        self.named = np.zeros(count, np.int64)
        self.sampled = np.zeros(count, np.int64)
        self.count = count
        self.max_tokens = max_tokens
        self.width = width
        self.kind = kind_of(dtype)
        self.cells = cells_of(self.tokens)
        self.length = ids_in(self.lengths)
        self.limit = ids_in(self.limits)
        self.named_row = ids_in(self.named)
        self.sampled_token = ids_in(self.sampled)

    def in_use(self, row):
        """Tell whether a row is in use, which one that is not there is not."""
        return 0 <= row < self.count and self.limit[row] != 0

    def lowest_not_in_use(self):
        """Return the lowest row that is not in use, NOT_IN_USE where there is none."""
        row: cython.longlong
        for row in range(self.count):
            if self.limit[row] == 0:
                return row
        return NOT_IN_USE

    def put(self, row, tokens):
        """Take a row into use with tokens of its kind, which it has room for."""
        copy_tokens(self.cells, self.kind, row * self.width, tokens.cells, tokens.size)
        self.length[row] = tokens.size
        self.limit[row] = self.max_tokens

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
        self.limit[target] = self.max_tokens
        self.remove(source)

    def remove(self, row):
        """Take a row out of use."""
        self.length[row] = self.limit[row] = 0

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
        named, sampled, lengths, limits, cells = self.named_row, self.sampled_token, self.length, self.limit, self.cells
        kind, width, rows_there = self.kind, self.width, self.count
        for i in range(count):
            row: cython.longlong = named[i]
            if within(row, rows_there):
                length: cython.longlong = lengths[row]
                if within(length, limits[row]) and put_number(cells, kind, row * width + length, sampled[i]):
                    # Until all rows have their token, the complement of its length says that a row has been named.
                    lengths[row] = ~length
                    continue
            for j in range(i):
                lengths[named[j]] = ~lengths[named[j]]
            return False
        for i in range(count):
            lengths[named[i]] = -lengths[named[i]]
        return True

    def state(self):
        """Return a copy of what the rows are, for checks."""
        lengths, limits = new_ids(self.count), new_ids(self.count)
        state: dict = {"lengths": lengths, "limits": limits, "max_tokens": self.max_tokens, "shape": self.tokens.shape}
        row: cython.longlong
        copied_length, copied_limit = ids_in(lengths), ids_in(limits)
        for row in range(self.count):
            copied_length[row] = self.length[row]
            copied_limit[row] = self.limit[row]
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
                copied_length[row] = length if self.limit[row] else NOT_IN_USE
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
