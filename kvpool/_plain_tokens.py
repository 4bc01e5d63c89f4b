"""What `_token_arrays` does through C's interfaces, as plain Python; see `_plain`.

Cells are an ndarray, a kind is the place of its dtype in KINDS.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from kvpool._plain import has_memory

KINDS = [np.dtype(name) for name in ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")]
NO_TOKENS, INT32_TOKENS, INT64_TOKENS = -1, 2, 3


@dataclass
class TokenView:
    cells: Any
    size: int
    kind: int


def kind_of(dtype: Any) -> int:
    return KINDS.index(dtype)


def _in_place(flags: Any) -> bool:
    return flags.c_contiguous and flags.aligned


def view_of(values: Any) -> TokenView:
    array = values
    if type(values) is torch.Tensor and values.numel() and has_memory(values):
        try:
            array = values.numpy()
        except (TypeError, RuntimeError):
            return TokenView(None, 0, NO_TOKENS)
    if type(array) is np.ndarray and array.ndim == 1 and array.dtype in KINDS and _in_place(array.flags):
        return TokenView(array, array.size, KINDS.index(array.dtype))
    return TokenView(None, 0, NO_TOKENS)


def new_tokens(kind: int, size: int) -> Any:
    return np.empty(size, KINDS[kind])


def cells_of(array: Any) -> Any:
    return array.reshape(-1)


def writable(array: Any, start: int, stop: int) -> Any:
    return array.reshape(-1)[start:stop]


def read_only(array: Any, start: int, stop: int) -> Any:
    view = writable(array, start, stop)
    view.flags.writeable = False
    return view


def listed(array: Any, start: int, stop: int) -> list[int]:
    return array[start:stop].tolist()


def place_of(bound: Any, otherwise: int, length: int) -> int:
    return otherwise if bound is None else slice(bound, None).indices(length)[0]


def may_be_seen(array: Any) -> bool:
    return True


def behind(cells: Any, kind: int, count: int) -> Any:
    return cells[count:]


def within(number: int, limit: int) -> bool:
    return 0 <= number < limit


def put_number(cells: Any, kind: int, place: int, number: int) -> bool:
    limits = np.iinfo(KINDS[kind])
    if not limits.min <= number <= limits.max:
        return False
    cells[place] = number
    return True


def put(cells: Any, kind: int, place: int, token: Any) -> bool:
    return type(token) is int and put_number(cells, kind, place, token)


def put_all(cells: Any, kind: int, place: int, room: int, values: Any) -> int:
    if type(values) not in (list, tuple) or len(values) > room:
        return -1
    return len(values) if all(put(cells, kind, place + i, token) for i, token in enumerate(values)) else -1


def packed(values: Any, kind: int) -> Any:
    if type(values) not in (list, tuple):
        return None
    array = new_tokens(kind, len(values))
    return array if put_all(array, kind, 0, len(array), values) == len(array) else None


def converted(values: Any, kind: int) -> Any:
    view = view_of(values)
    if view.kind == kind or not {view.kind, kind} <= {INT32_TOKENS, INT64_TOKENS}:
        return None
    limits = np.iinfo(KINDS[kind])
    if view.size and not limits.min <= view.cells.min() <= view.cells.max() <= limits.max:
        return None
    return view.cells.astype(KINDS[kind])


def copy_tokens(target: Any, kind: int, place: int, source: Any, count: int) -> None:
    if count > 0:
        target[place : place + count] = source[:count].copy()


def token_at(cells: Any, kind: int, place: int) -> int:
    return int(cells[place])


def swap_tokens(left: Any, right: Any, kind: int, count: int) -> None:
    left[:count], right[:count] = right[:count].copy(), left[:count].copy()


def widen(view: TokenView, target: Any) -> bool:
    if view.kind not in (INT32_TOKENS, INT64_TOKENS):
        return False
    target[: view.size] = memoryview(view.cells.astype(np.int64))
    return True


def common_prefix(left: Any, left_kind: int, right: Any, right_kind: int, start: int, stop: int) -> int:
    if {left_kind, right_kind} <= {INT32_TOKENS, INT64_TOKENS} or (
        left_kind == right_kind and KINDS[left_kind].itemsize >= 4
    ):
        differing = np.flatnonzero(left[start:stop] != right[start:stop])
        return start + (int(differing[0]) if differing.size else max(stop - start, 0))
    return -1


def with_cinit(kind: Any, field: str) -> None:
    """Have a type's `__cinit__` called before its `__init__`, as it is in C, where a field is None at first."""

    def new(cls: Any, *arguments: Any, **options: Any) -> Any:
        created = object.__new__(cls)
        setattr(created, field, None)
        created.__cinit__()
        return created

    kind.__new__ = new
