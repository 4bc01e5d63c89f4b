"""Every form that token ids come in, good and bad, for the contract suite of the token containers."""

from array import array
from collections import deque
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from kvpool import TokenBuffer

DTYPES = [np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint32, np.uint64]
Convert = Callable[[list[int]], Any]


def _read_only(tokens: list[int]) -> Any:
    return np.frombuffer(np.array(tokens, np.int64).tobytes(), np.int64)


def _grown(tokens: list[int]) -> TokenBuffer:
    buffer = TokenBuffer()
    for token in tokens:
        buffer.append(token)
    return buffer


# What `+` and `==` take on the other side of a TokenBuffer.
SEQUENCES: dict[str, Convert] = {
    "list": list,
    "tuple": tuple,
    "list of numpy ints": lambda tokens: [np.int16(token) for token in tokens],
    "list of tensor elements": lambda tokens: list(torch.tensor(tokens, dtype=torch.int64)),
    **{f"array {code}": lambda tokens, code=code: array(code, tokens) for code in "hilqHILQ"},
    **{f"{np.dtype(dtype)} ndarray": lambda tokens, dtype=dtype: np.array(tokens, dtype) for dtype in DTYPES},
    "strided ndarray": lambda tokens: np.repeat(np.array(tokens, np.int64), 2)[::2],
    "reversed ndarray": lambda tokens: np.array(tokens[::-1], np.int32)[::-1],
    "read-only ndarray": _read_only,
    "big-endian ndarray": lambda tokens: np.array(tokens, ">i4"),
    "unaligned ndarray": lambda tokens: (
        np.frombuffer(b"x" + np.array(tokens, np.int64).tobytes(), np.int64, offset=1)
        if tokens
        else np.array([], np.int64)
    ),
    "ndarray of objects": lambda tokens: np.array(tokens, object),
    **{
        f"{np.dtype(dtype)} tensor": lambda tokens, dtype=dtype: torch.from_numpy(np.array(tokens, dtype))
        for dtype in DTYPES
    },
    "strided tensor": lambda tokens: torch.tensor(tokens, dtype=torch.int64).repeat_interleave(3)[::3],
    **{f"{np.dtype(dtype)} TokenBuffer": lambda tokens, dtype=dtype: TokenBuffer(tokens, dtype) for dtype in DTYPES},
    "TokenBuffer with spare room": _grown,
    "slice of a TokenBuffer": lambda tokens: TokenBuffer([1, *tokens, 2])[1:-1],
}

# Everything that a container can be built from.
INPUTS: dict[str, Convert] = {
    **SEQUENCES,
    "iterator": iter,
    "generator": lambda tokens: (token for token in tokens),
    "deque": deque,
    "memoryview": lambda tokens: memoryview(np.array(tokens, np.int64)),
    "dict keys": lambda tokens: dict.fromkeys(tokens).keys(),
}

EMPTY: dict[str, Callable[[], Any]] = {
    "list": list,
    "tuple": tuple,
    "array of floats": lambda: array("d"),
    "array of ints": lambda: array("q"),
    "ndarray of floats": lambda: np.array([]),
    "ndarray of ints": lambda: np.array([], np.int32),
    "tensor of floats": lambda: torch.tensor([]),
    "TokenBuffer": TokenBuffer,
}

# Name, what it is, and the error it gets wherever tokens are taken.
REFUSED: list[tuple[str, Any, type[Exception]]] = [
    ("bool in a list", [5, True], TypeError),
    ("bool in a tuple", (False,), TypeError),
    ("numpy bool in a list", [5, np.True_], TypeError),
    ("torch bool in a list", [5, torch.tensor(True)], TypeError),
    ("bool ndarray", np.array([True, False]), TypeError),
    ("bool tensor", torch.tensor([True, False]), TypeError),
    ("bools in an ndarray of objects", np.array([5, True], object), TypeError),
    ("float in a list", [5, 6.0], TypeError),
    ("float ndarray", np.array([5.0]), TypeError),
    ("float array", array("d", [5.0]), TypeError),
    ("float tensor", torch.tensor([5.0]), TypeError),
    ("bfloat16 tensor", torch.tensor([5.0], dtype=torch.bfloat16), TypeError),
    ("complex tensor", torch.tensor([5j]), TypeError),
    ("array of characters", array("u", "ab"), TypeError),
    ("str", "12", TypeError),
    ("None in a list", [5, None], TypeError),
    ("list in a list", [[5, 6], [7, 8]], TypeError),
    ("None", None, TypeError),
    ("int", 5, TypeError),
    ("numpy int", np.int64(5), ValueError),
    ("no dimension", np.array(5), ValueError),
    ("two dimensions", np.array([[5, 6], [7, 8]]), ValueError),
    ("tensor of no dimension", torch.tensor(5), ValueError),
    ("tensor of two dimensions", torch.tensor([[5, 6], [7, 8]]), ValueError),
    ("over any integer type in a list", [5, 2**64], OverflowError),
    ("below any integer type in a list", [5, -(2**63) - 1], OverflowError),
]
REFUSED_IDS = [name for name, _, _ in REFUSED]
