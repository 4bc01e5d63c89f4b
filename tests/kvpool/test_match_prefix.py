"""match_prefix: every pair of input types, every place where two sequences can part, and page rounding."""

import pickle
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
import torch
from hypothesis import given, settings

from kvpool import RequestTokens, TokenBuffer, match_prefix
from tests.kvpool.tokens import DTYPES, EMPTY, INPUTS, REFUSED, REFUSED_IDS, Convert

TOKENS = [5, 6, 7, 8, 9]


@pytest.mark.parametrize("left", INPUTS.values(), ids=INPUTS.keys())
def test_takes_every_pair_of_inputs(left: Convert) -> None:
    for right in INPUTS.values():
        assert match_prefix(left(TOKENS), right(TOKENS)) == 5
        assert match_prefix(left([5, 6, 7, 4]), right(TOKENS)) == 3
        assert match_prefix(left([4]), right(TOKENS)) == 0


@pytest.mark.parametrize("empty", EMPTY.values(), ids=EMPTY.keys())
def test_nothing_has_no_prefix(empty: Any) -> None:
    assert match_prefix(empty(), TOKENS) == match_prefix(TOKENS, empty()) == match_prefix(empty(), empty()) == 0


# Around the sizes of the blocks that sequences are compared in.
PLACES = [0, 1, 15, 16, 31, 32, 33, 127, 128, 129, 2047, 2048, 2049, 2175, 2176, 2177, 4223, 4224, 9998]


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("right_dtype", [np.int32, np.int64, np.uint16])
@pytest.mark.parametrize("left_dtype", [np.int32, np.int64, np.uint64])
def test_finds_the_first_difference(place: int, left_dtype: Any, right_dtype: Any) -> None:
    tokens = np.random.default_rng(0).integers(0, 2**15, 9999)
    other = tokens.copy()
    other[place] += 1
    other[place + 5 :: 7] += 1
    left, right = TokenBuffer(tokens, left_dtype), TokenBuffer(other, right_dtype)
    assert match_prefix(left, right) == match_prefix(right, left) == place
    assert match_prefix(left[:], right.torch()) == match_prefix(list(right), left[:]) == place
    assert match_prefix(left, right[:place]) == match_prefix(right[:place], left) == place
    assert match_prefix(left, left[:place]) == place


def test_every_bit_of_a_token_counts() -> None:
    for dtype in DTYPES:
        for bit in range(8 * np.dtype(dtype).itemsize):
            left = np.zeros(5000, dtype)
            right = left.copy()
            right[3000:] |= np.left_shift(np.uint64(1), np.uint64(bit)).astype(dtype)
            assert match_prefix(left, right) == 3000


def test_values_compare_and_do_not_wrap() -> None:
    assert match_prefix(np.array([-1]), np.array([2**64 - 1], np.uint64)) == 0
    assert match_prefix(np.array([-1], np.int32), np.array([2**32 - 1])) == 0
    assert match_prefix([1, 2**63], TokenBuffer([1, 2**63], np.uint64)) == 2
    assert match_prefix([1, 2**63], TokenBuffer([1, -(2**63)])) == 1


@pytest.mark.parametrize("protocol", range(6))
def test_takes_what_was_pickled(protocol: int) -> None:
    for dtype in DTYPES:
        for tokens in (TokenBuffer(TOKENS, dtype), np.array(TOKENS, dtype)):
            again = pickle.loads(pickle.dumps(tokens, protocol))
            assert match_prefix(again, tokens) == match_prefix(again, again) == match_prefix(TOKENS, again) == 5


def test_spare_room_takes_no_part() -> None:
    left, right = TokenBuffer([1, 2]), TokenBuffer([1, 2])
    left.append(3)
    right.append(3)
    assert match_prefix(left, right) == 3
    assert match_prefix(left, TokenBuffer([1, 2, 3, *([0] * 100)])) == 3


@pytest.mark.parametrize("strided", [np.arange(100)[::2], torch.arange(100)[::2], np.arange(98, -2, -2)[::-1]])
def test_takes_strides(strided: Any) -> None:
    assert match_prefix(strided, range(0, 100, 2)) == 50
    assert match_prefix(strided[:40], strided) == 40


