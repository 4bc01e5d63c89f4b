"""How far two token sequences agree."""

import cython
import numpy as np

from kvpool._arguments import positive_int
from kvpool._tokens_input import INT64, UINT64, token_array
from kvpool.token_buffer import TokenBuffer

if not cython.compiled:
    from kvpool._plain import common_cells, small_int, tokens_in


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
        page_size = positive_int(page_size, "page_size")
        page = min(page_size, np.iinfo(np.int64).max)
    left, right = a, b
    first = _view_of(left)
    second = _view_of(right)
    if first.size < 0 or second.size < 0:
        # Both before either is looked at: what converts one may change the other.
        if first.size < 0:
            left = _converted(a)
        if second.size < 0:
            right = _converted(b)
        if _is_unsigned(left) or _is_unsigned(right):
            return _common_unsigned(np.asarray(left), np.asarray(right), page)
        first = _view_of(left)
        second = _view_of(right)
    common: cython.longlong = common_cells(first, second, min(first.size, second.size))
    return common - common % page


def _converted(tokens):
    """Return tokens as a contiguous ndarray of int64, int32 or, where that is what they are, uint64."""
    values = token_array(tokens)
    if tokens_in(values).size >= 0:
        return values
    return values.astype(UINT64 if values.dtype == UINT64 else INT64, order="C")


def _is_unsigned(tokens):
    return isinstance(tokens, np.ndarray) and tokens.dtype == UINT64


def _common_unsigned(left, right, page):
    """Return the length of the common prefix where one side is uint64, whose values int64 may not hold."""
    shorter = min(len(left), len(right))
    differing = np.flatnonzero(left[:shorter] != right[:shorter])
    common = int(differing[0]) if len(differing) else shorter
    return common - common % page


def _view_of(tokens):
    """Look at tokens of int32 or int64 in place; a size of -1 for any others."""
    if type(tokens) is TokenBuffer:
        return cython.cast(TokenBuffer, tokens)._token_view()
    return tokens_in(tokens)
