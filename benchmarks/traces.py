"""Request traces: what an engine was asked for, read from files that the user names.

Two formats are read, one JSON object a line, as `.jsonl` or `.jsonl.gz`; `docs/traces.md` describes both:

- Mooncake's: one request a line, with the ids of its 512-token prefix blocks;
- sessions: one agentic session a line, each request given by what it shares with the request before.

Either way a trace is a sequence of `Request`, in time order, whose blocks are numbered so that equal ids are equal
prefixes. Every line is checked, and a wrong one is named by its number.
"""

import gzip
import heapq
import itertools
import json
import math
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

MOONCAKE_BLOCK_TOKENS = 512
CONCURRENT_SESSIONS = 24
# Tokens or blocks of a request, more than any has.
MOST = 2**31 - 1


class TraceError(Exception):
    """A trace that cannot be read; the message names the file, and the line where there is one."""


class Request(NamedTuple):
    """One request: when it came (seconds), its tokens, and the ids of its prefix blocks, first to last."""

    time: float
    input_tokens: int
    output_tokens: int
    blocks: Sequence[int]


class PrefixTrace:
    """Requests whose blocks are named in the trace itself."""

    def __init__(self, name: str, block_tokens: int, requests: list[Request]) -> None:
        self.name = name
        self.block_tokens = block_tokens
        self.requests = sorted(requests, key=lambda request: request.time)

    def __len__(self) -> int:
        return len(self.requests)

    def __iter__(self) -> Iterator[Request]:
        return iter(self.requests)

    def tokens(self) -> Iterator[tuple[int, int]]:
        """Yield the input and output tokens of each request."""
        return ((request.input_tokens, request.output_tokens) for request in self.requests)

    def reused_share(self) -> float:
        """Return the share of the blocks asked for that an unlimited cache would have."""
        blocks = [block for request in self.requests for block in request.blocks]
        return 1 - len(set(blocks)) / max(1, len(blocks))


class Turn(NamedTuple):
    """One request of a session; the first `shared` blocks are those of the turn before, `new` ones follow."""

    time: float
    input_tokens: int
    output_tokens: int
    shared: int
    new: int


class SessionTrace:
    """Sessions, `concurrent` of which run at a time: where one ends the next begins.

    A session's clock starts when the session does and never runs backwards. Blocks are numbered as they appear;
    sessions share none. A block that a turn shares but the turn before did not send (the model wrote it) is new.
    """

    def __init__(
        self, name: str, block_tokens: int, sessions: list[list[Turn]], concurrent: int = CONCURRENT_SESSIONS
    ) -> None:
        self.name = name
        self.block_tokens = block_tokens
        self.sessions = sessions
        self.concurrent = concurrent

    def __len__(self) -> int:
        return sum(map(len, self.sessions))

    def tokens(self) -> Iterator[tuple[int, int]]:
        """Yield the input and output tokens of each request, session by session."""
        return ((turn.input_tokens, turn.output_tokens) for turns in self.sessions for turn in turns)

    def reused_share(self) -> float:
        """Return the share of the blocks asked for that an unlimited cache would have."""
        shared = asked = 0
        for turns in self.sessions:
            held = 0
            for turn in turns:
                shared += min(turn.shared, held)
                held = turn.shared + turn.new
                asked += held
        return shared / max(1, asked)

    def __iter__(self) -> Iterator[Request]:
        waiting = iter(range(len(self.sessions)))
        ids = itertools.count()
        chains: dict[int, list[int]] = {}
        # (time, session, turn, start of the session)
        due = [(self.sessions[each][0].time, each, 0, 0.0) for each in itertools.islice(waiting, self.concurrent)]
        heapq.heapify(due)
        while due:
            now, session, index, start = heapq.heappop(due)
            turns = self.sessions[session]
            turn = turns[index]
            chain = chains.setdefault(session, [])
            del chain[turn.shared :]
            chain.extend(itertools.islice(ids, turn.shared + turn.new - len(chain)))
            yield Request(now, turn.input_tokens, turn.output_tokens, chain.copy())
            if index + 1 < len(turns):
                heapq.heappush(due, (max(now, start + turns[index + 1].time), session, index + 1, start))
                continue
            del chains[session]
            following = next(waiting, None)
            if following is not None:
                heapq.heappush(due, (now + self.sessions[following][0].time, following, 0, now))


Trace = PrefixTrace | SessionTrace


def trace_files(path: Path) -> list[Path]:
    """Return the trace files that a path names: itself, or what a folder holds of them, by name.

    Raises TraceError where there is none.
    """
    if not path.is_dir():
        return [path]
    files = sorted(each for each in path.iterdir() if each.name.endswith((".jsonl", ".jsonl.gz")))
    if not files:
        raise TraceError(f"{path} holds no .jsonl or .jsonl.gz file")
    return files


def read_trace(path: Path, skip_invalid: bool = False) -> tuple[Trace, list[str]]:
    """Read one trace file; return the trace, and what was wrong with each line that was skipped.

    The first line that is valid in one of the formats decides which it is. Raises TraceError for a file that cannot
    be read, that holds no request, or, unless `skip_invalid`, that has a line that is not valid.
    """
    parse = None
    block_tokens = MOONCAKE_BLOCK_TOKENS
    records: list[Request] | list[list[Turn]] = []
    skipped: list[str] = []
    for number, line in _lines(path):
        try:
            fields = _json_object(line)
            parser = parse or _parser(fields)
            block, record = parser(fields)
            if parse and block != block_tokens:
                raise ValueError(f"block_size is {block}, but the trace began with {block_tokens}")
        except ValueError as error:
            message = f"{path}, line {number}: {error}"
            if not skip_invalid:
                raise TraceError(message) from None
            skipped.append(message)
            continue
        parse, block_tokens = parser, block
        records.append(record)
    if not records:
        raise TraceError(f"{path} holds no request" + (f" that is valid; {skipped[0]}" if skipped else ""))
    kind = PrefixTrace if parse is _mooncake_request else SessionTrace
    return kind(path.name, block_tokens, records), skipped


