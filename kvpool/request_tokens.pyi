"""A request's prompt and what was generated for it."""

from typing import Any

import numpy.typing as npt

from kvpool._types import TokenArray, Tokens

class RequestTokens:
    """A request's token ids: the prompt (origin) followed by what was generated (output), in one TokenBuffer."""

    def __init__(self, origin: Tokens) -> None: ...
    def append(self, token: int) -> None:
        """Append one generated token. O(1) amortised."""

    def extend(self, tokens: Tokens) -> None:
        """Append generated tokens, all of them or, where one is refused, none. O(k) amortised."""

    def truncate(self, n: int) -> None:
        """Keep the first n tokens of origin and output. O(1); where there are views, the next token takes O(n)."""

    @property
    def origin(self) -> TokenArray:
        """The prompt, a read-only view. O(1)."""

    @property
    def output(self) -> TokenArray:
        """What was generated so far, a read-only view. O(1)."""

    @property
    def fill_ids(self) -> TokenArray:
        """Origin and output, a read-only view. O(1)."""

    def committed(self, length: int) -> TokenArray:
        """Return the first `length` of origin and output, a read-only view. O(1)."""

    def tolist(self, start: int | None = 0, stop: int | None = None) -> list[int]:
        """Return origin and output from `start` to `stop` as a new list of Python ints. O(k) for k of them."""

    def __len__(self) -> int: ...
    def __array__(self, dtype: npt.DTypeLike | None = None, copy: bool | None = None) -> npt.NDArray[Any]: ...
    def __reduce__(self) -> tuple[Any, ...]: ...
    def __setstate__(self, state: Any) -> None: ...