@settings(deadline=None)
@given(st.lists(st.integers(0, 2)), st.lists(st.integers(0, 2)), st.integers(1, 5))
def test_agrees_with_a_walk(left: list[int], right: list[int], page_size: int) -> None:
    common = 0
    while common < min(len(left), len(right)) and left[common] == right[common]:
        common += 1
    expected = common // page_size * page_size
    assert match_prefix(left, right, page_size) == expected
    assert match_prefix(TokenBuffer(left), TokenBuffer(right, np.int32), page_size=page_size) == expected


@pytest.mark.parametrize(("page_size", "expected"), [(1, 5), (2, 4), (4, 4), (5, 5), (6, 0), (2**70, 0)])
def test_rounds_down_to_whole_pages(page_size: int, expected: int) -> None:
    assert match_prefix(TOKENS, [*TOKENS, 1], page_size) == expected
    assert match_prefix(TokenBuffer(TOKENS), TokenBuffer([*TOKENS, 1]), page_size) == expected
    assert type(match_prefix(TokenBuffer(TOKENS), TokenBuffer(TOKENS), np.int64(5))) is int


@pytest.mark.parametrize(
    ("page_size", "error"), [(0, ValueError), (-1, ValueError), (1.0, TypeError), (True, TypeError), (None, TypeError)]
)
def test_refuses_a_page_size(page_size: Any, error: type[Exception]) -> None:
    for tokens in (TOKENS, TokenBuffer(TOKENS), []):
        with pytest.raises(error, match="page_size must be"):
            match_prefix(tokens, tokens, page_size)


