"""How far two token sequences agree."""

import numpy as np

from kvpool._arguments import positive_int
from kvpool._kernels import common_prefix, common_prefix_int32
from kvpool._tokens_input import INT32, INT64, UINT64, TokenArray, Tokens, token_array
from kvpool.token_buffer import TokenBuffer

COMPARED_AS_THEY_ARE = (INT32, INT64, UINT64)


def match_prefix(a: Tokens, b: Tokens, page_size: int = 1) -> int:
    """Return the length of the common prefix of two token sequences, rounded down to whole pages.

    Each is a TokenBuffer, ndarray, tensor, array.array, list, tuple or any other iterable of ints; types and dtypes can
    differ. A page size below 1 is a ValueError; tokens that are no integers are a TypeError. O(n) for n tokens in
    common where neither has to be converted.

    >>> match_prefix([11, 12, 13, 14], (11, 12, 13, 99))
    3
    >>> match_prefix([11, 12, 13, 14], (11, 12, 13, 99), page_size=2)
    2
    """
    if type(page_size) is not int or page_size < 1:
        page_size = positive_int(page_size, "page_size")
    left, left_length = _operand(a)
    right, right_length = _operand(b)
    shorter = min(left_length, right_length)
    if left.dtype is right.dtype is INT32:
        common: int = common_prefix_int32(left, right, shorter)
    elif left.dtype is UINT64 or right.dtype is UINT64:
        differing = np.flatnonzero(left[:shorter] != right[:shorter])
        common = int(differing[0]) if len(differing) else shorter
    else:
        common = common_prefix(left, right, shorter)
    return common - common % page_size


def _operand(tokens: Tokens) -> tuple[TokenArray, int]:
    """Return an array that begins with the tokens, and their number; as the kernel takes it unless it is uint64."""
    if type(tokens) is TokenBuffer:
        array, length = tokens._array, tokens._length
    else:
        array = token_array(tokens)
        length = len(array)
        if not (array.flags.c_contiguous and array.flags.aligned):
            array = array.copy()
    if array.dtype not in COMPARED_AS_THEY_ARE:
        array = array[:length].astype(INT64)
    return array, length
