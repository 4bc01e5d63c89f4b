"""What callers may pass for tokens, in words that type checkers know."""

from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

Tokens = Iterable[int] | torch.Tensor | npt.NDArray[np.integer[Any]]
TokenArray = npt.NDArray[Any]
