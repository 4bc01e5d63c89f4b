"""What crosses to torch and numpy: the same by the exchange table and without it, and on every kind of CPU."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from kvpool import HostAllocator, OwnerLaneAllocator, TokenBuffer, TokenTable, match_prefix

ROOT = Path(__file__).parents[2]
HEADER = Path(torch.__file__).parent / "include" / "ATen" / "dlpack.h"

pytestmark = pytest.mark.compiled  # The plain copy has no C interfaces.


@pytest.fixture(params=[True, False], ids=["exchange table", "numpy"])
def crossing(request: pytest.FixtureRequest) -> Iterator[bool]:
    from kvpool._crossings import use_exchange_table

    if request.param and not use_exchange_table(True):
        pytest.skip("this torch has no exchange table")
    yield use_exchange_table(request.param)
    use_exchange_table(True)


def test_the_table_is_used_where_torch_has_one() -> None:
    from kvpool._crossings import use_exchange_table

    assert use_exchange_table(True) is hasattr(torch.Tensor, "__dlpack_c_exchange_api__")
    assert use_exchange_table(False) is False
    use_exchange_table(True)


@pytest.mark.parametrize("page_size", [1, 3, 16, 64])
def test_slots_cross_both_ways(crossing: bool, page_size: int) -> None:
    pool = HostAllocator(100, page_size)
    for pages in (0, 1, 7, 50):
        slots = pool.alloc(pages * page_size)
        assert slots is not None
        assert (type(slots), slots.dtype, slots.device.type) == (torch.Tensor, torch.int64, "cpu")
        assert slots.untyped_storage().nbytes() == 8 * pages * page_size
        assert slots.is_contiguous()
        assert slots.tolist() == list(range(pages * page_size))
        slots += 0  # It can be written to.
        assert pool.free(slots) == pages * page_size
        assert pool.free_page_ids().size == 100
        pool.clear()
    lanes = OwnerLaneAllocator(8, page_size, 2)
    slots = lanes.alloc_pages_with_owners(torch.tensor([0, 1, 1]))
    assert slots[::page_size].tolist() == [page_size * page for page in (1, 2, 4)]
    assert lanes.free(slots) == 3 * page_size


def test_what_a_result_was_made_of_goes_with_its_last_view(crossing: bool) -> None:
    pool = HostAllocator(4, 64)
    view = pool.alloc(128)[3:9]
    for _ in range(100):
        pool.clear()
        pool.alloc(128).fill_(-1)
    assert view.tolist() == [3, 4, 5, 6, 7, 8]


def test_tensors_that_are_not_what_they_look_like(crossing: bool) -> None:
    """Strided, offset, narrow or of a subclass: read by value, whatever their memory is."""

    class Slots(torch.Tensor):
        pass

    def freed(slots: Any) -> list[int]:
        pool = HostAllocator(8, 1)
        pool.alloc(8)
        pool.free(slots)
        return pool.free_page_ids().tolist()

    whole = torch.arange(8)
    for slots, expected in (
        (whole[2:5], [2, 3, 4]),
        (whole[1::3], [1, 4, 7]),
        (whole.flip(0)[:2], [7, 6]),
        (whole.int()[3:5], [3, 4]),
        (whole.to(torch.uint8)[3:5], [3, 4]),
        (whole[2:4].as_subclass(Slots), [2, 3]),
        (whole.expand(1, 8)[0, 5:6], [5]),
        (torch.tensor([6]).expand(1), [6]),
    ):
        assert freed(slots) == expected


def test_tokens_cross(crossing: bool) -> None:
    table = TokenTable(2, 4)
    rows = [table.add([1]), table.add([2])]
    for dtype in (torch.int64, torch.int32):
        table.append(torch.tensor(rows, dtype=dtype), torch.tensor([5, 6], dtype=dtype))
    assert [table.row(row).tolist() for row in rows] == [[1, 5, 5], [2, 6, 6]]
    assert match_prefix(torch.tensor([1, 2, 3], dtype=torch.int32), TokenBuffer([1, 2, 4])) == 2


@pytest.mark.skipif(not HEADER.is_file(), reason="this torch ships no dlpack.h")
def test_the_structures_are_those_of_the_header() -> None:
    """The fields of each structure, in their order, as torch's copy of the specification has them."""
    ours = (ROOT / "kvpool" / "_dlpack.pxd").read_text()
    header = re.sub(r"/\*.*?\*/|//[^\n]*", "", HEADER.read_text(), flags=re.DOTALL)
    for name in ("DLPackVersion", "DLDevice", "DLTensor", "DLManagedTensorVersioned", "DLPackExchangeAPI"):
        theirs = re.search(rf"typedef struct(?: {name})? \{{([^}}]*)\}} {name};", header)
        assert theirs is not None
        expected = re.findall(r"(\w+)\)?(?:\([^)]*\))?;", theirs[1])
        block = re.search(rf"cdef struct {name}:\n((?:    .*\n)+)", ours)
        assert block is not None
        found = [re.search(r"(?:\(\*)?(\w+)\)?(?:\([^)]*\).*)?$", line.strip())[1] for line in block[1].splitlines()]  # type: ignore[index]
        assert found == expected, name


