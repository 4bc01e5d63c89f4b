import gzip
import itertools
import json

import numpy as np
import pytest

from benchmarks import synthetic_traces
from benchmarks.traces import PrefixTrace, SessionTrace, TraceError, Turn, read_trace, trace_files


def mooncake(**changes):
    fields = {"timestamp": 27_482, "input_length": 1_100, "output_length": 52, "hash_ids": [46, 47, 2_353]}
    return json.dumps({**fields, **changes})


def session(*requests, **changes):
    fields = {"id": "s1", "block_size": 64, "tool_tokens": 10, "system_tokens": 5, "requests": list(requests)}
    return json.dumps({**fields, **changes})


def written(tmp_path, *lines, name="trace.jsonl"):
    path = tmp_path / name
    content = "".join(line + "\n" for line in lines).encode()
    path.write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    return path


@pytest.mark.parametrize("name", ["trace.jsonl", "trace.jsonl.gz"])
def test_mooncake_requests_come_in_time_order(tmp_path, name):
    path = written(tmp_path, mooncake(), "", mooncake(timestamp=3_000, hash_ids=[46, 47]), name=name)
    trace, skipped = read_trace(path)
    assert isinstance(trace, PrefixTrace)
    assert (trace.name, trace.block_tokens, len(trace), skipped) == (name, 512, 2, [])
    assert [(request.time, list(request.blocks)) for request in trace] == [(3.0, [46, 47]), (27.482, [46, 47, 2_353])]
    assert [(request.input_tokens, request.output_tokens) for request in trace] == [(1_100, 52)] * 2


def test_sessions_share_blocks_with_the_turn_before_and_with_no_other_session(tmp_path):
    first = session([0.0, 200, 8, 0, 4], [5.0, 260, 9, 3, 2])
    second = session([1.0, 64, 7, 0, 1])
    trace, _ = read_trace(written(tmp_path, first, second))
    assert isinstance(trace, SessionTrace)
    assert (trace.block_tokens, len(trace)) == (64, 3)
    assert [(request.time, request.blocks) for request in trace] == [
        (0.0, [0, 1, 2, 3]),
        (1.0, [4]),
        (5.0, [0, 1, 2, 5, 6]),
    ]
    assert list(trace) == list(trace)


def test_a_session_begins_where_one_ends_and_no_clock_runs_backwards():
    one = [Turn(0.0, 64, 1, 0, 1), Turn(10.0, 128, 1, 1, 1), Turn(4.0, 192, 1, 2, 1)]
    two = [Turn(2.0, 64, 1, 0, 1)]
    times = [request.time for request in SessionTrace("t", 64, [one, two], concurrent=1)]
    assert times == [0.0, 10.0, 10.0, 12.0]
    assert [request.time for request in SessionTrace("t", 64, [one, two], concurrent=2)] == [0.0, 2.0, 10.0, 10.0]


def test_a_shared_block_that_the_turn_before_did_not_send_is_new():
    turns = [Turn(0.0, 64, 70, 0, 1), Turn(1.0, 192, 1, 2, 1)]
    assert [request.blocks for request in SessionTrace("t", 64, [turns])] == [[0], [0, 1, 2]]


