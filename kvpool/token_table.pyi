"""The token ids of a batch of requests, in one two-dimensional array."""

from typing import Any

import numpy as np
import numpy.typing as npt

from kvpool._arguments import Integers
from kvpool._types import TokenArray, Tokens

class TokenTable:
    """The token ids of up to `max_requests` requests of up to `max_tokens` each, a row of one array for each."""

    def __init__(self, max_requests: int, max_tokens: int, dtype: npt.DTypeLike = ...) -> None: ...
    @property
    def max_requests(self) -> int:
        """How many rows the table has."""

    @property
    def max_tokens(self) -> int:
        """How many tokens a row holds at most."""

    @property
    def dtype(self) -> np.dtype[Any]:
        """The dtype of the tokens."""

    @property
    def lengths(self) -> npt.NDArray[Any]:
        """How many tokens each row holds: a read-only view that follows the table, 0 for rows not in use. O(1)."""

    def add(self, tokens: Tokens) -> int:
        """Put a request's tokens, of any accepted kind, into the lowest row not in use and return its number."""

    def append(self, rows: Integers, tokens: Tokens) -> None:
        """Append `tokens[i]` to row `rows[i]`, for every i. O(k) for k rows."""

    def row(self, row: int) -> TokenArray:
        """Return a row's tokens: a read-only view of their number now, valid until the row is removed. O(1)."""

    def remove(self, row: int) -> None:
        """Take a row out of use, so that `add` can give it to another request. O(1)."""

    def check(self) -> None:
        """Assert that the table's parts agree. O(rows)."""

    def __reduce__(self) -> tuple[Any, ...]: ...
    def __setstate__(self, state: Any) -> None: ...
