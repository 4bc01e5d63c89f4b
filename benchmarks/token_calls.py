"""Single calls of the token containers, each beside the cheapest way to the same result.

The calls of a kind are methods of two classes of the same names: one calls kvpool, `Floor...` does to arrays, lists and
bytes what comes of it, and checks nothing. A method makes 256 calls, or what its docstring says, and leaves things so
that it can be called again.
"""

from typing import Any

import numpy as np
import torch

from benchmarks import workloads
from benchmarks.pools import feature
from benchmarks.stages import RequestTokens, TokenBuffer, TokenTable, match_prefix

SEED = 0
ROWS = 256
MAX_TOKENS = 4_096
# Tokens that each row holds.
LENGTH = 1_000
DRAFTED = 5
ACCEPTED = 2
STEPS = 100
# Calls that are made of what is no row.
REPEATS = 100
# Tokens of a request that drafts are appended to.
CONTEXT = 10_000


def needed(found: Any, *names: str) -> Any:
    """Return what the installed kvpool has of a name, with these attributes; n/a on a commit that lacks any."""
    if found is None:
        raise NotImplementedError("this kvpool has no such container")
    for name in names:
        feature(found, name)
    return found


class FloorRows:
    """Rows of an ndarray, and a list of their lengths: a row more than are in use."""

    def __init__(self) -> None:
        """Hold 256 requests of 1,000 tokens."""
        self.tokens = workloads.token_ids(LENGTH, SEED).astype(np.int32)
        self.draft = workloads.token_ids(DRAFTED, SEED, 1).astype(np.int32)
        self.free = ROWS
        self.hold()

    def hold(self) -> None:
        """Make the rows."""
        self.cells = np.zeros((ROWS + 1, MAX_TOKENS), np.int32)
        self.cells[:ROWS, :LENGTH] = self.tokens
        self.lengths = [LENGTH] * ROWS + [0]

    def add(self) -> Any:
        """Replace the request in each row by another one."""
        cells, lengths, tokens = self.cells, self.lengths, self.tokens
        for row in range(ROWS):
            cells[row, :LENGTH] = tokens
            lengths[row] = LENGTH
        return self

    add_at = add

    def write(self) -> Any:
        """Write five drafted tokens over the last ones of each row."""
        cells, lengths, draft = self.cells, self.lengths, self.draft
        for row in range(ROWS):
            cells[row, LENGTH - DRAFTED : LENGTH] = draft
            lengths[row] = LENGTH
        return self

    def truncate(self) -> Any:
        """Say of each row how long it is."""
        lengths = self.lengths
        for row in range(ROWS):
            lengths[row] = LENGTH
        return self

    def swap(self) -> Any:
        """Exchange each row with its neighbour, and back."""
        cells, lengths = self.cells, self.lengths
        for row in range(ROWS):
            other = row ^ 1
            held = cells[row, :LENGTH].copy()
            cells[row, :LENGTH] = cells[other, :LENGTH]
            cells[other, :LENGTH] = held
            lengths[row], lengths[other] = lengths[other], lengths[row]
        return self

    def move(self) -> Any:
        """Move each row to the one that is free."""
        cells, lengths, free = self.cells, self.lengths, self.free
        for row in range(ROWS):
            cells[free, :LENGTH] = cells[row, :LENGTH]
            lengths[free], lengths[row] = LENGTH, 0
            free = row
        self.free = free
        return self

    def row(self) -> Any:
        """Take a view of each row, and drop it."""
        cells = self.cells
        for row in range(ROWS):
            view = cells[row, :LENGTH]
        return view

    def tensor(self) -> Any:
        """Have the whole table as a tensor."""
        cells = self.cells
        for _ in range(ROWS):
            tensor = torch.from_numpy(cells)
        return tensor


class KvpoolRows(FloorRows):
    """Rows of a TokenTable."""

    def hold(self) -> None:
        """Make the rows."""
        self.table = needed(TokenTable)(ROWS + 1, MAX_TOKENS)
        for _ in range(ROWS):
            self.table.add(self.tokens)

    def add(self) -> Any:
        """Replace the request in each row by another one."""
        remove, add, tokens = self.table.remove, self.table.add, self.tokens
        for row in range(ROWS):
            remove(row)
            add(tokens)
        return self

    def add_at(self) -> Any:
        """Replace the request in each row by another one, naming the row."""
        needed(self.table, "swap")
        remove, add, tokens = self.table.remove, self.table.add, self.tokens
        for row in range(ROWS):
            remove(row)
            add(tokens, row)
        return self

    def write(self) -> Any:
        """Write five drafted tokens over the last ones of each row."""
        write, draft = feature(self.table, "write"), self.draft
        for row in range(ROWS):
            write(row, LENGTH - DRAFTED, draft)
        return self

    def truncate(self) -> Any:
        """Say of each row how long it is."""
        truncate = feature(self.table, "truncate")
        for row in range(ROWS):
            truncate(row, LENGTH)
        return self

    def swap(self) -> Any:
        """Exchange each row with its neighbour, and back."""
        swap = feature(self.table, "swap")
        for row in range(ROWS):
            swap(row, row ^ 1)
        return self

    def move(self) -> Any:
        """Move each row to the one that is free."""
        move, free = feature(self.table, "move"), self.free
        for row in range(ROWS):
            move(row, free)
            free = row
        self.free = free
        return self

    def row(self) -> Any:
        """Take a view of each row, and drop it."""
        view_of = self.table.row
        for row in range(ROWS):
            view = view_of(row)
        return view

    def tensor(self) -> Any:
        """Have the whole table as a tensor."""
        whole = feature(self.table, "tensor")
        for _ in range(ROWS):
            tensor = whole()
        return tensor