WRONG_LINES = [
    ("{", "not JSON"),
    ("[1]", "not a JSON object but a list"),
    ('"hash_ids"', "not a JSON object but a string"),
    ("null", "not a JSON object but null"),
    ("[" * 100_000, "not a request: nested too deeply"),
    (json.dumps({"hash_ids": [1]}), '"timestamp" is missing'),
    (mooncake(timestamp=-1), '"timestamp" must be at least 0, but is -1'),
    (mooncake(timestamp="now"), '"timestamp" must be a number, not a string'),
    (mooncake(timestamp=float("nan")), '"timestamp" must be a number, not nan'),
    (mooncake(timestamp=True), '"timestamp" must be a number, not a boolean'),
    (mooncake(timestamp=10**400), '"timestamp" must be a number, but is beyond any'),
    (mooncake(timestamp=float("inf")), '"timestamp" must be a number, not inf'),
    (mooncake(input_length=10**400), '"input_length" must be at most 2147483647'),
    (mooncake(output_length=2**31), '"output_length" must be at most 2147483647'),
    (mooncake().replace("1100", "9" * 5_000), "Exceeds the limit"),
    (mooncake(input_length=1_100.0), '"input_length" must be a whole number, not a number'),
    (mooncake(output_length=-5), '"output_length" must be at least 0, but is -5'),
    (mooncake(hash_ids=7), '"hash_ids" must be a list, not a number'),
    (mooncake(hash_ids=[1, "2", 3]), '"hash_ids"[1] must be a whole number, not a string'),
    (mooncake(hash_ids=[1, 2, 1]), '"hash_ids" names a block twice'),
    (mooncake(hash_ids=[1]), '"hash_ids" has 1 blocks, but 1100 tokens are 2.15 blocks'),
]
WRONG_SESSIONS = [
    (session([0, 64, 1, 0, 1], id=3), '"id" must be a string, not a number'),
    (session([0, 64, 1, 0, 1], block_size=0), '"block_size" must be at least 1, but is 0'),
    (session([0, 64, 1, 0, 1], tool_tokens=None), '"tool_tokens" must be a whole number, not null'),
    (session([0, 64, 1, 0, 1], system_tokens=10**400), '"system_tokens" must be at most 2147483647'),
    (session([10**400, 64, 1, 0, 1]), '"requests"[0][0] must be a number, but is beyond any'),
    (session([0, 10**400, 1, 0, 10**400]), '"requests"[0][1] must be at most 2147483647'),
    (session(), '"requests" is empty'),
    (session({}), '"requests"[0] must be a list, not an object'),
    (session([0, 64, 1, 0]), '"requests"[0] must be [time, input, output, shared, new], but has 4 items'),
    (session([0, 64, 1, 1, 0]), '"requests"[0] shares 1 blocks, but no request came before it'),
    (session([0, 64, 1, 0, 1], [-1, 64, 1, 1, 0]), '"requests"[1][0] must be at least 0, but is -1'),
    (session([0, 64, 1, 0, 3]), '"requests"[0] has 3 blocks, but 64 tokens are 1.00 blocks'),
    (session([0, 128, 1, 0, 1], block_size=128), "block_size is 128, but the trace began with 64"),
    (mooncake(), '"id" is missing'),
]


@pytest.mark.parametrize(("line", "reason"), WRONG_LINES, ids=[reason for _, reason in WRONG_LINES])
def test_a_wrong_request_is_named_by_its_line(tmp_path, line, reason):
    path = written(tmp_path, mooncake(), line, mooncake())
    with pytest.raises(TraceError) as error:
        read_trace(path)
    assert str(error.value).startswith(f"{path}, line 2: {reason}")
    trace, skipped = read_trace(path, skip_invalid=True)
    assert (len(trace), skipped) == (2, [str(error.value)])


@pytest.mark.parametrize(("line", "reason"), WRONG_SESSIONS, ids=[reason for _, reason in WRONG_SESSIONS])
def test_a_wrong_session_is_named_by_its_line(tmp_path, line, reason):
    path = written(tmp_path, session([0, 64, 1, 0, 1]), line)
    with pytest.raises(TraceError) as error:
        read_trace(path)
    assert str(error.value).startswith(f"{path}, line 2: {reason}")
    trace, skipped = read_trace(path, skip_invalid=True)
    assert (len(trace), len(skipped)) == (1, 1)


def test_what_is_not_utf_8_is_named_by_its_line(tmp_path):
    path = tmp_path / "trace.jsonl"
    path.write_bytes(mooncake().encode() + b'\n{"timestamp": "\xff"}\n')
    with pytest.raises(TraceError, match="line 2: not UTF-8"):
        read_trace(path)


