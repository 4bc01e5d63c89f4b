"""One request's token ids, in one numpy buffer that grows at its end."""

import array
import operator
from collections.abc import Iterator
from typing import Any, ClassVar, Self, overload

import numpy as np
import numpy.typing as npt
import torch

from kvpool._tokens_input import (
    TokenArray,
    TokenRangeError,
    Tokens,
    checked_token,
    integer_dtype,
    native,
    token_array,
    tokens_as,
)

# Room that a buffer which grows gets at least, in tokens: an eighth of a short one would be used up at once.
SPARE = 512
_FULL = memoryview(bytearray())


class TokenBuffer:
    """An append-only growable sequence of token ids over one numpy buffer of an integer dtype.

    Growing:    `append`, `extend`, `+`
    Reading:    `len`, indexing, iteration, `tolist`
    No copies:  slicing, `numpy`, `torch`
    Comparing:  `==` (one bool), `kvpool.match_prefix`

    Built from a list, tuple, array.array, ndarray, tensor, another TokenBuffer or any other iterable of ints, which it
    copies. A token that is no integer (bools are none) is a TypeError and one that the dtype cannot hold an
    OverflowError that is also a ValueError; an array that is not one-dimensional is a ValueError. Whatever raises
    leaves the buffer as it was.

    Views are ndarrays that cannot be written to. They stay valid and unchanged however the buffer grows, because it
    grows by an eighth into a new buffer. Costs are given for n tokens held and k given.

    >>> tokens = TokenBuffer([11, 12, 13])
    >>> tokens.append(14)
    >>> tokens[-1], len(tokens), tokens[1:3]
    (14, 4, array([12, 13]))
    >>> [10] + tokens == [10, 11, 12, 13, 14]
    True
    """

    # `_array` is the buffer and `_length` how much of it is taken. `_cells` is what `append` writes through: the buffer
    # as a memoryview, which checks an int's range faster than numpy, or nothing where the buffer came full. `_frozen`
    # is a read-only view of the whole buffer, from which every view is cut.
    __slots__ = ("_array", "_cells", "_frozen", "_length")

    # An ndarray on the left of `+` or `==` leaves the operation to the TokenBuffer instead of broadcasting over it.
    __array_ufunc__ = None
    __hash__: ClassVar[None]  # type: ignore[assignment]

    _array: TokenArray
    _cells: memoryview
    _frozen: TokenArray
    _length: int

    def __init__(self, tokens: Tokens = (), dtype: npt.DTypeLike = np.int64) -> None:
        self._fill(tokens_as(tokens, integer_dtype(dtype), copy=True))

    @property
    def dtype(self) -> np.dtype[Any]:
        """The dtype of the tokens."""
        return self._array.dtype

    def append(self, token: int) -> None:
        """Append one token. O(1) amortised."""
        length = self._length
        try:
            if type(token) is int:
                self._cells[length] = token
                self._length = length + 1
            else:
                self.append(checked_token(token, self.dtype))
        except IndexError:
            self._reserve(length + 1)
            self.append(token)
        except ValueError:
            raise TokenRangeError(token, self.dtype) from None

    def extend(self, tokens: Tokens) -> None:
        """Append tokens of any accepted kind, all of them or, where one is refused, none. O(k) amortised."""
        values = tokens_as(tokens, self.dtype)
        length = self._length + len(values)
        self._reserve(length)
        self._array[self._length : length] = values
        self._length = length

    def tolist(self) -> list[int]:
        """Return the tokens as a new list of Python ints. O(n)."""
        tokens: list[int] = self._array[: self._length].tolist()
        return tokens

    def numpy(self) -> TokenArray:
        """Return the tokens as a read-only view of the buffer. O(1)."""
        return self._frozen[: self._length]

    def torch(self) -> torch.Tensor:
        """Return the tokens as a tensor that shares the buffer. O(1).

        torch has no read-only tensors: what is written into this one changes the tokens. Clone it to write.
        """
        return torch.from_numpy(self._array[: self._length])

    def check(self) -> None:
        """Assert that the buffer's parts agree. O(1)."""
        assert self._array.ndim == 1, f"the buffer has shape {self._array.shape}"
        assert self._array.dtype.kind in "iu", f"the buffer has dtype {self._array.dtype}"
        assert self._array.flags.c_contiguous, f"the buffer has strides {self._array.strides}"
        assert 0 <= self._length <= len(self._array), f"{self._length} tokens in a buffer of {len(self._array)}"
        owner: object = self._array if len(self._cells) else _FULL.obj
        assert self._cells.obj is owner, "appends go elsewhere than into the buffer"
        assert self._frozen.base is self._array or self._frozen.base is self._array.base, "views are of another buffer"
        assert not self._frozen.flags.writeable, "views can be written to"

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[int]:
        return iter(self.tolist())

    @overload
    def __getitem__(self, index: int) -> int: ...
    @overload
    def __getitem__(self, index: slice) -> TokenArray: ...
    def __getitem__(self, index: int | slice) -> int | TokenArray:
        """Return one token as a Python int, or a slice as a read-only view of the buffer. O(1)."""
        if isinstance(index, slice):
            return self.numpy()[index]
        position = operator.index(index)
        if position < 0:
            position += self._length
        if not 0 <= position < self._length:
            raise IndexError(f"index {index} is out of range for {self._length} tokens")
        token: int = self._array.item(position)
        return token

    def __eq__(self, other: object) -> bool:
        """Tell whether another sequence, of any of the accepted types, holds the same integers. O(n)."""
        if not isinstance(other, _SEQUENCES):
            return NotImplemented
        try:
            return np.array_equal(self.numpy(), token_array(other))
        except (TypeError, ValueError):
            return False

    def __add__(self, other: Tokens) -> "TokenBuffer":
        """Return a new buffer of this one's tokens and another sequence's, of this one's dtype. O(n + k)."""
        if not isinstance(other, _SEQUENCES):
            return NotImplemented
        return self._concatenated(self.numpy(), tokens_as(other, self.dtype))

    def __radd__(self, other: Tokens) -> "TokenBuffer":
        """Return a new buffer of another sequence's tokens and this one's, of this one's dtype. O(n + k)."""
        if not isinstance(other, _SEQUENCES):
            return NotImplemented
        return self._concatenated(tokens_as(other, self.dtype), self.numpy())

    def __array__(self, dtype: npt.DTypeLike | None = None, copy: bool | None = None) -> npt.NDArray[Any]:
        view = self.numpy()
        return view if dtype is None and not copy else np.array(view, dtype=dtype, copy=copy)

    def __reduce__(self) -> tuple[Any, ...]:
        # The view is as long as the tokens are, so spare room is not pickled; protocol 5 takes it as one buffer.
        return type(self)._over, (self.numpy(),)

    def __repr__(self) -> str:
        shown = ", ".join(map(str, self._array[: min(self._length, 8)]))
        ellipsis = f", ... ({self._length} in all)" if self._length > 8 else ""
        return f"TokenBuffer([{shown}{ellipsis}], dtype={self.dtype})"

    @classmethod
    def _over(cls, values: TokenArray) -> Self:
        """Return a full buffer over an array that nobody else writes to; the array itself is never written to."""
        buffer = cls.__new__(cls)
        # A pickle's bytes can be read-only memory, of which torch makes no tensor.
        buffer._fill(native(values if values.flags.writeable else values.copy()))
        return buffer

    @classmethod
    def _concatenated(cls, left: TokenArray, right: TokenArray) -> Self:
        return cls._over(np.concatenate((left, right)))

    def _fill(self, values: TokenArray) -> None:
        """Take an array for the buffer, all of it tokens; what is appended goes into another."""
        self._array = values
        self._frozen = values[:]
        self._frozen.flags.writeable = False
        self._cells = _FULL
        self._length = len(values)

    def _reserve(self, length: int) -> None:
        """Make room for `length` tokens; views of the old buffer keep it."""
        if length > len(self._array):
            grown = np.empty(length + max(length // 8, SPARE), self.dtype)
            taken = self._length
            grown[:taken] = self._array[:taken]
            self._fill(grown)
            self._cells = grown.data
            self._length = taken


# What `==` and `+` accept on the other side.
_SEQUENCES = (TokenBuffer, list, tuple, array.array, np.ndarray, torch.Tensor)
