"""RequestTokens: views of origin and output through a request's life."""

import copy
import pickle
from typing import Any

import numpy as np
import pytest

from kvpool import RequestTokens, TokenBuffer
from tests.kvpool.tokens import INPUTS, REFUSED, REFUSED_IDS, Convert

TOKENS = [5, 6, 7]


@pytest.mark.parametrize("convert", INPUTS.values(), ids=INPUTS.keys())
def test_takes_every_input(convert: Convert) -> None:
    request = RequestTokens(convert(TOKENS))
    assert request.origin.tolist() == request.fill_ids.tolist() == TOKENS
    assert request.output.tolist() == []
    request.extend(convert(TOKENS))
    request.append(8)
    assert request.origin.tolist() == TOKENS
    assert request.output.tolist() == [*TOKENS, 8]
    assert request.fill_ids.tolist() == [*TOKENS, *TOKENS, 8]
    assert len(request) == 7


@pytest.mark.parametrize("convert", INPUTS.values(), ids=INPUTS.keys())
def test_takes_an_empty_origin(convert: Convert) -> None:
    request = RequestTokens(convert([]))
    assert len(request) == len(request.origin) == len(request.committed(0)) == 0
    request.append(5)
    assert request.output.tolist() == [5]
    assert request.origin.tolist() == []


@pytest.mark.parametrize("length", range(8))
def test_committed_is_a_prefix_across_the_border(length: int) -> None:
    request = RequestTokens([0, 1, 2, 3])
    request.extend([4, 5, 6])
    assert request.committed(length).tolist() == list(range(length))
    assert request.committed(np.int64(length)).tolist() == list(range(length))


@pytest.mark.parametrize(
    ("length", "error"), [(-1, ValueError), (5, ValueError), (True, TypeError), (1.0, TypeError), (None, TypeError)]
)
def test_committed_refuses(length: Any, error: type[Exception]) -> None:
    request = RequestTokens([0, 1, 2])
    request.append(3)
    with pytest.raises(error, match="length must be"):
        request.committed(length)


def test_reads_are_views_that_cannot_be_written_to_and_outlive_growth() -> None:
    request = RequestTokens([0, 1, 2])
    request.append(3)
    views = [request.origin, request.output, request.fill_ids, request.committed(2)]
    for view in views:
        assert np.shares_memory(view, request.fill_ids)
        with pytest.raises(ValueError, match="read-only"):
            view[:1] = 9
    request.extend(range(1000))
    assert [view.tolist() for view in views] == [[0, 1, 2], [3], [0, 1, 2, 3], [0, 1]]


@pytest.mark.parametrize("n", [3, 4, np.int64(5), 6])
def test_keeps_the_origin_and_the_first_of_the_output(n: Any) -> None:
    request = RequestTokens([0, 1, 2])
    request.extend([3, 4, 5])
    views = [request.fill_ids, request.output, request.origin]
    request.truncate(n)
    assert request.fill_ids.tolist() == request.tolist() == [*range(n)]
    assert request.origin.tolist() == [0, 1, 2]
    assert request.output.tolist() == [*range(3, n)]
    request.append(9)
    request.extend([8, 7])
    assert request.tolist() == [*range(n), 9, 8, 7]
    assert [view.tolist() for view in views] == [[0, 1, 2, 3, 4, 5], [3, 4, 5], [0, 1, 2]]


@pytest.mark.parametrize(
    ("n", "error"),
    [(2, ValueError), (0, ValueError), (-1, ValueError), (5, ValueError), (2**70, ValueError),
     (np.int64(2), ValueError), (True, TypeError), (3.0, TypeError), (None, TypeError)],
    ids=repr,
)  # fmt: skip
def test_keeps_no_less_than_the_origin_and_no_more_than_there_is(n: Any, error: type[Exception]) -> None:
    request = RequestTokens([0, 1, 2])
    request.append(3)
    with pytest.raises(error, match="n must be"):
        request.truncate(n)
    assert (request.origin.tolist(), request.output.tolist()) == ([0, 1, 2], [3])


def test_lists_any_part_of_origin_and_output() -> None:
    request = RequestTokens([0, 1, 2])
    request.extend([3, 4, 5])
    for start in (None, -9, -4, 0, 2, 4, 9):
        for stop in (None, -9, -1, 0, 3, 5, 9):
            assert request.tolist(start, stop) == [0, 1, 2, 3, 4, 5][start:stop]
    assert {type(token) for token in request.tolist(2, 4)} == {int}
    with pytest.raises(TypeError, match="stop must be an integer"):
        request.tolist(0, True)


@pytest.mark.parametrize(("name", "tokens", "error"), REFUSED, ids=REFUSED_IDS)
def test_refuses_and_stays_as_it_was(name: str, tokens: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        RequestTokens(tokens)
    request = RequestTokens([7])
    request.append(8)
    with pytest.raises(error):
        request.extend(tokens)
    with pytest.raises(TypeError):
        request.append(True)
    assert (request.origin.tolist(), request.output.tolist()) == ([7], [8])


def test_keeps_the_dtype_of_a_token_buffer_and_leaves_it_alone() -> None:
    origin = TokenBuffer([1, 2], np.int32)
    request = RequestTokens(origin)
    request.append(3)
    assert request.fill_ids.dtype == np.int32
    assert origin.tolist() == [1, 2]
    assert RequestTokens(np.array([1], np.int32)).fill_ids.dtype == np.int64


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda request: pickle.loads(pickle.dumps(request, 5))])
def test_is_copied_and_pickled(copied: Any) -> None:
    request = RequestTokens([1, 2])
    request.append(3)
    again = copied(request)
    again.append(4)
    assert (again.origin.tolist(), again.output.tolist()) == ([1, 2], [3, 4])
    assert request.output.tolist() == [3]


def test_says_how_much_it_holds() -> None:
    request = RequestTokens([1, 2])
    request.append(3)
    assert repr(request) == "RequestTokens(2 of origin, 1 of output)"
