"""The allocators as Python types: copies, pickles, weak references, subclasses, keywords, signatures, odd arguments."""

import contextlib
import copy
import enum
import gc
import inspect
import pickle
import weakref
from typing import Any

import numpy as np
import pytest
import torch

from kvpool import HostAllocator, OwnerLaneAllocator, PageCounts, PagedAllocator, RequestTokens, TokenBuffer, TokenTable
from tests.kvpool.pools import Kind

COPIES = {
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
    **{f"pickle {number}": (lambda pool, number=number: pickle.loads(pickle.dumps(pool, number))) for number in (2, 5)},
}


class Odd(np.ndarray):
    """An ndarray that lies about its size."""

    size = property(lambda self: 10**7)  # type: ignore[assignment]


@pytest.mark.parametrize("duplicate", COPIES.values(), ids=COPIES.keys())
def test_a_copy_has_a_state_of_its_own(kind: Kind, pool: Any, duplicate: Any) -> None:
    kind.take(pool, 5)
    snapshot = pool.snapshot()
    other = duplicate(pool)
    assert type(other) is type(pool)
    assert other.snapshot() == snapshot
    kind.take(other, 4)
    assert pool.snapshot() == snapshot
    other.check()


def test_a_pool_can_be_referred_to_weakly_and_hold_attributes(kind: Kind, pool: Any) -> None:
    reference = weakref.ref(pool)
    other = kind.build()
    other.itself = other
    second = weakref.ref(other)
    del other
    gc.collect()
    assert second() is None
    assert reference() is not None


@pytest.mark.parametrize("base", [HostAllocator, OwnerLaneAllocator, PagedAllocator])
def test_a_subclass_can_have_another_constructor_and_methods(base: Any) -> None:
    class Named(base):
        def __init__(self, name: str) -> None:
            super().__init__(8, page_size=2)
            self.name = name

        def free(self, slots: Any) -> int:
            return super().free(slots) * 10

    pool = Named("mine")
    taken = pool.alloc_pages_with_owners([0, 1]) if base is OwnerLaneAllocator else pool.alloc(4)
    assert pool.free(taken) == 40
    assert pool.name == "mine"
    pool.check()


@pytest.mark.compiled  # As plain Python it has no fields.
@pytest.mark.parametrize("base", [HostAllocator, OwnerLaneAllocator, PagedAllocator])
def test_a_pool_that_nobody_built_has_no_pages(base: Any) -> None:
    pool = base.__new__(base)
    pool.clear()
    pool.check()
    assert pool.available_size() == 0
    pool.restore(pool.snapshot())
    assert pool.free([]) == 0
    with pytest.raises(ValueError, match=r"out of range|reserved"):
        pool.return_pages([0])
    pool.check()


@pytest.mark.parametrize(
    "build", [lambda: HostAllocator(8, 2), lambda: OwnerLaneAllocator(8, 2, 2), lambda: PagedAllocator(8, 2)]
)
def test_a_pool_that_is_built_keeps_its_geometry(build: Any) -> None:
    pool = build()
    pool.return_pages([])
    for other in ((9, 2), (8, 4)):
        with pytest.raises(ValueError, match="stays so"):
            pool.__init__(*other, *((2,) if isinstance(pool, OwnerLaneAllocator) else ()))
    pool.check()
    assert pool.snapshot() == build().snapshot()


def test_keywords_and_signatures() -> None:
    host = HostAllocator(num_pages=8, page_size=1)
    assert host.free(slots=host.alloc(need_size=2)) == 2
    assert host.return_pages(page_ids=host.alloc_pages(num_pages=2, policy="contiguous")) == 2
    assert host.alloc_runs(num_pages=2, policy="fifo") is not None
    lanes = OwnerLaneAllocator(physical_pages=4, page_size=1, cp_size=2, device="cpu", selection="fifo")
    assert lanes.free(slots=lanes.alloc_pages_with_owners(owners=[0])) == 1
    assert str(inspect.signature(HostAllocator.alloc_pages)) == "(self, num_pages, policy='fifo')"
    paged = PagedAllocator(num_pages=4, page_size=2, device="cpu", order="lifo")
    slots = paged.alloc_extend(prefix_lens=[0], seq_lens=[3], last_slots=[-1])
    assert paged.alloc_decode(seq_lens=[4], last_slots=slots[2:]).tolist() == [5]
    assert paged.free(slots=slots, partial=True) + paged.return_pages(page_ids=paged.alloc_pages(num_pages=1)) == 4
    assert paged.free_rows(slots=paged.alloc(need_size=2).reshape(1, 2), lengths=[2]) == 2
    assert str(inspect.signature(OwnerLaneAllocator.select_pages)) == "(self, owners)"
    for base in (HostAllocator, OwnerLaneAllocator, PagedAllocator):
        for name, method in inspect.getmembers(base, callable):
            assert name.startswith("_") or (inspect.signature(method) and method.__doc__)


def test_selection_may_be_of_an_enumeration() -> None:
    selection = enum.StrEnum("selection", ["fifo", "contiguous"])
    pool = OwnerLaneAllocator(4, selection=selection["fifo"])
    paged = PagedAllocator(4, 1, order=selection["fifo"])
    assert pool.selection == paged.order == "fifo"
    assert type(pool.selection) is type(paged.order) is str


