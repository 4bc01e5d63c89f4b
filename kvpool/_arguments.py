"""Checks of what callers pass in: sizes, slots, page ids and ranks, brought to Python ints and int64 arrays.

Nothing here knows a pool's state; a function returns what the caller may trust or raises.
"""

import math
import operator
from array import array
from collections.abc import Callable, Sequence
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import torch

from kvpool.errors import FreeError, PagesError, TakeError

Integers = torch.Tensor | npt.NDArray[np.integer[Any]] | Sequence[int]
Int64Array = npt.NDArray[np.int64]

# Of a memoryview, by the codes of the struct module.
_INTEGER_FORMATS = frozenset("bBhHiIlLqQnN")

INT64 = np.dtype(np.int64)
INT64_MAX = np.iinfo(np.int64).max
INT64_MIN = np.iinfo(np.int64).min


class BeyondInt64Error(ValueError):
    """An integer that no int64 holds."""

    def __init__(self, name: str, value: int) -> None:
        super().__init__(name, value)
        self.name = name
        self.value = value

    def __str__(self) -> str:
        return f"{self.name} must fit int64, but include {self.value}"


def as_int(value: object, name: str) -> int:
    """Return an integer argument as a Python int; a bool or any other type is a TypeError that names it."""
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, (int, np.integer)):
        raise TypeError(f"{name} must be an integer, not {type(value).__name__}")
    return int(value)


def positive_int(value: object, name: str) -> int:
    """Return an integer argument that must be at least 1."""
    number = as_int(value, name)
    if number < 1:
        raise ValueError(f"{name} must be positive, not {number}")
    return number


def count(value: object, name: str) -> int:
    """Return an integer argument that must not be negative."""
    number = as_int(value, name)
    if number < 0:
        raise ValueError(f"{name} must not be negative, but is {number}")
    return number


def flag(value: object, name: str) -> bool:
    """Return an argument that must be True or False; anything else is a TypeError."""
    if value is not True and value is not False:
        raise TypeError(f"{name} must be a bool, not {type(value).__name__}")
    return value


def pages_for(need_size: object, page_size: int) -> int:
    """Return how many pages `need_size` slots are; slots that are not whole pages are a ValueError.

    Sizes beyond int64, which no pool has, count as INT64_MAX pages.
    """
    size = count(need_size, "need_size")
    if size % page_size:
        raise ValueError(f"need_size must be a multiple of the page size {page_size}, but is {size}")
    return min(size // page_size, INT64_MAX)


def real_number(value: object, name: str) -> float:
    """Return a finite real argument as a float; NaN and infinity are a ValueError, other types a TypeError."""
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, (int, float, np.integer, np.floating)):
        raise TypeError(f"{name} must be a number, not {type(value).__name__}")
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise ValueError(f"{name} must be a finite number, not {number}")
    return number


def as_int64(values: Integers, name: str) -> Int64Array:
    """Return integers of any accepted kind as a one-dimensional int64 array that a kernel takes.

    A view where `values` already is one (a CPU tensor, an ndarray), else a copy; a device tensor is copied to the host.
    Nothing, of whatever dtype, is an empty array. Raises TypeError for values that are no integers (bools are none)
    and ValueError for a shape that is not one-dimensional or a number outside int64.
    """
    if isinstance(values, torch.Tensor):
        values = _array_of(values, name)
    if not isinstance(values, np.ndarray):
        return _sequence_as_int64(values, name)
    refuse_masked(values, name)
    # A subclass may say of itself what it likes, and long long, where long has its size, is another type to C.
    values = np.asarray(values)
    if values.dtype.num == INT64.num and values.dtype.isnative and values.ndim == 1 and values.flags.carray:
        return cast(Int64Array, values)
    if values.ndim != 1:
        raise ValueError(f"{name} must have one dimension, but have shape {values.shape}")
    if values.size == 0:
        return np.empty(0, np.int64)
    if values.dtype.kind not in "iu":
        raise TypeError(f"{name} must be integers, not {values.dtype}")
    if values.dtype.kind == "u" and values.dtype.itemsize == 8 and values.max() > INT64_MAX:
        raise BeyondInt64Error(name, int(values.max()))
    # Not np.array, which takes long long for what int64 is.
    array = np.empty(values.size, np.int64)
    array[:] = values
    return array


