"""What the compiled package does through C's interfaces, as plain Python.

Only an uncompiled copy of the package imports this: there the structures run as Python, so that their coverage can be
taken. Memory is an `array.array`, a pointer into a result a memoryview of it; both give and take Python ints.
"""

from array import array
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

FULL_WORD = 2**64 - 1
FIRST_BIT = 1
NOWHERE = 2**32 - 1
MARKED = 2**31


def trailing_zeros(word: int) -> int:
    return (word & -word).bit_length() - 1 if word else 64


def leading_zeros(word: int) -> int:
    return 64 - word.bit_length()


def ones(word: int) -> int:
    return word.bit_count()


def _new(typecode: str, arrays: list[Any], count: int) -> Any:
    items = array(typecode, bytes(count * array(typecode).itemsize))
    arrays.append(items)
    return items


def new_words(arrays: list[Any], count: int) -> Any:
    return _new("Q", arrays, count)


def new_bytes(arrays: list[Any], count: int) -> Any:
    return _new("B", arrays, count)


def new_int32(arrays: list[Any], count: int) -> Any:
    return _new("i", arrays, count)


def new_uint32(arrays: list[Any], count: int) -> Any:
    return _new("I", arrays, count)


def new_int64(arrays: list[Any], count: int) -> Any:
    return _new("q", arrays, count)


def words_from(words: Any, start: int) -> Any:
    return memoryview(words)[start:]


def words_in(values: Any) -> Any:
    return memoryview(values)


def _copy(items: Any, count: int) -> Any:
    return np.array(items[:count])


copy_words = copy_bytes = copy_int32 = copy_uint32 = copy_int64 = _copy


@dataclass
class Summary:
    leading: int = 0
    longest: int = 0
    trailing: int = 0
    lengths: int = 0


def new_summaries(arrays: list[Any], count: int) -> list[Summary]:
    return [Summary() for _ in range(count)]


def new_slots(size: int) -> Any:
    return memoryview(np.empty(size, np.int64))


def tensor_of(slots: Any, size: int) -> torch.Tensor:
    return torch.from_numpy(np.asarray(slots))


def new_ids(size: int) -> Any:
    return np.empty(size, np.int64)


def ids_in(values: Any) -> Any:
    return memoryview(values)


def keep_first(values: Any, size: int) -> None:
    values.resize(size, refcheck=False)


def new_scratch(count: int) -> Any:
    return memoryview(array("q", bytes(8 * count)))


def free_scratch(scratch: Any) -> None:
    pass


def part(items: Any, start: int) -> Any:
    return items[start:]


def small_int(value: object) -> int:
    return value if type(value) is int and 0 <= value < 2**63 else -1


def has_memory(tensor: torch.Tensor) -> bool:
    try:
        return tensor.device.type == "cpu" and tensor.data_ptr() != 0
    except RuntimeError:
        return False


@dataclass
class Int64View:
    data: Any
    size: int


def view_of(values: Any) -> Int64View:
    if type(values) is torch.Tensor and values.dtype is torch.int64 and has_memory(values):
        try:
            values = values.numpy()
        except RuntimeError:
            return Int64View(None, -1)
    if type(values) is np.ndarray and values.dtype == np.int64 and values.ndim == 1 and values.flags.carray:
        return Int64View(memoryview(values), values.size)
    return Int64View(None, -1)


def packed(values: Any) -> Any:
    if type(values) not in (list, tuple) or not set(map(type, values)) <= {int}:
        return None
    try:
        return np.frombuffer(array("q", values), np.int64)
    except OverflowError:
        return None


def expand(slots: Any, count: int, page_size: int) -> None:
    if count == 0:
        return
    ids = np.array(slots[count * (page_size - 1) : count * page_size])
    np.asarray(slots)[: count * page_size] = (ids[:, None] * page_size + np.arange(page_size)).ravel()


def pages_of(slots: Any, count: int, page_size: int, pages: Any) -> bool:
    if count == 0:
        return True
    blocks = np.array(slots[: count * page_size]).reshape(count, page_size)
    first = blocks[:, :1]
    if (first < 0).any() or (first % page_size).any() or (blocks != first + np.arange(page_size)).any():
        return False
    pages[:count] = array("q", (blocks[:, 0] // page_size).tolist())
    return True