@pytest.mark.parametrize(
    "convert",
    [
        lambda values: np.array(values).view(Odd),
        lambda values: np.array(values, np.longlong),
        lambda values: memoryview(np.array(values)),
        lambda values: memoryview(np.array(values, np.uint16))[::1],
        lambda values: torch.nn.Parameter(torch.tensor(values), requires_grad=False),
        lambda values: torch.tensor([9, *values])[1:],
        lambda values: torch._neg_view(-torch.tensor(values)),
        lambda values: np.frombuffer(b" " + np.array(values).tobytes(), np.uint8)[1:].view(np.int64),
    ],
    ids=[
        "lying subclass",
        "long long",
        "memoryview",
        "small memoryview",
        "parameter",
        "offset",
        "negated view",
        "unaligned",
    ],
)
def test_arrays_of_odd_kinds_are_read_right(kind: Kind, pool: Any, convert: Any) -> None:
    pages = list(kind.page_ids)
    kind.take(pool, 24)
    assert pool.return_pages(convert(pages)) == 24
    pool.clear()
    kind.take(pool, 24)
    assert pool.free(convert(kind.slots(pages)[::-1])) == 24 * kind.page_size
    if isinstance(pool, OwnerLaneAllocator):
        pool.clear()
        assert pool.compute_owner_lane_stats(convert([0, 0]))[0][0] == 2
        chosen = pool.select_pages(convert([0, 0]))
        taken = pool.alloc_pages_with_owners(convert([0, 0]))
        assert taken is not None
        assert (taken[:: kind.page_size] // kind.page_size).tolist() == chosen.tolist()
        pool.release_pages = convert(chosen.tolist())
    # Integers are negated views through private functions only.
    if isinstance(pool, PagedAllocator) and not getattr(convert(pages), "is_neg", bool)():
        size = kind.page_size
        slots = pool.alloc_extend(convert([0, 0]), convert([1, size + 1]), convert([0, 0]))
        again = pool.alloc_decode(convert([2, size + 2]), convert([slots[0].item(), slots[-1].item()]))
        assert size == 1 or again.tolist() == [slots[0].item() + 1, slots[-1].item() + 1]
        assert pool.free_rows(slots.reshape(1, -1), convert([len(slots)])) == len(slots)
    pool.check()


def _without_storage() -> torch.Tensor:
    tensor = torch.arange(4)
    tensor.untyped_storage().resize_(0)
    return tensor


@pytest.mark.parametrize(
    "build",
    [
        _without_storage,
        lambda: torch._efficientzerotensor(4, dtype=torch.int64),
        lambda: torch._to_functional_tensor(torch.arange(4)),
        lambda: torch.arange(4).to_sparse(),
    ],
)
def test_tensors_without_memory_of_their_own_are_refused(kind: Kind, pool: Any, build: Any) -> None:
    kind.take(pool, 3)
    before = pool.snapshot()
    calls = [pool.free, pool.return_pages]
    if isinstance(pool, OwnerLaneAllocator):
        calls += [pool.alloc_pages_with_owners, pool.select_pages, pool.compute_owner_lane_stats]
    if isinstance(pool, PagedAllocator):
        calls += [
            lambda values: pool.alloc_decode(values, [1] * 4),
            lambda values: pool.alloc_decode([1] * 4, values),
            lambda values: pool.alloc_extend([0] * 4, [1] * 4, values),
            lambda values: pool.free_rows(torch.arange(8).reshape(4, 2), values),
        ]
    for call in calls:
        with pytest.raises(TypeError):
            call(build())
    assert pool.snapshot() == before


@pytest.mark.compiled
def test_private_methods_survive_rubbish() -> None:
    class Anything:
        def __le__(self, other: Any) -> bool:
            return True

        __lt__ = __ge__ = __gt__ = __le__

        def __index__(self) -> int:
            return 10**14

    class Holds:
        def tolist(self) -> list[Any]:
            return [Anything()]

    paged = PagedAllocator(8, 4)
    among = [HostAllocator(8)._free_among, OwnerLaneAllocator(8)._available_among]
    for method in (*among, lambda page_ids: paged._are(1, page_ids)):
        for rubbish in (Holds(), None, np.array([0.5]), np.array(["a"]), np.array([2**63], np.uint64)):
            with contextlib.suppress(TypeError, AttributeError, OverflowError):
                assert method(rubbish).tolist() in ([False], [True])


def test_a_type_tells_what_it_is_built_of_and_a_subclass_what_that_is() -> None:
    expected = "(num_pages: int, page_size: int = 64, *, num_reserved: int = 0) -> None"
    assert str(inspect.signature(HostAllocator)) == expected
    assert list(inspect.signature(OwnerLaneAllocator).parameters) == [
        "physical_pages", "page_size", "cp_size", "device", "selection",
    ]  # fmt: skip
    assert list(inspect.signature(PageCounts).parameters) == ["num_pages"]
    assert list(inspect.signature(TokenBuffer).parameters) == ["tokens", "dtype"]
    assert list(inspect.signature(TokenTable).parameters) == ["max_requests", "max_tokens", "dtype"]
    for kind in (TokenBuffer, RequestTokens):
        assert list(inspect.signature(kind.append).parameters) == ["self", "token"]

    class Same(HostAllocator):
        pass

    class Other(HostAllocator):
        def __init__(self, gigabytes: float) -> None:
            super().__init__(int(gigabytes * 10))

    assert inspect.signature(Same) == inspect.signature(HostAllocator)
    assert str(inspect.signature(Other)) == "(gigabytes: float) -> None"
    assert Other(1.2).num_pages == 12
