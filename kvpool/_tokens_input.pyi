"""Whatever a caller holds token ids in, brought to one one-dimensional integer ndarray."""

from typing import Any

import numpy as np
import numpy.typing as npt

from kvpool._types import TokenArray, Tokens

INT32: np.dtype[Any]
INT64: np.dtype[Any]
UINT64: np.dtype[Any]
NATIVE: dict[tuple[str, int], np.dtype[Any]]

def integer_dtype(dtype: npt.DTypeLike) -> np.dtype[Any]: ...
def native(values: TokenArray) -> TokenArray: ...
def checked_token(token: object, dtype: np.dtype[Any]) -> int: ...
def token_array(tokens: Tokens) -> TokenArray: ...
def tokens_as(tokens: Tokens, dtype: np.dtype[Any], copy: bool = False) -> TokenArray: ...