RUN = """
import hashlib, numpy as np, torch
from kvpool import HostAllocator, TokenBuffer, match_prefix
from kvpool._vector import CPU
found = hashlib.sha256()
for page_size in (1, 2, 3, 16, 64, 100):
    pool = HostAllocator(300, page_size)
    for pages in (1, 7, 64, 200):
        slots = pool.alloc(pages * page_size)
        found.update(slots.numpy().tobytes())
        assert pool.free(slots) == slots.numel()
        for wrong in (1, slots.numel() // 2, slots.numel() - 1):
            bad = slots.clone()
            bad[wrong % slots.numel()] = -5
            try:
                pool.free(bad)
            except ValueError as error:
                found.update(str(error).encode())
for dtypes in (("int32", "int32"), ("int64", "int64"), ("int32", "int64")):
    for length in (0, 1, 15, 16, 17, 79, 80, 81, 1000):
        a, b = (np.arange(length, dtype=dtype) for dtype in dtypes)
        assert match_prefix(a, b) == length
        for place in range(length):
            c = b.copy()
            c[place] += 1 << 16
            assert match_prefix(a, c) == place, (dtypes, length, place)
print(CPU, found.hexdigest())
"""


def run(kind: str | None) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if name != "KVPOOL_CPU"}
    if kind is not None:
        environment["KVPOOL_CPU"] = kind
    return subprocess.run([sys.executable, "-c", RUN], cwd=ROOT, env=environment, capture_output=True, text=True)


def test_every_kind_of_cpu_gives_the_same() -> None:
    chosen = run(None)
    assert chosen.returncode == 0, chosen.stderr
    best, expected = chosen.stdout.split()
    kinds = ["baseline", "avx2", "avx512"]
    for kind in kinds:
        done = run(kind)
        if kinds.index(kind) <= kinds.index(best):
            assert done.stdout.split() == [kind, expected], done.stderr
        else:
            assert "which this CPU does not support" in done.stderr


def test_an_unknown_kind_of_cpu_is_an_error() -> None:
    done = run("sse9")
    assert done.returncode == 1
    assert "KVPOOL_CPU must be baseline, avx2 or avx512, not 'sse9'" in done.stderr


def test_an_array_is_read_as_numpy_says() -> None:
    pool = HostAllocator(8, 1)
    pool.alloc(8)
    pool.free(np.arange(4, dtype=np.longlong))
    pool.free(np.frombuffer(b"x" + np.array([7, 5]).tobytes(), np.int64, offset=1))
    assert pool.free_page_ids().tolist() == [0, 1, 2, 3, 7, 5]