ROW_CALLS = ("add", "add_at", "write", "truncate", "swap", "move", "row", "tensor")
ROWS_IN = {"kvpool": KvpoolRows, "floor": FloorRows}


class ListDrafts:
    """A request that drafts of five tokens are appended to, of which two are accepted, in a list."""

    def __init__(self) -> None:
        """Hold a request of 10,000 tokens."""
        self.draft = workloads.token_ids(DRAFTED, SEED, 1).tolist()
        self.hold(workloads.token_ids(CONTEXT, SEED).tolist())

    def hold(self, tokens: list[int]) -> None:
        """Make the request."""
        self.tokens = tokens

    def steps(self) -> Any:
        """Append and take back, a hundred times; then take back all that was accepted."""
        tokens, draft = self.tokens, self.draft
        for length in range(CONTEXT + ACCEPTED, CONTEXT + ACCEPTED * (STEPS + 1), ACCEPTED):
            tokens.extend(draft)
            del tokens[length:]
        del tokens[CONTEXT:]
        return self


class KvpoolDrafts(ListDrafts):
    """The same in a RequestTokens."""

    def hold(self, tokens: list[int]) -> None:
        """Make the request."""
        self.request = needed(RequestTokens, "truncate")(tokens)

    def steps(self) -> Any:
        """Append and take back, a hundred times; then take back all that was accepted."""
        extend, truncate, draft = self.request.extend, self.request.truncate, self.draft
        for length in range(CONTEXT + ACCEPTED, CONTEXT + ACCEPTED * (STEPS + 1), ACCEPTED):
            extend(draft)
            truncate(length)
        truncate(CONTEXT)
        return self


class KvpoolViewedDrafts(KvpoolDrafts):
    """The same, and somebody keeps a view of the drafted tokens while they are taken back."""

    def steps(self) -> Any:
        """Append, view and take back, a hundred times; then take back all that was accepted."""
        request, draft = self.request, self.draft
        for length in range(CONTEXT + ACCEPTED, CONTEXT + ACCEPTED * (STEPS + 1), ACCEPTED):
            request.extend(draft)
            view = request.fill_ids
            request.truncate(length)
        request.truncate(CONTEXT)
        return view


DRAFTS = {"list": ListDrafts, "kvpool": KvpoolDrafts, "kvpool_viewed": KvpoolViewedDrafts}


class Parts:
    """A part in the middle of twice as many tokens as a list of Python ints, a hundred times, from a list."""

    def __init__(self, tokens: int) -> None:
        """Hold the tokens."""
        self.start, self.stop = tokens // 2, tokens + tokens // 2
        self.hold(workloads.token_ids(2 * tokens, SEED).tolist())

    def hold(self, tokens: list[int]) -> None:
        """Make what they are listed from."""
        self.tokens = tokens

    def listed(self) -> Any:
        """Slice the list, whose ints exist already."""
        tokens, start, stop = self.tokens, self.start, self.stop
        for _ in range(REPEATS):
            part = tokens[start:stop]
        return part


class KvpoolParts(Parts):
    """The same from a RequestTokens."""

    def hold(self, tokens: list[int]) -> None:
        """Make what they are listed from."""
        self.request = needed(RequestTokens, "truncate")(tokens)

    def listed(self) -> Any:
        """Have them listed."""
        tolist, start, stop = self.request.tolist, self.start, self.stop
        for _ in range(REPEATS):
            part = tolist(start, stop)
        return part


PARTS = {"list": Parts, "kvpool": KvpoolParts}


class KvpoolMatches:
    """Two sequences of which nine tenths are known to agree, matched from there a hundred times."""

    def __init__(self, tokens: int) -> None:
        """Hold two sequences that agree to the end and share no memory."""
        self.start = tokens // 10 * 9
        self.pair = [self.held(workloads.token_ids(tokens, SEED)) for _ in range(2)]

    def held(self, tokens: np.ndarray) -> Any:
        """Return tokens in a TokenBuffer; earlier kvpools, which know of no start, have none with truncate."""
        return needed(TokenBuffer, "truncate")(tokens)

    def matched(self) -> Any:
        """Match them from the start that is known."""
        (left, right), start = self.pair, self.start
        for _ in range(REPEATS):
            common = match_prefix(left, right, start=start)
        return common


class FloorMatches(KvpoolMatches):
    """The bytes of the last tenth, compared a hundred times."""

    def held(self, tokens: np.ndarray) -> Any:
        """Return the bytes of the last tenth."""
        return tokens[self.start :].tobytes()

    def matched(self) -> Any:
        """Compare them."""
        left, right = self.pair
        for _ in range(REPEATS):
            same = left == right
        return same


MATCHES = {"kvpool": KvpoolMatches, "floor": FloorMatches}
