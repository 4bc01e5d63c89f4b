"""Random actions on the token containers beside plain lists: the same tokens, and the same state after a failure."""

import pickle
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from kvpool import RequestTokens, TokenBuffer, TokenTable, match_prefix
from tests.kvpool.compiled import COMPILED
from tests.kvpool.tokens import REFUSED, SEQUENCES, Convert

DTYPES = st.sampled_from([np.int32, np.int64, np.int8])
TABLE_DTYPES = st.sampled_from([np.int32, np.int64])
TOKENS = st.lists(st.integers(0, 127), max_size=40)
CONVERSIONS = st.sampled_from(list(SEQUENCES.values()))


class BufferMachine(RuleBasedStateMachine):
    """A TokenBuffer beside a list, and every view it ever gave beside what it showed."""

    @initialize(tokens=TOKENS, convert=CONVERSIONS, dtype=DTYPES)
    def build(self, tokens: list[int], convert: Convert, dtype: Any) -> None:
        self.buffer = TokenBuffer(convert(tokens), dtype)
        self.oracle = list(tokens)
        self.dtype = dtype
        self.views: list[tuple[Any, list[int]]] = []

    @rule(token=st.integers(-(2**65), 2**65) | st.integers(-200, 200))
    def append(self, token: int) -> None:
        if np.iinfo(self.dtype).min <= token <= np.iinfo(self.dtype).max:
            self.buffer.append(token)
            self.oracle.append(token)
        else:
            with pytest.raises(OverflowError):
                self.buffer.append(token)

    @rule(tokens=st.lists(st.integers(0, 127), min_size=1))
    def append_many(self, tokens: list[int]) -> None:
        for token in tokens:
            self.buffer.append(token)
            self.oracle.append(token)

    @rule(tokens=TOKENS, convert=CONVERSIONS)
    def extend(self, tokens: list[int], convert: Convert) -> None:
        self.buffer.extend(convert(tokens))
        self.oracle += tokens

    @rule(case=st.sampled_from(REFUSED))
    def extend_by_what_is_refused(self, case: Any) -> None:
        with pytest.raises(case[2]):
            self.buffer.extend(case[1])

    @precondition(lambda self: len(self.oracle) < 500)
    @rule()
    def extend_by_itself(self) -> None:
        self.buffer.extend(self.buffer)
        self.oracle += self.oracle

    @rule(tokens=TOKENS, convert=CONVERSIONS, left=st.booleans())
    def add(self, tokens: list[int], convert: Convert, left: bool) -> None:
        other = convert(tokens)
        fits = np.iinfo(self.dtype if left or not isinstance(other, TokenBuffer) else other.dtype)
        if all(fits.min <= token <= fits.max for token in self.oracle):
            self.buffer = self.buffer + other if left else other + self.buffer
            self.oracle = self.oracle + tokens if left else tokens + self.oracle
            self.dtype = self.buffer.dtype
        else:
            with pytest.raises(OverflowError):
                other + self.buffer

    @rule(n=st.integers(-1, 60))
    def truncate(self, n: int) -> None:
        if 0 <= n <= len(self.oracle):
            self.buffer.truncate(n)
            self.oracle = self.oracle[:n]
        else:
            with pytest.raises(ValueError, match="n must be"):
                self.buffer.truncate(n)

    @precondition(lambda self: self.oracle)
    @rule(data=st.data(), tokens=st.lists(st.integers(0, 127), max_size=5))
    def take_back_and_go_on(self, data: st.DataObject, tokens: list[int]) -> None:
        n = len(self.oracle) - data.draw(st.integers(0, min(5, len(self.oracle))))
        self.buffer.truncate(n)
        self.buffer.extend(tokens)
        self.oracle = self.oracle[:n] + tokens

    @rule()
    def forget(self) -> None:
        self.views.clear()

    @rule(start=st.none() | st.integers(-60, 60), stop=st.none() | st.integers(-60, 60))
    def list_a_part(self, start: int | None, stop: int | None) -> None:
        assert self.buffer.tolist(start, stop) == self.oracle[start:stop]

    @rule(protocol=st.integers(2, 5))
    def pickle(self, protocol: int) -> None:
        self.buffer = pickle.loads(pickle.dumps(self.buffer, protocol))

    @rule(index=st.slices(60) | st.integers(-60, 60))
    def read(self, index: Any) -> None:
        if isinstance(index, slice):
            view = self.buffer[index]
            self.views.append((view, self.oracle[index]))
        elif -len(self.oracle) <= index < len(self.oracle):
            assert self.buffer[index] == self.oracle[index]
        else:
            with pytest.raises(IndexError):
                self.buffer[index]

    @rule(convert=CONVERSIONS, place=st.integers(0, 60))
    def compare(self, convert: Convert, place: int) -> None:
        same = [abs(token) % 128 for token in self.oracle]
        assert (self.buffer == convert(same)) is (convert(same) == self.buffer) is (same == self.oracle)
        other = [*self.oracle[:place], 5, *self.oracle[place + 1 :]]
        common = next((i for i, pair in enumerate(zip(other, self.oracle, strict=False)) if pair[0] != pair[1]), None)
        common = min(len(other), len(self.oracle)) if common is None else common
        assert match_prefix(self.buffer, other) == match_prefix(other, self.buffer, start=common // 2) == common
        assert match_prefix(self.buffer, other, 2, limit=place) == min(common, place) // 2 * 2

    @invariant()
    def holds_the_same(self) -> None:
        if hasattr(self, "buffer"):
            self.buffer.check()
            assert self.buffer.dtype == self.dtype
            assert len(self.buffer) == len(self.oracle)
            assert self.buffer.tolist() == self.buffer.torch().tolist() == list(self.buffer) == self.oracle
            for view, shown in self.views:
                assert view.tolist() == shown


class RequestMachine(RuleBasedStateMachine):
    """A RequestTokens beside a list and the length of its origin, and every view it ever gave beside what it showed."""

    @initialize(tokens=TOKENS, convert=CONVERSIONS)
    def build(self, tokens: list[int], convert: Convert) -> None:
        self.request = RequestTokens(convert(tokens))
        self.oracle = list(tokens)
        self.origin = len(tokens)
        self.views: list[tuple[Any, list[int]]] = []

    @rule(tokens=st.lists(st.integers(0, 127), max_size=5), convert=CONVERSIONS, one_by_one=st.booleans())
    def generate(self, tokens: list[int], convert: Convert, one_by_one: bool) -> None:
        if one_by_one:
            for token in tokens:
                self.request.append(token)
        else:
            self.request.extend(convert(tokens))
        self.oracle += tokens

    @rule(back=st.integers(-1, 12))
    def truncate(self, back: int) -> None:
        n = len(self.oracle) - back
        if self.origin <= n <= len(self.oracle):
            self.request.truncate(n)
            self.oracle = self.oracle[:n]
        else:
            with pytest.raises(ValueError, match="n must be"):
                self.request.truncate(n)

    @rule(start=st.none() | st.integers(-60, 60), stop=st.none() | st.integers(-60, 60))
    def list_a_part(self, start: int | None, stop: int | None) -> None:
        assert self.request.tolist(start, stop) == self.oracle[start:stop]

    @rule(length=st.integers(0, 60))
    def read(self, length: int) -> None:
        length = min(length, len(self.oracle))
        self.views += [
            (self.request.committed(length), self.oracle[:length]),
            (self.request.fill_ids, list(self.oracle)),
            (self.request.output, self.oracle[self.origin :]),
        ]

    @rule()
    def forget(self) -> None:
        self.views.clear()

    @rule(protocol=st.integers(2, 5))
    def pickle(self, protocol: int) -> None:
        self.request = pickle.loads(pickle.dumps(self.request, protocol))

    @invariant()
    def holds_the_same(self) -> None:
        if hasattr(self, "request"):
            assert self.request.tolist() == self.request.fill_ids.tolist() == self.oracle
            assert self.request.origin.tolist() == self.oracle[: self.origin]
            assert self.request.output.tolist() == self.oracle[self.origin :]
            for view, shown in self.views:
                assert view.tolist() == shown


ROWS = 4
ROW_LENGTH = 6


class TableMachine(RuleBasedStateMachine):
    """A TokenTable beside a list for each row, None where the row is not in use."""

    @initialize(dtype=TABLE_DTYPES)
    def build(self, dtype: Any) -> None:
        self.table = TokenTable(ROWS, ROW_LENGTH, dtype)
        self.oracle: list[list[int] | None] = [None] * ROWS
        self.views: dict[int, tuple[Any, list[int]]] = {}

    def in_use(self) -> list[int]:
        return [row for row, tokens in enumerate(self.oracle) if tokens is not None]

    @rule(tokens=st.lists(st.integers(0, 127), max_size=ROW_LENGTH + 1), convert=CONVERSIONS)
    def add(self, tokens: list[int], convert: Convert) -> None:
        if len(tokens) > ROW_LENGTH or None not in self.oracle:
            with pytest.raises(ValueError, match=r"at most 6 tokens|in use"):
                self.table.add(convert(tokens))
        else:
            row = self.table.add(convert(tokens))
            assert row == self.oracle.index(None)
            self.oracle[row] = tokens

    @rule(tokens=st.lists(st.integers(0, 127), max_size=ROW_LENGTH + 1), row=st.integers(-1, ROWS), convert=CONVERSIONS)
    def add_at(self, tokens: list[int], row: int, convert: Convert) -> None:
        if len(tokens) > ROW_LENGTH or not 0 <= row < ROWS or row in self.in_use():
            with pytest.raises(ValueError, match=r"at most 6 tokens|row"):
                self.table.add(convert(tokens), row)
        else:
            assert self.table.add(convert(tokens), row) == row
            self.oracle[row] = tokens

    @rule(
        row=st.integers(-1, ROWS),
        offset=st.integers(-1, ROW_LENGTH + 1),
        tokens=st.lists(st.integers(0, 127), max_size=ROW_LENGTH),
        convert=CONVERSIONS,
    )
    def write(self, row: int, offset: int, tokens: list[int], convert: Convert) -> None:
        held = self.oracle[row] if row in self.in_use() else None
        if held is None or not 0 <= offset <= len(held) or offset + len(tokens) > ROW_LENGTH:
            with pytest.raises(ValueError, match=r"at most 6 tokens|row|offset"):
                self.table.write(row, offset, convert(tokens))
        else:
            self.table.write(row, offset, convert(tokens))
            self.oracle[row] = held[:offset] + tokens + held[offset + len(tokens) :]
            self.forget(row)

    @rule(row=st.integers(-1, ROWS), n=st.integers(-1, ROW_LENGTH + 1))
    def truncate(self, row: int, n: int) -> None:
        held = self.oracle[row] if row in self.in_use() else None
        if held is None or not 0 <= n <= len(held):
            with pytest.raises(ValueError, match=r"row|n must be"):
                self.table.truncate(row, n)
        else:
            self.table.truncate(row, n)
            self.oracle[row] = held[:n]
            self.forget(row)

    @rule(a=st.integers(-1, ROWS), b=st.integers(-1, ROWS))
    def swap(self, a: int, b: int) -> None:
        if {a, b} <= set(self.in_use()):
            self.table.swap(a, b)
            self.oracle[a], self.oracle[b] = self.oracle[b], self.oracle[a]
            self.forget(a, b)
        else:
            with pytest.raises(ValueError, match="row"):
                self.table.swap(a, b)

    @rule(row=st.integers(-1, ROWS), to=st.integers(-1, ROWS))
    def move(self, row: int, to: int) -> None:
        if row in self.in_use() and 0 <= to < ROWS and to not in self.in_use():
            self.table.move(row, to)
            self.oracle[to], self.oracle[row] = self.oracle[row], None
            self.forget(row, to)
        else:
            with pytest.raises(ValueError, match="row"):
                self.table.move(row, to)

    def forget(self, *rows: int) -> None:
        """Ask no more of the views of rows that have changed otherwise than by an append."""
        for row in rows:
            self.views.pop(row, None)

    @rule(data=st.data(), convert=CONVERSIONS, as_array=st.booleans())
    def append(self, data: st.DataObject, convert: Convert, as_array: bool) -> None:
        open_rows = [row for row in self.in_use() if len(self.oracle[row] or []) < ROW_LENGTH]
        rows = data.draw(st.permutations(open_rows))[: data.draw(st.integers(0, ROWS))]
        tokens = data.draw(st.lists(st.integers(0, 127), min_size=len(rows), max_size=len(rows)))
        self.table.append(np.array(rows, np.int64) if as_array else rows, convert(tokens))
        for row, token in zip(rows, tokens, strict=True):
            self.oracle[row] = [*(self.oracle[row] or []), token]

    @rule(rows=st.lists(st.integers(-1, ROWS), min_size=1, max_size=5), token=st.integers(2**31 - 3, 2**31 + 2))
    def append_to_any_rows(self, rows: list[int], token: int) -> None:
        open_rows = {row for row in self.in_use() if len(self.oracle[row] or []) < ROW_LENGTH}
        tokens = [0] * (len(rows) - 1) + [token]
        fits = token <= np.iinfo(self.table.dtype).max
        if set(rows) <= open_rows and len(set(rows)) == len(rows) and fits:
            self.table.append(rows, tokens)
            for row, added in zip(rows, tokens, strict=True):
                self.oracle[row] = [*(self.oracle[row] or []), added]
        else:
            with pytest.raises(ValueError, match=r"row|fit"):
                self.table.append(np.array(rows), np.array(tokens))

    @rule(row=st.integers(-1, ROWS))
    def remove(self, row: int) -> None:
        if row in self.in_use():
            self.table.remove(row)
            self.oracle[row] = None
            self.forget(row)
        else:
            with pytest.raises(ValueError, match="row"):
                self.table.remove(row)

    @rule(row=st.integers(-1, ROWS))
    def read(self, row: int) -> None:
        if row in self.in_use():
            self.views[row] = self.table.row(row), list(self.oracle[row] or [])
        else:
            with pytest.raises(ValueError, match="row"):
                self.table.row(row)

    @invariant()
    def holds_the_same(self) -> None:
        if hasattr(self, "table"):
            self.table.check()
            assert self.table.lengths.tolist() == [len(tokens or []) for tokens in self.oracle]
            for row in self.in_use():
                assert self.table.row(row).tolist() == self.oracle[row]
                assert self.table.tensor()[row, : len(self.oracle[row] or [])].tolist() == self.oracle[row]
            for view, shown in self.views.values():
                assert view.tolist() == shown


TestBuffer = BufferMachine.TestCase
TestRequest = RequestMachine.TestCase
TestTable = TableMachine.TestCase
TestBuffer.settings = TestRequest.settings = TestTable.settings = settings(
    max_examples=60 if COMPILED else 15, stateful_step_count=40, deadline=None
)
