"""One request's token ids, in one numpy buffer that grows at its end."""

import array
import operator

import cython
import numpy as np
import torch

from kvpool import _signatures
from kvpool._arguments import as_int
from kvpool._signatures import ClassSignature
from kvpool._token_books import check_token_buffer
from kvpool._tokens_input import (
    checked_token,
    contiguous,
    integer_dtype,
    native,
    token_array,
    tokens_as,
)
from kvpool.errors import TokenRangeError

if not cython.compiled:
    from kvpool._plain import small_int
    from kvpool._plain_tokens import (
        copy_tokens,
        kind_of,
        listed,
        may_be_seen,
        new_tokens,
        packed,
        place_of,
        put,
        put_all,
        read_only,
        token_at,
        view_of,
        with_cinit,
        writable,
    )
    from kvpool._tokens_input import readable

# Room that a buffer which grows gets at least, in tokens: an eighth of a short one would be used up at once.
_SPARE = 512
# What a buffer of nothing is over; it has no room, so that nobody writes to it.
_NOTHING = np.empty(0, np.int64)


@cython.no_gc
@cython.cclass
class TokenBuffer:
    """A sequence of token ids over one numpy buffer of an integer dtype, which changes at its end alone.

    Growing:    `append`, `extend`, `+`
    Shortening: `truncate`
    Reading:    `len`, indexing, iteration, `tolist`
    No copies:  slicing, `numpy`, `torch`
    Comparing:  `==` (one bool), `kvpool.match_prefix`

    Built from a list, tuple, array.array, ndarray, tensor, another TokenBuffer or any other iterable of ints, which it
    copies. A token that is no integer (bools are none) is a TypeError and one that the dtype cannot hold an
    OverflowError that is also a ValueError; an array that is not one-dimensional is a ValueError. Whatever raises
    leaves the buffer as it was.

    Every method is atomic, whatever interrupts it, and safe from several threads: no token that was appended is lost.

    Views are ndarrays that cannot be written to. They stay valid and unchanged however the buffer grows, because it
    grows by an eighth into a new buffer, and into a new one as well where it is shortened while there are views. Costs
    are given for n tokens held and k given.

    Where an engine expects a list, `tolist` makes it one: a view has no one truth value, and its elements are numpy
    integers, which serialise in another way than ints, so that what engines hash of them is another hash.

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
        # Whoever forgets to call __init__ has a buffer of nothing.
        self._hold(_NOTHING, 0)

    def __init__(self, tokens=(), dtype=np.int64):
        resolved = integer_dtype(dtype)
        values = packed(tokens, kind_of(resolved))
        if values is None:
            values = contiguous(tokens_as(tokens, resolved, copy=True))
        self._hold(values, len(values))

    @property
    def dtype(self):
        """The dtype of the tokens."""
        return self.array.dtype

    # A method that is no function: 2 ns less a call.
    @cython.binding(False)
    @cython.embedsignature(True)
    def append(self, token):
        """Append one token. O(1) amortised."""
        if self.length < self.capacity and put(self.cells, self.kind, self.length, token):
            self.length += 1
        else:
            self._append_any(token)

    def extend(self, tokens):
        """Append tokens of any accepted kind, all of them or, where one is refused, none. O(k) amortised."""
        count: cython.longlong = put_all(self.cells, self.kind, self.length, self.capacity - self.length, tokens)
        if count >= 0:
            self.length += count
            return
        values = self._readable(tokens)
        view = view_of(values)
        before: object = self.array  # noqa: F841  (as in `_hold`)
        self._reserve(view.size)
        copy_tokens(self.cells, self.kind, self.length, view.cells, view.size)
        self.length += view.size

    def truncate(self, n):
        """Keep the first n tokens. O(1); where there are views of the buffer, the next token takes O(n).

        An n below 0 or above the number of tokens is a ValueError. Views stay as they are: what is appended next goes
        into a new buffer then. Where there are none, the room of the tokens that go is used again.
        """
        length: cython.longlong = small_int(n)
        if not 0 <= length <= self.length:
            number = as_int(n, "n")
            if not 0 <= number <= self.length:
                raise ValueError(f"n must be between 0 and {self.length}, not {number}")
            length = number
        self.shorten(length)

    def tolist(self, start=0, stop=None):
        """Return the tokens from `start` to `stop` as a new list of Python ints. O(k) for k of them.

        Bounds are those of a slice: a negative one counts from the end, None is the end itself, and one beyond it is
        cut back to it. One that is no integer is a TypeError.
        """
        return self.ints(start, stop)

    def numpy(self):
        """Return the tokens as a read-only view of the buffer. O(1)."""
        return self.view(0, self.length)

    def torch(self):
        """Return the tokens as a tensor that shares the buffer. O(1).

        torch has no read-only tensors: what is written into this one changes the tokens. Clone it to write.
        """
        return torch.from_numpy(writable(self.array, 0, self.length))

    def check(self):
        """Assert that the buffer's parts agree. O(1)."""
        check_token_buffer(self._state())

    def __len__(self):
        return self.length

    def __iter__(self):
        return iter(self.ints(None, None))

    def __getitem__(self, index):
        """Return one token as a Python int, or a slice as a read-only view of the buffer. O(1)."""
        if isinstance(index, slice):
            return self.numpy()[index]
        place: cython.longlong = small_int(index)
        if place < 0:
            position = operator.index(index)
            if position < 0:
                position += self.length
            if not 0 <= position < self.length:
                raise IndexError(f"index {index} is out of range for {self.length} tokens")
            place = position
        if place >= self.length:
            raise IndexError(f"index {index} is out of range for {self.length} tokens")
        return token_at(self.cells, self.kind, place)

    def __eq__(self, other):
        """Tell whether another sequence, of any of the accepted types, holds the same integers. O(n)."""
        if not isinstance(other, _SEQUENCES):
            return NotImplemented
        try:
            return np.array_equal(self.numpy(), token_array(other))
        except (TypeError, ValueError):
            return False

    __hash__ = None

    def __add__(self, other):
        """Return a new buffer of this one's tokens and another sequence's, of this one's dtype. O(n + k)."""
        if not isinstance(other, _SEQUENCES):
            return NotImplemented
        return type(self)._over(np.concatenate((self.numpy(), tokens_as(other, self.dtype))))

    def __radd__(self, other):
        """Return a new buffer of another sequence's tokens and this one's, of this one's dtype. O(n + k)."""
        if not isinstance(other, _SEQUENCES):
            return NotImplemented
        return type(self)._over(np.concatenate((tokens_as(other, self.dtype), self.numpy())))

    def __array__(self, dtype=None, copy=None):
        view = self.numpy()
        return view if dtype is None and not copy else np.array(view, dtype=dtype, copy=copy)

    def __reduce__(self):
        # The view is as long as the tokens are, so spare room is not pickled; protocol 5 takes it as one buffer.
        return type(self)._over, (self.numpy(),)

    def __repr__(self):
        tokens = self.numpy()
        shown = ", ".join(map(str, tokens[:8].tolist()))
        ellipsis = f", ... ({tokens.size} in all)" if tokens.size > 8 else ""
        return f"TokenBuffer([{shown}{ellipsis}], dtype={tokens.dtype})"

    @classmethod
    def _over(cls, values):
        """Return a full buffer over an array that nobody else writes to; the array itself is never written to."""
        if values.ndim != 1 or values.dtype.kind not in "iu":
            raise ValueError(f"a buffer is over one dimension of integers, not {values.dtype} of shape {values.shape}")
        # A pickle's bytes can be read-only memory, of which torch makes no tensor.
        own = native(values if values.flags.writeable else values.copy())
        own = contiguous(own)
        buffer: TokenBuffer = cls.__new__(cls)
        buffer._hold(own, len(own))
        return buffer

    def _state(self):
        """Return a copy of what the buffer consists of."""
        # Made first: making it may run a finaliser that appends.
        state: dict = {}
        state["view"] = self.numpy()
        state["array"] = self.array
        state["length"] = self.length
        state["capacity"] = self.capacity
        return state

    def view(self, start, stop):
        """Return a read-only view of the tokens from `start` to `stop`, which are there."""
        return read_only(self.array, start, stop)

    def ints(self, start, stop):
        """Return the tokens between a slice's bounds, which are yet to be checked, as a list."""
        if start is not None and type(start) is not int:
            start = as_int(start, "start")
        if stop is not None and type(stop) is not int:
            stop = as_int(stop, "stop")
        last: cython.longlong = place_of(stop, self.length, self.length)
        return listed(self.array, min(place_of(start, 0, self.length), last), last)

    def shorten(self, length):
        """Keep the first `length` tokens, which are there."""
        if length < self.length:
            array: object = self.array
            # Without room nothing is written over what views show.
            self.capacity = length if may_be_seen(array) else view_of(array).size
            self.length = length

    def _hold(self, array, length):
        """Take an array for the buffer, its first `length` elements being the tokens."""
        view = view_of(array)
        # The old one is let go of last, as that may run code of whoever owns its memory.
        before: object = self.array  # noqa: F841
        self.array = array
        self.cells = view.cells
        self.kind = view.kind
        self.capacity = view.size
        self.length = length
        return 0

    def _append_any(self, token):
        """Append what is no int, or does not fit the buffer as it is."""
        value = checked_token(token, self.array.dtype)
        before: object = self.array  # noqa: F841  (as in `_hold`)
        self._reserve(1)
        if not put(self.cells, self.kind, self.length, value):
            raise TokenRangeError(value, self.array.dtype)
        self.length += 1
        return 0

    def _reserve(self, count):
        """Make room for `count` tokens more; views of the old buffer keep it."""
        while self.capacity - self.length < count:
            size: cython.longlong = self.length + count
            grown = new_tokens(self.kind, size + max(size // 8, _SPARE))
            view = view_of(grown)
            # Nothing promises that making the array has run no finaliser which appended.
            if view.kind == self.kind and self.length + count <= view.size:
                copy_tokens(view.cells, self.kind, 0, self.cells, self.length)
                self._hold(grown, self.length)
        return 0

    def _readable(self, tokens):
        """Return tokens as an array or tensor of this buffer's kind that can be read in place."""
        values = readable(tokens, self.kind)
        while view_of(values).kind != self.kind:
            # Reading them has built this buffer anew, of another dtype.
            values = readable(values, self.kind)
        return values


# What `==` and `+` accept on the other side.
_SEQUENCES = (TokenBuffer, list, tuple, array.array, np.ndarray, torch.Tensor)

if not cython.compiled:
    with_cinit(TokenBuffer, "array")
