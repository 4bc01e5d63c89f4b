from typing import Any

import numpy as np
import pytest

from kvpool import count_runs, page_runs
from tests.kvpool.pools import INPUTS


@pytest.mark.parametrize("convert", INPUTS.values(), ids=INPUTS.keys())
def test_runs_in_the_order_given(convert: Any) -> None:
    starts, lengths = page_runs(convert([5, 6, 7, 7, 3, 2, 9, 10]))
    assert starts.tolist() == [5, 7, 3, 2, 9]
    assert lengths.tolist() == [3, 1, 1, 1, 2]
    assert starts.dtype == lengths.dtype == np.int64
    assert count_runs(convert([4, 5, 6, 7, 0, 1]), 2) == 2
    assert count_runs(convert([3, 4, 6]), 1) == 2


def test_nothing_has_no_runs() -> None:
    assert [part.tolist() for part in page_runs([])] == [[], []]
    assert count_runs([], 64) == 0


def test_descriptors_own_their_memory() -> None:
    pages = np.arange(5)
    starts, lengths = page_runs(pages)
    starts[:] = lengths[:] = -1
    assert pages.tolist() == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("slots", [[0], [0, 1, 2], [1, 2], [1, 0], [0, 2], [0, 1, 3, 2]])
def test_slots_that_are_not_whole_pages_are_refused(slots: list[int]) -> None:
    with pytest.raises(ValueError, match="whole pages"):
        count_runs(slots, 2)


@pytest.mark.parametrize(
    ("slots", "page_size"),
    [([2**63 - 2, 2**63 - 1, -(2**63)], 3), ([2**63 - 1, -(2**63)], 2), ([2**63 - 4, 2**63 - 3, 2**63 - 2], 3)],
)
def test_a_page_does_not_go_on_behind_the_last_slot_of_int64(slots: list[int], page_size: int) -> None:
    with pytest.raises(ValueError, match="whole pages"):
        count_runs(slots, page_size)


def test_the_last_page_of_int64() -> None:
    assert count_runs([2**63 - 2, 2**63 - 1], 1) == 1
    assert count_runs([2**63 - 4, 2**63 - 3], 2) == 1
    assert count_runs([], 2**70) == 0
    with pytest.raises(ValueError, match="whole pages"):
        count_runs([0], 2**70)


def test_negative_pages_are_refused() -> None:
    with pytest.raises(ValueError, match="negative"):
        page_runs([2**63 - 1, -(2**63)])
    with pytest.raises(ValueError, match="whole pages"):
        count_runs([-2, -1], 2)


def test_malformed_arguments_are_refused() -> None:
    with pytest.raises(ValueError, match="page_size"):
        count_runs([0], 0)
    with pytest.raises(TypeError, match="page_size"):
        count_runs([0], 1.0)
    with pytest.raises(TypeError, match="slots"):
        count_runs([0.5], 1)
    with pytest.raises(TypeError, match="page_ids"):
        page_runs([True])
    with pytest.raises(ValueError, match="dimension"):
        page_runs(np.zeros((2, 2), np.int64))
