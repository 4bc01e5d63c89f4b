"""One request's token ids, in one numpy buffer that grows at its end."""

from collections.abc import Iterator
from typing import Any, ClassVar, overload

import numpy as np
import numpy.typing as npt
import torch

from kvpool._types import TokenArray, Tokens

class TokenBuffer:
    """A sequence of token ids over one numpy buffer of an integer dtype, which changes at its end alone."""

    __array_ufunc__: ClassVar[None]
    __hash__: ClassVar[None]  # type: ignore[assignment]
    def __init__(self, tokens: Tokens = (), dtype: npt.DTypeLike = ...) -> None: ...
    @property
    def dtype(self) -> np.dtype[Any]:
        """The dtype of the tokens."""

    def append(self, token: int) -> None:
        """Append one token. O(1) amortised."""

    def extend(self, tokens: Tokens) -> None:
        """Append tokens of any accepted kind, all of them or, where one is refused, none. O(k) amortised."""

    def truncate(self, n: int) -> None:
        """Keep the first n tokens. O(1); where there are views of the buffer, the next token takes O(n)."""

    def tolist(self, start: int | None = 0, stop: int | None = None) -> list[int]:
        """Return the tokens from `start` to `stop` as a new list of Python ints. O(k) for k of them."""

    def numpy(self) -> TokenArray:
        """Return the tokens as a read-only view of the buffer. O(1)."""

    def torch(self) -> torch.Tensor:
        """Return the tokens as a tensor that shares the buffer. O(1)."""

    def check(self) -> None:
        """Assert that the buffer's parts agree. O(1)."""

    def __len__(self) -> int: ...
    def __iter__(self) -> Iterator[int]: ...
    @overload
    def __getitem__(self, index: int) -> int: ...
    @overload
    def __getitem__(self, index: slice) -> TokenArray: ...
    def __eq__(self, other: object) -> bool: ...
    def __add__(self, other: Tokens) -> TokenBuffer: ...
    def __radd__(self, other: Tokens) -> TokenBuffer: ...
    def __array__(self, dtype: npt.DTypeLike | None = None, copy: bool | None = None) -> npt.NDArray[Any]: ...
    def __reduce__(self) -> tuple[Any, ...]: ...
