"""Whatever a caller holds token ids in, brought to one one-dimensional integer ndarray.

Used by every token container; a function returns what its caller may trust or raises.
"""

import operator
import struct
from array import array
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

Tokens = Iterable[int] | torch.Tensor | npt.NDArray[np.integer[Any]]
TokenArray = npt.NDArray[Any]

INT32 = np.dtype(np.int32)
INT64 = np.dtype(np.int64)
UINT64 = np.dtype(np.uint64)
NATIVE = {(kind, size): np.dtype(f"{kind}{size}") for kind in "iu" for size in (1, 2, 4, 8)}

# Items that one call of struct takes: enough to make its cost small, few enough that they stay in the cache.
PACKED_AT_ONCE = 4096
# Up to this many items, looking at each one's type costs less than searching the packed values.
FEW = 100


class TokenRangeError(OverflowError, ValueError):
    """A token that the dtype cannot hold.

    A ValueError, as malformed arguments are throughout kvpool, and the OverflowError that array.array and numpy raise.
    """

    def __init__(self, token: int, dtype: np.dtype[Any]) -> None:
        super().__init__(token, dtype)
        self.token = token
        self.dtype = dtype

    def __str__(self) -> str:
        return f"token {self.token} does not fit {self.dtype}"


def integer_dtype(dtype: npt.DTypeLike) -> np.dtype[Any]:
    """Return a dtype that holds token ids, in native byte order; any that is no integer type is a TypeError."""
    resolved = np.dtype(dtype)
    if resolved.kind not in "iu":
        raise TypeError(f"tokens need an integer dtype, not {resolved}")
    return NATIVE[resolved.kind, resolved.itemsize]


def native(values: TokenArray) -> TokenArray:
    """Return an integer array with the one dtype object of its kind and size, a copy only if its bytes are swapped.

    numpy has two types for some, of which torch knows one, and an unpickled array brings an object of its own.
    """
    dtype = NATIVE[values.dtype.kind, values.dtype.itemsize]
    return values.view(dtype) if values.dtype == dtype else values.astype(dtype)


def checked_token(token: object, dtype: np.dtype[Any]) -> int:
    """Return one token as a Python int that fits `dtype`."""
    if isinstance(token, (bool, np.bool_)) or getattr(token, "dtype", None) is torch.bool:
        raise TypeError(f"a token must be an integer, but {token!r} is a bool")
    try:
        value = operator.index(token)  # type: ignore[arg-type]
    except TypeError:
        raise TypeError(f"a token must be an integer, not a {type(token).__name__}") from None
    limits = np.iinfo(dtype)
    if not limits.min <= value <= limits.max:
        raise TokenRangeError(value, dtype)
    return value


def token_array(tokens: Tokens) -> TokenArray:
    """Return tokens as an ndarray of the integer dtype they have: a view of an array or a CPU tensor, else a copy.

    Python ints become int64, or uint64 where int64 cannot hold them. Nothing, of whatever dtype, is an empty array.
    """
    values = _as_ndarray(tokens)
    if values is not None:
        return values
    items = _items(tokens)
    try:
        return _pack(items, INT64)
    except TokenRangeError as error:
        try:
            return _pack(items, UINT64)
        except TokenRangeError:
            raise error from None


def tokens_as(tokens: Tokens, dtype: np.dtype[Any], *, copy: bool = False) -> TokenArray:
    """Return tokens as an ndarray of `dtype`: a view of an array or a CPU tensor of that dtype, else a copy.

    With `copy` it is a contiguous copy in any case.
    """
    values = _as_ndarray(tokens)
    if values is None:
        return _pack(_items(tokens), dtype)
    if values.size and not np.can_cast(values.dtype, dtype):
        limits = np.iinfo(dtype)
        for extreme in (int(values.min()), int(values.max())):
            if not limits.min <= extreme <= limits.max:
                raise TokenRangeError(extreme, dtype)
    return values.astype(dtype, copy=copy)


def _as_ndarray(tokens: Tokens) -> TokenArray | None:
    """Return what already is an array as an ndarray, and None for other iterables."""
    if type(tokens) is not np.ndarray:
        if isinstance(tokens, torch.Tensor):
            return _tensor_as_ndarray(tokens)
        if hasattr(tokens, "__array__"):
            tokens = np.asarray(tokens.__array__())
        elif isinstance(tokens, (array, memoryview)):
            tokens = np.asarray(tokens)
        elif hasattr(tokens, "__iter__"):
            return None
        else:
            raise TypeError(f"tokens must be a sequence of integers, not a {type(tokens).__name__}")
    if tokens.ndim != 1:
        raise ValueError(f"tokens must have one dimension, but have shape {tokens.shape}")
    if tokens.size == 0:
        return np.empty(0, np.int64)
    if tokens.dtype is INT64 or tokens.dtype is INT32:
        return tokens
    if tokens.dtype.kind == "O":
        return None
    if tokens.dtype.kind not in "iu":
        raise TypeError(f"tokens must be integers, not {tokens.dtype}")
    return native(tokens)


def _tensor_as_ndarray(tokens: torch.Tensor) -> TokenArray:
    if tokens.dim() != 1:
        raise ValueError(f"tokens must have one dimension, but have shape {tuple(tokens.shape)}")
    if tokens.numel() == 0:
        return np.empty(0, np.int64)
    if tokens.dtype is torch.bool or tokens.is_floating_point() or tokens.is_complex() or tokens.is_quantized:
        raise TypeError(f"tokens must be integers, not {tokens.dtype}")
    values: TokenArray = tokens.numpy(force=True)
    return values


def _items(tokens: Tokens) -> Sequence[Any]:
    return tokens if isinstance(tokens, (list, tuple)) else list(tokens)


def _pack(items: Sequence[Any], dtype: np.dtype[Any]) -> TokenArray:
    """Return Python integers as an ndarray.

    struct checks that each is an integer that fits and stores it, all in one loop over machine words, but takes bools.
    Those have become 0 or 1, so that only where these stand the items are looked at again.
    """
    packed = np.empty(len(items), dtype)
    cells = packed.data
    try:
        for start in range(0, len(items), PACKED_AT_ONCE):
            part = items[start : start + PACKED_AT_ONCE]
            struct.pack_into(f"{len(part)}{dtype.char}", cells, start * dtype.itemsize, *part)
    except struct.error:
        for item in items:
            checked_token(item, dtype)
        raise
    if len(items) <= FEW:
        suspects = items
    else:
        below_two = np.flatnonzero(packed.view(NATIVE["u", dtype.itemsize]) <= 1)
        suspects = [items[i] for i in below_two.tolist()]
    if not set(map(type, suspects)) <= {int}:
        for item in suspects:
            checked_token(item, dtype)
    return packed
