"""Whatever a caller holds token ids in, brought to one one-dimensional integer ndarray.

Used by every token container; a function returns what its caller may trust or raises.
"""

import operator
from array import array

import cython
import numpy as np
import torch

from kvpool.errors import TokenRangeError

if not cython.compiled:
    from kvpool._plain import code_of, packed_tokens

INT32 = np.dtype(np.int32)
INT64 = np.dtype(np.int64)
UINT64 = np.dtype(np.uint64)
NATIVE = {(kind, size): np.dtype(f"{kind}{size}") for kind in "iu" for size in (1, 2, 4, 8)}


def integer_dtype(dtype):
    """Return a dtype that holds token ids, in native byte order; any that is no integer type is a TypeError."""
    resolved = np.dtype(dtype)
    if resolved.kind not in "iu":
        raise TypeError(f"tokens need an integer dtype, not {resolved}")
    return NATIVE[resolved.kind, resolved.itemsize]


def native(values):
    """Return an integer array with the one dtype object of its kind and size, a copy only if its bytes are swapped.

    numpy has two types for some, of which torch knows one, and an unpickled array brings an object of its own.
    """
    dtype = NATIVE[values.dtype.kind, values.dtype.itemsize]
    return values.view(dtype) if values.dtype == dtype else values.astype(dtype)


def checked_token(token, dtype):
    """Return one token as a Python int that fits `dtype`."""
    if isinstance(token, (bool, np.bool_)) or getattr(token, "dtype", None) is torch.bool:
        raise TypeError(f"a token must be an integer, but {token!r} is a bool")
    try:
        value = operator.index(token)
    except TypeError:
        raise TypeError(f"a token must be an integer, not a {type(token).__name__}") from None
    limits = np.iinfo(dtype)
    if not limits.min <= value <= limits.max:
        raise TokenRangeError(value, dtype)
    return value


def token_array(tokens):
    """Return tokens as an ndarray of the integer dtype they have: a view of an array or a CPU tensor, else a copy.

    Python ints become int64, or uint64 where int64 cannot hold them. Nothing, of whatever dtype, is an empty array.
    """
    values = packed_tokens(tokens, code_of(INT64))
    if values is None:
        values = _as_ndarray(tokens)
    if values is not None:
        return values
    items = tuple(tokens)
    try:
        return _packed(items, INT64)
    except TokenRangeError as error:
        try:
            return _packed(items, UINT64)
        except TokenRangeError:
            raise error from None


def tokens_as(tokens, dtype, copy=False):
    """Return tokens as a contiguous ndarray of `dtype`: a view of an array or a CPU tensor of that dtype, else a copy.

    With `copy` it is a copy in any case.
    """
    values = packed_tokens(tokens, code_of(dtype))
    if values is not None:
        return values
    values = _as_ndarray(tokens)
    if values is None:
        return _packed(tuple(tokens), dtype)
    if values.size and not np.can_cast(values.dtype, dtype):
        limits = np.iinfo(dtype)
        for extreme in (int(values.min()), int(values.max())):
            if not limits.min <= extreme <= limits.max:
                raise TokenRangeError(extreme, dtype)
    values = values.astype(dtype, copy=copy)
    return values if values.flags.c_contiguous and values.flags.aligned else values.copy()


def _as_ndarray(tokens):
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


def _tensor_as_ndarray(tokens):
    if tokens.dim() != 1:
        raise ValueError(f"tokens must have one dimension, but have shape {tuple(tokens.shape)}")
    if tokens.numel() == 0:
        return np.empty(0, np.int64)
    if tokens.dtype is torch.bool or tokens.is_floating_point() or tokens.is_complex() or tokens.is_quantized:
        raise TypeError(f"tokens must be integers, not {tokens.dtype}")
    return tokens.numpy(force=True)


def _packed(items, dtype):
    """Return a tuple of integers as an ndarray; others than Python's own are asked for their value."""
    ints = tuple([checked_token(item, dtype) for item in items])
    values = packed_tokens(ints, code_of(dtype))
    # Only what int64 does not hold is left.
    return np.array(ints, dtype) if values is None else values