def check_integers(tensor: torch.Tensor, name: str) -> None:
    """Raise what `as_int64` would for the shape or the dtype of a tensor on a device."""
    if tensor.ndim != 1:
        raise ValueError(f"{name} must have one dimension, but have shape {tuple(tensor.shape)}")
    if tensor.numel() and (tensor.is_floating_point() or tensor.is_complex() or tensor.dtype is torch.bool):
        raise TypeError(f"{name} must be integers, not {tensor.dtype}")


def _array_of(tensor: torch.Tensor, name: str) -> npt.NDArray[Any]:
    """Return a tensor as an ndarray; a TypeError where numpy has no such dtype, or would make memory up."""
    try:
        array: npt.NDArray[Any] = tensor.numpy(force=True)
        if array.size == 0 or tensor.data_ptr() != 0:
            return array
    except (TypeError, RuntimeError, NotImplementedError):
        pass
    raise TypeError(f"{name} must be integers, not {tensor.dtype} on {tensor.device}")


def refuse_masked(values: npt.NDArray[Any], name: str) -> None:
    """Raise TypeError for a masked array, whose masked elements would be read as if they were not."""
    if type(values) is not np.ndarray and isinstance(values, np.ma.MaskedArray):
        raise TypeError(f"{name} must not be a masked array: pass its compressed() elements")


def _sequence_as_int64(values: Sequence[int], name: str) -> Int64Array:
    if isinstance(values, (str, bytes, bytearray)) or not hasattr(values, "__iter__"):
        raise TypeError(f"{name} must be a tensor, an ndarray or a list of integers, not {type(values).__name__}")
    if isinstance(values, memoryview):
        if values.ndim != 1:
            raise ValueError(f"{name} must have one dimension, but have shape {values.shape}")
        if values.format not in _INTEGER_FORMATS:
            raise TypeError(f"{name} must be integers, not a memoryview of format {values.format!r}")
    values = list(values)
    if not set(map(type, values)) <= {int}:
        values = [_element_as_int(value, name) for value in values]
    try:
        return np.frombuffer(array("q", values), np.int64)
    except OverflowError:
        beyond = next(value for value in values if not INT64_MIN <= value <= INT64_MAX)
        raise BeyondInt64Error(name, beyond) from None


def _element_as_int(value: object, name: str) -> int:
    is_bool = isinstance(value, (bool, np.bool_)) or getattr(value, "dtype", None) is torch.bool
    if not is_bool:
        try:
            return operator.index(value)  # type: ignore[arg-type]
        except TypeError:
            pass
    raise TypeError(f"{name} must be integers, but include a {type(value).__name__}")


