"""The invariants of the token containers, asserted over a copy of their state."""

from typing import Any


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
    """Assert that the rows of a table agree: their lengths, and the last append to each, -1 where it is not in use."""
    lengths, appended, most = state["lengths"], state["appended"], state["max_tokens"]
    assert ((appended >= -1) & (appended <= state["appends"])).all(), f"{appended} of {state['appends']} appends"
    assert (lengths >= 0).all(), f"a row has a negative length: {lengths}"
    assert (lengths <= most).all(), f"a row holds more than {most} tokens: {lengths}"
    assert (lengths[appended < 0] == 0).all(), f"a row that is not in use holds tokens: {lengths}, {appended}"
    rows, width = state["shape"]
    assert rows == lengths.size == appended.size, f"{rows} rows with {lengths.size} lengths, {appended.size} appends"
    assert width >= most, f"a row has {width} cells for {most} tokens"
