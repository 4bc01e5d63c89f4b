"""The invariants of the token containers, asserted over a copy of their state."""

from typing import Any

import numpy as np


def check_token_buffer(state: dict[str, Any]) -> None:
    """Assert that a buffer's parts agree: its array, the view that it gives out, its length and its room."""
    array, view = state["array"], state["view"]
    assert array.ndim == 1, f"the buffer has shape {array.shape}"
    assert array.dtype.kind in "iu", f"the buffer has dtype {array.dtype}"
    assert array.flags.c_contiguous, f"the buffer has strides {array.strides}"
    assert state["capacity"] <= array.size, f"a buffer of {array.size} has room for {state['capacity']}"
    assert 0 <= state["length"] <= state["capacity"], f"{state['length']} tokens in room for {state['capacity']}"
    assert view.size == state["length"], f"a view of {view.size} tokens where there are {state['length']}"
    assert view.ctypes.data == array.ctypes.data or not view.size, "views are of another buffer"
    assert not view.flags.writeable, "views can be written to"


def check_token_rows(state: dict[str, Any]) -> None:
    """Assert that the rows of a table agree: their lengths, and what each may hold, 0 where it is not in use."""
    lengths, limits, most = state["lengths"], state["limits"], state["max_tokens"]
    assert np.isin(limits, (0, most)).all(), f"a row is limited to neither all nor nothing: {limits}"
    assert (lengths >= 0).all(), f"a row has a negative length: {lengths}"
    assert (lengths <= limits).all(), f"a row is longer than its limit: {lengths}, {limits}"
    rows, width = state["shape"]
    assert rows == lengths.size == limits.size, f"{rows} rows with {lengths.size} lengths, {limits.size} limits"
    assert width >= most, f"a row has {width} cells for {most} tokens"