@pytest.mark.parametrize("left", INPUTS.values(), ids=INPUTS.keys())
def test_goes_on_from_what_is_known(left: Convert) -> None:
    for right in INPUTS.values():
        assert match_prefix(left(TOKENS), right([5, 6, 7, 8, 4]), start=2) == 4
        assert match_prefix(left(TOKENS), right([5, 6, 7, 8, 4]), 2, start=2) == 4
        assert match_prefix(left(TOKENS), right(TOKENS), limit=3) == 3
        assert match_prefix(left(TOKENS), right(TOKENS), 2, start=2, limit=np.int8(3)) == 2
        # What is known is not compared.
        assert match_prefix(left([1, 2, 3]), right([4, 5, 3]), start=np.int64(2)) == 3
        with pytest.raises(ValueError, match="start must be at most 2, the tokens of the shorter sequence, not 3"):
            match_prefix(left(TOKENS), right([5, 6]), start=3)
        with pytest.raises(ValueError, match="start must be at most 0, the tokens of the shorter sequence, not 1"):
            match_prefix(left([]), right(TOKENS), start=1)


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("right_dtype", [np.int32, np.int64, np.uint16, np.uint64])
@pytest.mark.parametrize("left_dtype", [np.int32, np.int64])
def test_finds_the_first_difference_from_anywhere(place: int, left_dtype: Any, right_dtype: Any) -> None:
    tokens = np.random.default_rng(0).integers(0, 2**15, 9999)
    other = tokens.copy()
    other[place] += 1
    left, right = TokenBuffer(tokens, left_dtype), TokenBuffer(other, right_dtype)
    for start in {0, 1, 15, place // 2, place - 1, place} & set(range(place + 1)):
        for a, b in ((left, right), (left[:], right.torch()), (right, left[:])):
            assert match_prefix(a, b, start=start) == place
            assert match_prefix(a, b, start=start, limit=place + 1) == place
            assert match_prefix(a, b, start=start, limit=place) == place
            assert match_prefix(a, b, start=start, limit=place // 3) == place // 3
            assert match_prefix(a, b, 16, start=start // 16 * 16) == place // 16 * 16
        assert match_prefix(left, left, start=start) == 9999
    assert match_prefix(left, list(right), start=place, limit=place + 1) == place


@settings(deadline=None)
@given(st.lists(st.integers(0, 1)), st.lists(st.integers(0, 1)), st.integers(1, 4), st.data())
def test_agrees_with_a_walk_from_anywhere(left: list[int], right: list[int], page_size: int, data: Any) -> None:
    start = data.draw(st.integers(0, min(len(left), len(right)) // page_size)) * page_size
    limit = data.draw(st.none() | st.integers(0, 2 * max(len(left), len(right)) + 1))
    common = start
    while common < min(len(left), len(right)) and left[common] == right[common]:
        common += 1
    expected = min(common, len(left) if limit is None else limit) // page_size * page_size
    for a, b in ((left, right), (TokenBuffer(left), TokenBuffer(right, np.int32)), (np.array(left, np.uint8), right)):
        assert match_prefix(a, b, page_size, start=start, limit=limit) == expected


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"start": -1}, ValueError, "start must not be negative, but is -1"),
        ({"start": 3, "page_size": 2}, ValueError, "start must be a multiple of the page size 2, but is 3"),
        ({"start": 2, "page_size": 2**70}, ValueError, "start must be a multiple of the page size"),
        ({"start": 6}, ValueError, "start must be at most 5"),
        ({"start": 2**70}, ValueError, "start must be at most 5"),
        ({"start": 2**70, "page_size": 2**70}, ValueError, "start must be at most 5"),
        ({"start": np.uint64(2**63)}, ValueError, "start must be at most 5"),
        ({"start": True}, TypeError, "start must be an integer"),
        ({"start": 1.0}, TypeError, "start must be an integer"),
        ({"start": None}, TypeError, "start must be an integer"),
        ({"limit": -1}, ValueError, "limit must not be negative"),
        ({"limit": False}, TypeError, "limit must be an integer"),
        ({"limit": 2.0}, TypeError, "limit must be an integer"),
        ({"limit": "2"}, TypeError, "limit must be an integer"),
    ],
)
def test_refuses_a_start_or_a_limit(arguments: Any, error: type[Exception], message: str) -> None:
    for tokens in (TOKENS, TokenBuffer(TOKENS), np.array(TOKENS), np.array(TOKENS, np.int8), torch.tensor(TOKENS)):
        with pytest.raises(error, match=message):
            match_prefix(tokens, [*TOKENS, 1], **arguments)
        with pytest.raises(error, match=message):
            match_prefix(TokenBuffer(TOKENS), tokens, **arguments)


def test_a_limit_is_beyond_any_length() -> None:
    for limit in (5, 6, 2**63 - 1, 2**63, 2**70, np.uint64(2**64 - 1)):
        for tokens in (TOKENS, TokenBuffer(TOKENS), np.array(TOKENS, np.int8)):
            assert match_prefix(tokens, [*TOKENS, 1], limit=limit) == 5
            assert match_prefix(tokens, TokenBuffer(TOKENS), start=5, limit=limit) == 5
    assert match_prefix(TOKENS, TOKENS, limit=0) == match_prefix([], [], limit=0, start=0) == 0


@pytest.mark.parametrize(("name", "tokens", "error"), REFUSED, ids=REFUSED_IDS)
def test_refuses_what_are_no_tokens(name: str, tokens: Any, error: type[Exception]) -> None:
    for good in (TOKENS, TokenBuffer(TOKENS), np.array(TOKENS)):
        with pytest.raises(error):
            match_prefix(tokens, good)
        with pytest.raises(error):
            match_prefix(good, tokens)


def test_requests_are_sequences_too() -> None:
    request = RequestTokens([1, 2])
    request.append(3)
    assert match_prefix(request, [1, 2, 3, 4]) == 3
    assert TokenBuffer(request) == request.fill_ids


@pytest.mark.parametrize("tokens", [[-1, 2**63], [2**70]])
def test_an_error_names_the_token_that_does_not_fit(tokens: list[int]) -> None:
    with pytest.raises(ValueError, match=f"token {tokens[-1]} does not fit int64") as raised:
        match_prefix(tokens, [1])
    assert str(pickle.loads(pickle.dumps(raised.value))) == str(raised.value)
