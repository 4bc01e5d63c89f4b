"""How far two token sequences agree."""

import cython
import numpy as np

from kvpool._arguments import INT64_MAX, positive_int
from kvpool._tokens_input import INT64, UINT64, contiguous, token_array, tokens_as

if not cython.compiled:
    from kvpool._plain import small_int
    from kvpool._plain_tokens import common_prefix, view_of
    from kvpool.token_buffer import TokenBuffer


def match_prefix(a, b, page_size=1):
    """Return the length of the common prefix of two token sequences, rounded down to whole pages.

    Each is a TokenBuffer, ndarray, tensor, array.array, list, tuple or any other iterable of ints; types and dtypes can
    differ. A page size below 1 is a ValueError; tokens that are no integers are a TypeError. O(n) for n tokens in
    common where neither has to be converted.

    >>> match_prefix([11, 12, 13, 14], (11, 12, 13, 99))
    3
    >>> match_prefix([11, 12, 13, 14], (11, 12, 13, 99), page_size=2)
    2
    """
    page: cython.longlong = small_int(page_size)
    if page < 1:
        page = min(positive_int(page_size, "page_size"), INT64_MAX)
    common: cython.longlong = -1
    if type(a) is TokenBuffer and type(b) is TokenBuffer:
        common = _common_prefix_of_buffers(a, b)
    if common < 0:
        # Buffers are looked at last, as reading what is none may append to them.
        left = a if type(a) is TokenBuffer else _array_of(a)
        right = b if type(b) is TokenBuffer else _array_of(b)
        common = _common_prefix_of_arrays(_array_of(left), _array_of(right))
    return common - common % page


def _common_prefix_of_buffers(a: TokenBuffer, b: TokenBuffer):
    left, right = a.tokens(), b.tokens()
    return common_prefix(left, right, min(left.size, right.size))


def _common_prefix_of_arrays(a, b):
    left, right = view_of(a), view_of(b)
    common: cython.longlong = common_prefix(left, right, min(left.size, right.size))
    return _common_prefix_of_others(a, b) if common < 0 else common


def _array_of(tokens):
    """Return tokens as an array, or as the tensor that they are."""
    if type(tokens) is TokenBuffer:
        buffer: TokenBuffer = tokens
        return buffer.view(0, buffer.length)
    return tokens if view_of(tokens).size else token_array(tokens)


def _common_prefix_of_others(left, right):
    """Return what two arrays have in common that have to be converted before they are compared."""
    left, right = token_array(left), token_array(right)
    if UINT64 in (left.dtype, right.dtype):
        shorter = min(left.size, right.size)
        differing = np.flatnonzero(left[:shorter] != right[:shorter])
        return int(differing[0]) if differing.size else shorter
    left, right = contiguous(tokens_as(left, INT64)), contiguous(tokens_as(right, INT64))
    return common_prefix(view_of(left), view_of(right), min(left.size, right.size))
