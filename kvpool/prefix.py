"""How far two token sequences agree."""

import numpy as np

from kvpool._arguments import positive_int
from kvpool._tokens_input import Tokens, token_array


def match_prefix(a: Tokens, b: Tokens, page_size: int = 1) -> int:
    """Return the length of the common prefix of two token sequences, rounded down to whole pages.

    Each is a TokenBuffer, ndarray, tensor, array.array, list, tuple or any other iterable of ints; types and dtypes can
    differ. A page size below 1 is a ValueError; tokens that are no integers are a TypeError. O(n) for n tokens.

    >>> match_prefix([11, 12, 13, 14], (11, 12, 13, 99))
    3
    >>> match_prefix([11, 12, 13, 14], (11, 12, 13, 99), page_size=2)
    2
    """
    page_size = positive_int(page_size, "page_size")
    left, right = token_array(a), token_array(b)
    shorter = min(len(left), len(right))
    differing = np.flatnonzero(left[:shorter] != right[:shorter])
    common = int(differing[0]) if len(differing) else shorter
    return common - common % page_size