def test_files_that_cannot_be_read(tmp_path):
    with pytest.raises(TraceError, match="cannot be read: No such file"):
        read_trace(tmp_path / "none.jsonl")
    with pytest.raises(TraceError, match=r'line 1: neither "hash_ids" .* nor "requests"'):
        read_trace(written(tmp_path, "{}", name="other.jsonl"))
    with pytest.raises(TraceError, match=r"holds no request$"):
        read_trace(written(tmp_path, "", name="empty.jsonl"))
    with pytest.raises(TraceError, match=r"holds no request that is valid; .*line 1: not JSON"):
        read_trace(written(tmp_path, "{", name="wrong.jsonl"), skip_invalid=True)
    whole = written(tmp_path, *[mooncake(timestamp=each) for each in range(9_000)], name="whole.jsonl.gz").read_bytes()
    (tmp_path / "cut.jsonl.gz").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(TraceError, match=r"is damaged after line [1-9]"):
        read_trace(tmp_path / "cut.jsonl.gz", skip_invalid=True)
    (tmp_path / "plain.jsonl.gz").write_text(mooncake())
    with pytest.raises(TraceError, match="is damaged after line 0"):
        read_trace(tmp_path / "plain.jsonl.gz")


def test_a_folder_names_the_traces_in_it(tmp_path):
    with pytest.raises(TraceError, match=r"holds no \.jsonl"):
        trace_files(tmp_path)
    for name in ("b.jsonl", "a.jsonl.gz", "README.md"):
        written(tmp_path, mooncake(), name=name)
    assert [path.name for path in trace_files(tmp_path)] == ["a.jsonl.gz", "b.jsonl"]
    assert trace_files(tmp_path / "b.jsonl") == [tmp_path / "b.jsonl"]


# Statistics of the recorded traces, and how far a drawn one may be from them.
RECORDED = {
    "conversation": (12_035, 6_909, 85_400, 343, 350, 1_119),
    "agentic": (122_379, 103_659, 498_519, 440, 216, 3_686),
}


@pytest.mark.parametrize("kind", list(RECORDED))
def test_drawn_traces_have_the_statistics_of_recorded_ones(kind):
    requests = list(synthetic_traces.KINDS[kind]())
    tokens = np.array([(request.input_tokens, request.output_tokens) for request in requests])
    drawn = [figure for each in tokens.T for figure in (each.mean(), np.median(each), np.percentile(each, 99))]
    assert drawn == pytest.approx(RECORDED[kind], rel=0.2)
    assert all(one.time <= other.time for one, other in itertools.pairwise(requests))


@pytest.mark.parametrize(("kind", "share"), [("conversation", 0.366), ("agentic", 0.963)])
def test_drawn_traces_reuse_as_many_blocks_as_recorded_ones(kind, share):
    trace = synthetic_traces.KINDS[kind]()
    assert trace.reused_share() == pytest.approx(share, abs=0.03)


@pytest.mark.parametrize("trace", [synthetic_traces.conversation(300), synthetic_traces.agentic(5)])
def test_a_reused_block_is_one_that_was_asked_for_before(trace):
    seen: set[int] = set()
    found = asked = 0
    for request in trace:
        asked += len(request.blocks)
        found += sum(block in seen for block in request.blocks)
        seen.update(request.blocks)
    assert trace.reused_share() == pytest.approx(found / asked, rel=1e-12)
    assert sorted(trace.tokens()) == sorted((each.input_tokens, each.output_tokens) for each in trace)


@pytest.mark.parametrize("kind", list(synthetic_traces.KINDS))
def test_a_drawn_trace_can_be_written_as_a_recorded_one(kind, tmp_path):
    trace = synthetic_traces.KINDS[kind](20, seed=3)
    if isinstance(trace, PrefixTrace):
        lines = [
            mooncake(
                timestamp=each.time * 1_000, input_length=each.input_tokens, output_length=each.output_tokens,
                hash_ids=list(each.blocks),
            )
            for each in trace
        ]  # fmt: skip
    else:
        lines = [session(*turns) for turns in trace.sessions]
    read, _ = read_trace(written(tmp_path, *lines))
    # Milliseconds round.
    assert [each._replace(time=round(each.time, 6)) for each in read] == [
        each._replace(time=round(each.time, 6)) for each in trace
    ]


def test_a_seed_draws_one_trace():
    assert list(synthetic_traces.conversation(50, seed=1)) == list(synthetic_traces.conversation(50, seed=1))
    assert list(synthetic_traces.conversation(50, seed=1)) != list(synthetic_traces.conversation(50, seed=2))
