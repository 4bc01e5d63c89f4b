"""Pickles that the last version under numba has written."""

import base64
import io
import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kvpool import HostAllocator, OwnerLaneAllocator, RequestTokens, TokenBuffer

WRITTEN = json.loads((Path(__file__).parent / "data" / "numba_pickles.json").read_text())


@pytest.fixture(params=["2", "5"])
def load(request: pytest.FixtureRequest) -> Any:
    return lambda name: pickle.loads(base64.b64decode(WRITTEN[name][request.param]))


def test_a_host_pool_and_its_snapshot(load: Any) -> None:
    pool = HostAllocator(600, 2)
    pool.alloc(20)
    pool.free([6, 7, 2, 3, 19, 18])
    found = load("host")
    found.check()
    assert type(found) is HostAllocator
    assert found.snapshot() == load("host_snapshot") == pool.snapshot()
    assert found.alloc(1100).tolist() == pool.alloc(1100).tolist()


def test_a_lane_pool_and_its_snapshot(load: Any) -> None:
    pool = OwnerLaneAllocator(700, 2, 3, selection="fifo")
    pool.free(pool.alloc_pages_with_owners([0, 1, 1, 2])[:4])
    found = load("lanes")
    found.check()
    assert (type(found), found.selection) == (OwnerLaneAllocator, "fifo")
    assert found.snapshot() == load("lane_snapshot") == pool.snapshot()
    assert found.alloc_pages_with_owners([2, 1, 0]).tolist() == pool.alloc_pages_with_owners([2, 1, 0]).tolist()


@pytest.mark.parametrize(
    ("name", "tokens", "dtype"),
    [("buffer", [1, 2, 3], np.int64), ("buffer_int32", [5, -6], np.int32), ("grown_buffer", [*range(20)], np.int64)],
)
def test_a_token_buffer(load: Any, name: str, tokens: list[int], dtype: Any) -> None:
    buffer = load(name)
    assert (type(buffer), buffer.tolist(), buffer.dtype) == (TokenBuffer, tokens, dtype)
    buffer.append(7)
    buffer.check()
    assert buffer.tolist() == [*tokens, 7]


def test_a_request(load: Any) -> None:
    request = load("request")
    assert (type(request), request.origin.tolist(), request.output.tolist()) == (RequestTokens, [1, 2, 3], [4])
    request.append(5)
    assert request.fill_ids.tolist() == [1, 2, 3, 4, 5]


class WithoutNumba(pickle.Unpickler):
    """A table took its compiled loop along; whoever has no numba any more puts nothing in its place."""

    def find_class(self, module: str, name: str) -> Any:
        if module.startswith("numba."):
            return lambda *arguments: None
        return super().find_class(module, name)


@pytest.mark.parametrize("protocol", ["2", "5"])
def test_a_table(protocol: str) -> None:
    table = WithoutNumba(io.BytesIO(base64.b64decode(WRITTEN["table"][protocol]))).load()
    table.check()
    assert (table.max_requests, table.max_tokens, table.dtype) == (3, 5, np.int32)
    assert table.lengths.tolist() == [2, 0, 3]
    assert [table.row(row).tolist() for row in (0, 2)] == [[1, 2], [4, 5, 6]]
    assert table.add([7]) == 1