def page_ids_as_int64(values: Integers, name: str, page_size: int, error: type[PagesError] = FreeError) -> Int64Array:
    """Return slots or page ids as `as_int64`; a page that no int64 addresses is the `error`."""
    try:
        return as_int64(values, name)
    except BeyondInt64Error as beyond:
        raise error({"out of range": [beyond.value // page_size]}) from None


def rows_of_integers(table: Any, lengths: Integers) -> tuple[npt.NDArray[Any], Int64Array]:
    """Return a two-dimensional table of integers as an ndarray, and how many of each row are meant.

    A view where `table` is one already, and a copy of the lengths. Raises ValueError for another shape and for lengths
    that are not one a row or that a row does not have, TypeError for what are no integers.
    """
    if isinstance(table, torch.Tensor):
        table = _array_of(table, "slots")
    if not isinstance(table, np.ndarray):
        raise TypeError(f"slots must be a tensor or an ndarray of rows, not {type(table).__name__}")
    refuse_masked(table, "slots")
    rows = np.asarray(table)
    if rows.ndim != 2:
        raise ValueError(f"slots must have two dimensions, but have shape {rows.shape}")
    if rows.size and rows.dtype.kind not in "iu":
        raise TypeError(f"slots must be integers, not {rows.dtype}")
    counts = as_int64(lengths, "lengths").copy()
    if counts.size != rows.shape[0]:
        raise ValueError(f"lengths must be one for each of the {rows.shape[0]} rows, not {counts.size}")
    wrong = np.flatnonzero((counts < 0) | (counts > rows.shape[1]))
    if wrong.size:
        raise ValueError(f"lengths must be 0 to {rows.shape[1]}, but that of row {wrong[0]} is {counts[wrong[0]]}")
    return rows, counts


def joined_rows(rows: npt.NDArray[Any], counts: Int64Array) -> npt.NDArray[Any]:
    """Return the first `counts[i]` elements of each row i, one row after the other."""
    parts = [row[:count] for row, count in zip(rows, counts.tolist(), strict=True)]
    return np.concatenate([rows[:0].reshape(-1), *parts])


def pages_in_any_order(
    slots: Int64Array, page_size: int, partial: bool = False
) -> tuple[Int64Array, Int64Array, Int64Array]:
    """Return the page ids that slots in any order make up, the incomplete pages, and those named twice.

    The page ids are in the order of their first slot; each appears once. Where `partial`, no page is incomplete: any of
    its slots stand for it. O(n log n) in the number of slots.
    """
    slot, first_position, repeats = np.unique(slots, return_index=True, return_counts=True)
    page_ids, start, distinct = np.unique(slot // page_size, return_index=True, return_counts=True)
    if page_ids.size == 0:
        return page_ids, page_ids, page_ids
    wanted = 1 if partial else page_size
    incomplete = page_ids[distinct < wanted]
    twice = page_ids[(distinct >= wanted) & (np.maximum.reduceat(repeats, start) > 1)]
    return page_ids[np.argsort(np.minimum.reduceat(first_position, start))], incomplete, twice


def faults_of(
    page_ids: Int64Array,
    incomplete: Int64Array,
    twice: Int64Array,
    page_range: range,
    is_free: Callable[[Int64Array], npt.NDArray[np.bool_]],
    error: type[PagesError] = FreeError,
    is_held: Callable[[Int64Array], npt.NDArray[np.bool_]] | None = None,
) -> PagesError | None:
    """Return the error for pages that are out of range, reserved, incomplete or given twice; None for no fault.

    As are pages that are free, or for a TakeError those that are not, and pages that `is_held` says were given back in
    a group of frees that is open. Ids from 0 up to the start of the range are reserved. A page that has several faults
    is named for the first of them: its id, its slots, its state.
    """
    page_ids = np.sort(page_ids)
    in_range = (page_ids >= page_range.start) & (page_ids < page_range.stop)
    reserved = (page_ids >= 0) & (page_ids < page_range.start)
    valid = page_ids[in_range]
    whole = np.setdiff1d(valid, np.union1d(incomplete, twice))
    faults = {
        f"out of range, which is {page_range.start} to {page_range.stop - 1}": page_ids[~in_range & ~reserved],
        "reserved": page_ids[reserved],
        "incomplete, only some of its slots were given": np.intersect1d(incomplete, valid),
        "given twice in one call": np.intersect1d(twice, valid),
        **({"not free": whole[~is_free(whole)]} if error is TakeError else {"already free": whole[is_free(whole)]}),
    }
    if is_held is not None:
        faults["already given back in this group"] = whole[is_held(whole)]
    found = {reason: pages.tolist() for reason, pages in faults.items() if pages.size}
    return error(found) if found else None


def repeated(page_ids: Int64Array) -> Int64Array:
    """Return the ids that appear more than once, ascending."""
    ids, counts = np.unique(page_ids, return_counts=True)
    return ids[counts > 1]
