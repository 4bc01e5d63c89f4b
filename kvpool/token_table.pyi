"""The token ids of a batch of requests, in one two-dimensional array."""

from typing import Any

import numpy as np
import numpy.typing as npt
import torch

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

    def add(self, tokens: Tokens, row: int | None = None) -> int:
        """Put a request's tokens, of any accepted kind, into a row that is not in use and return the row's number."""

    def write(self, row: int, offset: int, tokens: Tokens) -> None:
        """Put tokens into a row from `offset` on: over those that are there, and beyond its end. O(k)."""

    def truncate(self, row: int, n: int) -> None:
        """Keep the first n tokens of a row; an n below 0 or above its length is a ValueError. O(1)."""

    def swap(self, a: int, b: int) -> None:
        """Exchange the tokens of two rows in use. O(k) for the longer of them."""

    def move(self, source: int, target: int) -> None:
        """Put the tokens of a row in use into one that is not, and take the first out of use. O(k)."""

    def append(self, rows: Integers, tokens: Tokens) -> None:
        """Append `tokens[i]` to row `rows[i]`, for every i. O(k) for k rows."""

    def row(self, row: int) -> TokenArray:
        """Return a row's tokens: a read-only view of their number now, valid until the row is removed. O(1)."""

    def remove(self, row: int) -> None:
        """Take a row out of use, so that `add` can give it to another request. O(1)."""

    def tensor(self) -> torch.Tensor:
        """Return the whole table as a tensor of shape (max_requests, max_tokens) that shares its memory. O(1)."""

    def check(self) -> None:
        """Assert that the table's parts agree. O(rows)."""

    def __reduce__(self) -> tuple[Any, ...]: ...
    def __setstate__(self, state: Any) -> None: ...
