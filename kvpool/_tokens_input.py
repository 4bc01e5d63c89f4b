"""Whatever a caller holds token ids in, brought to one one-dimensional integer ndarray.

Used by every token container; a function returns what its caller may trust or raises.
"""

import operator
from array import array

import cython
import numpy as np
import torch

from kvpool._arguments import refuse_masked
from kvpool.errors import TokenRangeError

if not cython.compiled:
    from kvpool._plain_tokens import NO_TOKENS, converted, kind_of, packed, view_of

INT32 = np.dtype(np.int32)
INT64 = np.dtype(np.int64)
UINT64 = np.dtype(np.uint64)
_NATIVE = {(kind, size): np.dtype(f"{kind}{size}") for kind in "iu" for size in (1, 2, 4, 8)}
_DTYPES = {kind_of(dtype): dtype for dtype in _NATIVE.values()}
_LIMITS = {dtype: (int(np.iinfo(dtype).min), int(np.iinfo(dtype).max)) for dtype in _NATIVE.values()}


def integer_dtype(dtype):
    """Return a dtype that holds token ids, in native byte order; any that is no integer type is a TypeError."""
    resolved = np.dtype(dtype)
    if resolved.kind not in "iu":
        raise TypeError(f"tokens need an integer dtype, not {resolved}")
    return _NATIVE[resolved.kind, resolved.itemsize]


def native(values):
    """Return an integer array with the one dtype object of its kind and size, a copy only if its bytes are swapped.

    numpy has two types for some, of which torch knows one, and an unpickled array brings an object of its own.
    """
    dtype = _NATIVE[values.dtype.kind, values.dtype.itemsize]
    return values.view(dtype) if values.dtype == dtype else values.astype(dtype)


def checked_token(token, dtype):
    """Return one token as a Python int that fits `dtype`."""
    value = token if type(token) is int else _as_int(token)
    low, high = _LIMITS[dtype]
    if not low <= value <= high:
        raise TokenRangeError(value, dtype)
    return value


def token_array(tokens):
    """Return tokens as an ndarray of the integer dtype they have: a view of an array or a CPU tensor, else a copy.

    Python ints become int64, or uint64 where int64 cannot hold them. Nothing, of whatever dtype, is an empty array.
    """
    values = _as_ndarray(tokens)
    if values is not None:
        return values
    values = packed(tokens, kind_of(INT64))
    if values is not None:
        return values
    ints = _ints(tokens)
    for dtype in (INT64, UINT64):
        values = packed(ints, kind_of(dtype))
        if values is not None:
            return values
    raise _misfit(ints, INT64)


def tokens_as(tokens, dtype, *, copy=False):
    """Return tokens as an ndarray of `dtype`: a view of an array or a CPU tensor of that dtype, else a copy.

    With `copy` it is a copy in any case.
    """
    values = _as_ndarray(tokens)
    if values is None:
        values = packed(tokens, kind_of(dtype))
        if values is None:
            ints = _ints(tokens)
            values = packed(ints, kind_of(dtype))
            if values is None:
                raise _misfit(ints, dtype)
        return values
    if values.size and not np.can_cast(values.dtype, dtype):
        low, high = _LIMITS[dtype]
        for extreme in (int(values.min()), int(values.max())):
            if not low <= extreme <= high:
                raise TokenRangeError(extreme, dtype)
    return values.astype(dtype, copy=copy)


def readable(tokens, kind):
    """Return tokens as an array or tensor of a kind that can be read in place: themselves, or else a copy."""
    if view_of(tokens).kind == kind:
        return tokens
    values = packed(tokens, kind)
    if values is None:
        values = converted(tokens, kind)
    return contiguous(tokens_as(tokens, _DTYPES[kind])) if values is None else values


def contiguous(values):
    """Return an array of a native integer dtype as one that can be read in place; a copy where this one cannot be."""
    return values if view_of(values).kind != NO_TOKENS else values.copy()


def _ints(tokens):
    """Return the elements of any iterable as Python ints, in a list of its own."""
    # A private copy: what an element does when it is asked for its number changes only the caller's.
    items = tuple(tokens)
    # As long as it gets from the first: where memory runs out, Cython 3.3.1 frees what it appends twice.
    ints: list = [0] * len(items)
    i: cython.Py_ssize_t
    for i in range(len(items)):
        ints[i] = items[i] if type(items[i]) is int else _as_int(items[i])
    return ints


def _misfit(ints, dtype):
    """Return the error for the first of some ints that does not fit."""
    low, high = _LIMITS[dtype]
    place: cython.Py_ssize_t = 0
    while low <= ints[place] <= high:
        place += 1
    return TokenRangeError(ints[place], dtype)


def _as_int(token):
    """Return an integer as a Python int; a bool or anything else is a TypeError."""
    if isinstance(token, (bool, np.bool_)) or getattr(token, "dtype", None) is torch.bool:
        raise TypeError(f"a token must be an integer, but {token!r} is a bool")
    try:
        return operator.index(token)
    except TypeError:
        raise TypeError(f"a token must be an integer, not a {type(token).__name__}") from None


def _as_ndarray(tokens):
    """Return what already is an array as an ndarray, and None for other iterables."""
    if type(tokens) is list or type(tokens) is tuple:
        return None
    if type(tokens) is not np.ndarray:
        if isinstance(tokens, torch.Tensor):
            return _tensor_as_ndarray(tokens)
        if isinstance(tokens, np.ndarray):
            refuse_masked(tokens, "tokens")
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


def _tensor_as_ndarray(tokens):
    if tokens.dim() != 1:
        raise ValueError(f"tokens must have one dimension, but have shape {tuple(tokens.shape)}")
    if tokens.numel() == 0:
        return np.empty(0, np.int64)
    if tokens.dtype is torch.bool or tokens.is_floating_point() or tokens.is_complex() or tokens.is_quantized:
        raise TypeError(f"tokens must be integers, not {tokens.dtype}")
    return tokens.numpy(force=True)
