"""How far two token sequences agree."""

import cython
import numpy as np

from kvpool._arguments import as_int, count, positive_int
from kvpool._tokens_input import INT64, UINT64, contiguous, token_array, tokens_as

if not cython.compiled:
    from kvpool._arguments import INT64_MAX
    from kvpool._plain import small_int
    from kvpool._plain_tokens import NO_TOKENS, common_prefix, view_of
    from kvpool.token_buffer import TokenBuffer


def match_prefix(a, b, page_size=1, *, start=0, limit=None):
    """Return the length of the common prefix of two token sequences, rounded down to whole pages.

    Each is a TokenBuffer, ndarray, tensor, array.array, list, tuple or any other iterable of ints; types and dtypes can
    differ. The first `start` tokens, whole pages, are known to agree and not compared; a `limit` bounds how many are
    looked at in all. Both count from the first token, as the result does.

    A page size below 1, a `start` that is negative, not a multiple of it or more than either sequence has, and a
    negative `limit` are a ValueError; tokens that are no integers are a TypeError. O(n) for n tokens compared where
    neither sequence has to be converted.

    >>> match_prefix([11, 12, 13, 14], (11, 12, 13, 99))
    3
    >>> match_prefix([11, 12, 13, 14], (11, 12, 13, 99), page_size=2)
    2
    >>> match_prefix([11, 12, 13, 14], (11, 12, 13, 14), page_size=2, start=2, limit=3)
    2
    """
    page: cython.longlong = small_int(page_size)
    if page < 1:
        page = min(positive_int(page_size, "page_size"), INT64_MAX)
    known: cython.longlong = small_int(start)
    if known < 0 or known % page != 0:
        known = _known_tokens(start, page_size)
    stop: cython.longlong = INT64_MAX if limit is None else small_int(limit)
    if stop < 0:
        stop = min(count(limit, "limit"), INT64_MAX)
    common: cython.longlong = -1
    if type(a) is TokenBuffer and type(b) is TokenBuffer:
        common = _common_prefix_of_buffers(a, b, known, stop)
    if common < 0:
        common = _common_prefix_of_arrays(a, b, known, stop)
    if common < 0:
        # Buffers are looked at last, as reading what is none may append to them.
        left = a if type(a) is TokenBuffer else token_array(a)
        right = b if type(b) is TokenBuffer else token_array(b)
        common = _common_prefix_of_others(_array_of(left), _array_of(right), known, stop)
    common = min(common, stop)
    return common - common % page


def _known_tokens(start, page_size):
    """Return how many tokens are known to agree."""
    number = count(start, "start")
    if number % as_int(page_size, "page_size"):
        raise ValueError(f"start must be a multiple of the page size {page_size}, but is {number}")
    return min(number, INT64_MAX)


def _common_prefix_of_buffers(a: TokenBuffer, b: TokenBuffer, start, stop):
    """Return what two buffers have in common from `start` on, as far as `stop`; -1 where they have to be converted."""
    shorter: cython.longlong = min(a.length, b.length)
    if start > shorter:
        raise _too_short(shorter, start)
    return common_prefix(a.cells, a.kind, b.cells, b.kind, start, min(shorter, stop))


def _common_prefix_of_arrays(a, b, start, stop):
    """Return the same of two arrays or tensors."""
    left, right = view_of(a), view_of(b)
    if left.kind == NO_TOKENS or right.kind == NO_TOKENS:
        return -1
    shorter: cython.longlong = min(left.size, right.size)
    if start > shorter:
        raise _too_short(shorter, start)
    return common_prefix(left.cells, left.kind, right.cells, right.kind, start, min(shorter, stop))


def _array_of(tokens):
    """Return a buffer's tokens as an array, or the array that they are."""
    if type(tokens) is TokenBuffer:
        buffer: TokenBuffer = tokens
        return buffer.view(0, buffer.length)
    return tokens


def _common_prefix_of_others(left, right, start, stop):
    """Return the same of any two arrays of integers."""
    common = _common_prefix_of_arrays(left, right, start, stop)
    if common >= 0:
        return common
    shorter = min(left.size, right.size)
    if start > shorter:
        raise _too_short(shorter, start)
    both = slice(start, min(shorter, stop))
    left, right = left[both], right[both]
    if UINT64 in (left.dtype, right.dtype):
        differing = np.flatnonzero(left != right)
        return start + (int(differing[0]) if differing.size else left.size)
    left, right = contiguous(tokens_as(left, INT64)), contiguous(tokens_as(right, INT64))
    return start + _common_prefix_of_arrays(left, right, 0, left.size)


def _too_short(shorter, start):
    """Return the error for sequences that are known to agree in more tokens than there are."""
    return ValueError(f"start must be at most {shorter}, the tokens of the shorter sequence, not {start}")