def _lines(path: Path) -> Iterator[tuple[int, bytes]]:
    opened = gzip.open if path.name.endswith(".gz") else open
    number = 0
    try:
        with opened(path, "rb") as file:
            for number, line in enumerate(file, 1):
                if line.strip():
                    yield number, line
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise TraceError(f"{path} is damaged after line {number}: {error}") from None
    except OSError as error:
        raise TraceError(f"{path} cannot be read: {error.strerror or error}") from None


def _json_object(line: bytes) -> dict[str, object]:
    try:
        fields = json.loads(line.strip())
    except UnicodeDecodeError:
        raise ValueError("not UTF-8") from None
    except json.JSONDecodeError as error:
        raise ValueError(f"not JSON: {error.msg} at column {error.colno}") from None
    except RecursionError:
        raise ValueError("not a request: nested too deeply") from None
    if not isinstance(fields, dict):
        raise ValueError(f"not a JSON object but {_kind(fields)}")
    return fields


def _parser(fields: dict[str, object]):
    if "hash_ids" in fields:
        return _mooncake_request
    if "requests" in fields:
        return _session
    raise ValueError('neither "hash_ids" (a request in Mooncake\'s format) nor "requests" (a session)')


def _mooncake_request(fields: dict[str, object]) -> tuple[int, Request]:
    milliseconds = _number(_field(fields, "timestamp"), '"timestamp"')
    inputs = _count(_field(fields, "input_length"), '"input_length"')
    outputs = _count(_field(fields, "output_length"), '"output_length"')
    blocks = _list(_field(fields, "hash_ids"), '"hash_ids"')
    for place, block in enumerate(blocks):
        _count(block, f'"hash_ids"[{place}]', most=math.inf)
    if len(set(blocks)) < len(blocks):
        raise ValueError('"hash_ids" names a block twice')
    _check_blocks(len(blocks), inputs, MOONCAKE_BLOCK_TOKENS, '"hash_ids"')
    return MOONCAKE_BLOCK_TOKENS, Request(milliseconds / 1_000, inputs, outputs, blocks)


def _session(fields: dict[str, object]) -> tuple[int, list[Turn]]:
    if not isinstance(_field(fields, "id"), str):
        raise ValueError(f'"id" must be a string, not {_kind(fields["id"])}')
    block_tokens = _count(_field(fields, "block_size"), '"block_size"', least=1)
    for name in ("tool_tokens", "system_tokens"):
        _count(_field(fields, name), f'"{name}"')
    requests = _list(_field(fields, "requests"), '"requests"')
    if not requests:
        raise ValueError('"requests" is empty')
    turns = []
    for place, request in enumerate(requests):
        name = f'"requests"[{place}]'
        if len(_list(request, name)) != len(Turn._fields):
            raise ValueError(f"{name} must be [time, input, output, shared, new], but has {len(request)} items")
        time = _number(request[0], f"{name}[0]")
        turn = Turn(time, *(_count(value, f"{name}[{item}]") for item, value in enumerate(request[1:], 1)))
        _check_blocks(turn.shared + turn.new, turn.input_tokens, block_tokens, name)
        if place == 0 and turn.shared:
            raise ValueError(f"{name} shares {turn.shared} blocks, but no request came before it")
        turns.append(turn)
    return block_tokens, turns


def _check_blocks(blocks: int, tokens: int, block_tokens: int, name: str) -> None:
    # Writers differ in whether a last block that is not full counts.
    if blocks not in (tokens // block_tokens, math.ceil(tokens / block_tokens)):
        raise ValueError(f"{name} has {blocks} blocks, but {tokens} tokens are {tokens / block_tokens:.2f} blocks")


def _field(fields: dict[str, object], name: str) -> object:
    if name not in fields:
        raise ValueError(f'"{name}" is missing')
    return fields[name]


def _list(value: object, name: str) -> list:
    if not isinstance(value, list):
        raise ValueError(f"{name} must be a list, not {_kind(value)}")
    return value


def _count(value: object, name: str, least: int = 0, most: float = MOST) -> int:
    if type(value) is not int:
        raise ValueError(f"{name} must be a whole number, not {_kind(value)}")
    if value < least:
        raise ValueError(f"{name} must be at least {least}, but is {value}")
    if value > most:
        raise ValueError(f"{name} must be at most {most}")
    return value


def _number(value: object, name: str) -> float:
    if type(value) not in (int, float):
        raise ValueError(f"{name} must be a number, not {_kind(value)}")
    try:
        number = float(value)
    except OverflowError:
        raise ValueError(f"{name} must be a number, but is beyond any") from None
    if not math.isfinite(number):
        raise ValueError(f"{name} must be a number, not {_kind(value)}")
    if number < 0:
        raise ValueError(f"{name} must be at least 0, but is {value}")
    return number


def _kind(value: object) -> str:
    if isinstance(value, float) and not math.isfinite(value):
        return repr(value)
    return {dict: "an object", list: "a list", str: "a string", bool: "a boolean", type(None): "null"}.get(
        type(value), "a number"
    )
