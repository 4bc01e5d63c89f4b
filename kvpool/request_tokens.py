"""A request's prompt and what was generated for it."""

from typing import Any

import numpy.typing as npt

from kvpool._arguments import as_int
from kvpool._tokens_input import TokenArray, Tokens
from kvpool.token_buffer import TokenBuffer


class RequestTokens:
    """A request's token ids: the prompt (origin) followed by what was generated (output), in one TokenBuffer.

    The origin is copied; it gives the dtype where it is a TokenBuffer, otherwise tokens are int64. `append` and
    `extend` add to the output, with TokenBuffer's rules for what a token is. What is read are read-only views, never
    copies; they stay valid and unchanged when the request goes on.

    >>> request = RequestTokens([11, 12, 13])
    >>> request.append(21)
    >>> request.fill_ids, request.output
    (array([11, 12, 13, 21]), array([21]))
    >>> request.committed(2)
    array([11, 12])
    """

    __slots__ = ("_origin_length", "_tokens")

    def __init__(self, origin: Tokens) -> None:
        if isinstance(origin, TokenBuffer):
            self._tokens = TokenBuffer(origin, origin.dtype)
        else:
            self._tokens = TokenBuffer(origin)
        self._origin_length = len(self._tokens)

    def append(self, token: int) -> None:
        """Append one generated token. O(1) amortised."""
        self._tokens.append(token)

    def extend(self, tokens: Tokens) -> None:
        """Append generated tokens, all of them or, where one is refused, none. O(k) amortised."""
        self._tokens.extend(tokens)

    @property
    def origin(self) -> TokenArray:
        """The prompt, a read-only view. O(1)."""
        return self._tokens.numpy()[: self._origin_length]

    @property
    def output(self) -> TokenArray:
        """What was generated so far, a read-only view. O(1)."""
        return self._tokens.numpy()[self._origin_length :]

    @property
    def fill_ids(self) -> TokenArray:
        """Origin and output, a read-only view. O(1)."""
        return self._tokens.numpy()

    def committed(self, length: int) -> TokenArray:
        """Return the first `length` of origin and output, a read-only view. O(1).

        A length below 0 or above the number of tokens is a ValueError.
        """
        if type(length) is not int:
            length = as_int(length, "length")
        tokens = self._tokens.numpy()
        if not 0 <= length <= len(tokens):
            raise ValueError(f"length must be between 0 and {len(tokens)}, not {length}")
        return tokens[:length]

    def __len__(self) -> int:
        return len(self._tokens)

    def __array__(self, dtype: npt.DTypeLike | None = None, copy: bool | None = None) -> npt.NDArray[Any]:
        return self._tokens.__array__(dtype, copy)

    def __repr__(self) -> str:
        return f"RequestTokens({self._origin_length} of origin, {len(self) - self._origin_length} of output)"
