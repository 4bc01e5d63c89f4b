"""One request's token ids, in one numpy buffer that grows at its end."""

import array
import operator

import cython
import numpy as np
import torch

from kvpool import _signatures
from kvpool._signatures import ClassSignature
from kvpool._tokens_input import checked_token, integer_dtype, native, token_array, tokens_as

if not cython.compiled:
    from kvpool._plain import (
        cells_in,
        code_of,
        copy_cells,
        int_at,
        new_cells,
        put_bits,
        put_int,
        view_of_cells,
        view_on,
    )

# Room that a buffer which grows gets at least, in tokens: an eighth of a short one would be used up at once.
_SPARE = 512


@cython.cclass
class TokenBuffer:
    """An append-only growable sequence of token ids over one numpy buffer of an integer dtype.

    Growing:    `append`, `extend`, `+`
    Reading:    `len`, indexing, iteration, `tolist`
    No copies:  slicing, `numpy`, `torch`
    Comparing:  `==` (one bool), `kvpool.match_prefix`

    Built from a list, tuple, array.array, ndarray, tensor, another TokenBuffer or any other iterable of ints, which it
    copies. A token that is no integer (bools are none) is a TypeError and one that the dtype cannot hold an
    OverflowError that is also a ValueError; an array that is not one-dimensional is a ValueError. Whatever raises
    leaves the buffer as it was, and `append` and `extend` are atomic.

    Views are ndarrays that cannot be written to. They stay valid and unchanged however the buffer grows, because it
    grows by an eighth into a new buffer. Costs are given for n tokens held and k given.

    >>> tokens = TokenBuffer([11, 12, 13])
    >>> tokens.append(14)
    >>> tokens[-1], len(tokens), tokens[1:3]
    (14, 4, array([12, 13]))
    >>> [10] + tokens == [10, 11, 12, 13, 14]
    True
    """

    # An ndarray on the left of `+` or `==` leaves the operation to the TokenBuffer instead of broadcasting over it.
    __array_ufunc__ = None

    __signature__ = ClassSignature(_signatures.token_buffer)

    def __cinit__(self):
        # Whoever forgets to call __init__ has a buffer of no tokens.
        self.dtype = integer_dtype(np.int64)
        self._fill(np.empty(0, np.int64), 0, 0)

    def __init__(self, tokens=(), dtype=np.int64):
        resolved = integer_dtype(dtype)
        values = tokens_as(tokens, resolved, True)
        self._fill(values, len(values), len(values))

    @cython.binding(False)
    @cython.embedsignature(True)
    def append(self, token):
        """Append one token. O(1) amortised."""
        if self._length < self.room and put_int(self.cells, self._length, self.code, token):
            self._length += 1
            return
        value = checked_token(token, self.dtype)
        while not self._has_room(1):
            pass
        put_bits(self.cells, self._length, self.code, value)
        self._length += 1

    def extend(self, tokens):
        """Append tokens of any accepted kind, all of them or, where one is refused, none. O(k) amortised."""
        values = tokens_as(tokens, self.dtype)
        count: cython.longlong = len(values)
        while not self._has_room(count):
            pass
        copy_cells(self.cells, self._length, cells_in(values), count, self.code)
        self._length += count

    def tolist(self):
        """Return the tokens as a new list of Python ints. O(n)."""
        return self._view(0, self._length).tolist()

    def numpy(self):
        """Return the tokens as a read-only view of the buffer. O(1)."""
        return self._view(0, self._length)

    def torch(self):
        """Return the tokens as a tensor that shares the buffer. O(1).

        torch has no read-only tensors: what is written into this one changes the tokens. Clone it to write.
        """
        return torch.from_numpy(view_on(self.array, self.cells, 0, self._length, self.code, True))

    def check(self):
        """Assert that the buffer's parts agree. O(1)."""
        assert self.array.ndim == 1, f"the buffer has shape {self.array.shape}"
        assert self.array.dtype == self.dtype, f"the buffer has dtype {self.array.dtype}, not {self.dtype}"
        assert self.array.flags.c_contiguous, f"the buffer has strides {self.array.strides}"
        assert self.room in (0, len(self.array)), f"room for {self.room} tokens in a buffer of {len(self.array)}"
        assert 0 <= self._length <= len(self.array), f"{self._length} tokens in a buffer of {len(self.array)}"
        view = self._view(0, self._length)
        assert view.base is self.array or view.base is self.array.base, "views are of another buffer"
        assert not view.flags.writeable, "views can be written to"

    def __len__(self):
        return self._length

    def __iter__(self):
        return iter(self.tolist())

    def __getitem__(self, index):
        """Return one token as a Python int, or a slice as a read-only view of the buffer. O(1)."""
        if isinstance(index, slice):
            if index.step is None or index.step == 1:
                start, stop, _ = index.indices(self._length)
                return self._view(start, max(start, stop))
            return self._view(0, self._length)[index]
        number = operator.index(index)
        position = number + self._length if number < 0 else number
        if not 0 <= position < self._length:
            raise IndexError(f"index {number} is out of range for {self._length} tokens")
        return int_at(self.cells, position, self.code)

    def __eq__(self, other):
        """Tell whether another sequence, of any of the accepted types, holds the same integers. O(n)."""
        if not isinstance(other, _SEQUENCES):
            return NotImplemented
        try:
            return np.array_equal(self.numpy(), token_array(other))
        except (TypeError, ValueError):
            return False

    def __add__(self, other):
        """Return a new buffer of this one's tokens and another sequence's, of this one's dtype. O(n + k)."""
        if not isinstance(other, _SEQUENCES):
            return NotImplemented
        return _over(type(self), np.concatenate((self.numpy(), tokens_as(other, self.dtype))))

    def __radd__(self, other):
        """Return a new buffer of another sequence's tokens and this one's, of this one's dtype. O(n + k)."""
        if not isinstance(other, _SEQUENCES):
            return NotImplemented
        return _over(type(self), np.concatenate((tokens_as(other, self.dtype), self.numpy())))

    def __array__(self, dtype=None, copy=None):
        view = self.numpy()
        return view if dtype is None and not copy else np.array(view, dtype=dtype, copy=copy)

    def __reduce__(self):
        # The view is as long as the tokens are, so spare room is not pickled; protocol 5 takes it as one buffer.
        return _over, (type(self), self.numpy())

    def __copy__(self):
        return _over(type(self), self.numpy().copy())

    def __deepcopy__(self, memo):
        return _over(type(self), self.numpy().copy())

    def __repr__(self):
        shown = ", ".join(map(str, self._view(0, min(self._length, 8))))
        ellipsis = f", ... ({self._length} in all)" if self._length > 8 else ""
        return f"TokenBuffer([{shown}{ellipsis}], dtype={self.dtype})"

    @classmethod
    def _over(cls, values):
        """Return a full buffer over an array, as pickles of version 0.1 ask for it."""
        return _over(cls, values)

    def _adopt(self, values):
        """Take a whole array for the buffer, all of it tokens, which is never written to."""
        values = native(values)
        # A pickle's bytes can be read-only memory, of which torch makes no tensor.
        if not (values.flags.carray and values.ndim == 1):
            values = values.copy().ravel()
        self._fill(values, len(values), 0)

    def _fill(self, values, length, room):
        """Take an array for the buffer, with `length` tokens; where there is no `room` it is never written to."""
        code: cython.int = code_of(values.dtype)
        dtype = values.dtype
        # Kept until all is in place: what goes away with it may run a finaliser.
        former = self.array if cython.compiled else None
        self.array = values
        self.cells = cells_in(values)
        self._length = length
        self.room = room
        self.code = code
        self.dtype = dtype
        del former

    def _has_room(self, more):
        """Tell whether there is room for `more` tokens, and make some where not; views of the old buffer keep it."""
        length: cython.longlong = self._length + more
        if length <= self.room or more == 0:
            return True
        room: cython.longlong = length + max(length // 8, _SPARE)
        grown = new_cells(room, self.code)
        copy_cells(cells_in(grown), 0, self.cells, self._length, self.code)
        self._fill(grown, self._length, room)
        return False

    def _token_view(self):
        """Look at the tokens in place, for as long as nothing is appended."""
        return view_of_cells(self.cells, self._length, self.code)

    def _view(self, start, stop):
        return view_on(self.array, self.cells, start, stop, self.code, False)


def _over(kind, values):
    """Return a full buffer of a kind over an array that nobody else writes to: what pickle and `+` make of one."""
    buffer = kind.__new__(kind)
    buffer._adopt(values)
    return buffer


# What `==` and `+` accept on the other side.
_SEQUENCES = (TokenBuffer, list, tuple, array.array, np.ndarray, torch.Tensor)
