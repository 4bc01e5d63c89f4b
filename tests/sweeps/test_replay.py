"""The replay's command: its arguments and its output."""

import json

import pytest

from benchmarks import synthetic_traces
from sweeps.replay import main


def test_the_command_prints_a_line_an_allocator_and_writes_them(tmp_path, capsys):
    output = tmp_path / "out.json"
    status = main(["--requests", "60", "--allocators", "kvpool_fewest_runs,kvpool_fifo", "--json-output", str(output)])
    printed = capsys.readouterr()
    assert (status, printed.err) == (0, "")
    assert [line.split()[0] for line in printed.out.splitlines()[3:6]] == [
        "allocator",
        "kvpool_fewest_runs",
        "kvpool_fifo",
    ]
    records = json.loads(output.read_text())["records"]
    assert [(each["allocator"], each["requests"]) for each in records] == [
        ("kvpool_fewest_runs", 60),
        ("kvpool_fifo", 60),
    ]
    assert records[0]["miss_rate"] == records[1]["miss_rate"]


def test_the_command_replays_each_trace_of_a_folder_and_says_what_it_skipped(tmp_path, capsys):
    turns = [[0.0, 640, 1, 0, 10], [1.0, 704, 1, 10, 1]]
    record = {"id": "s", "block_size": 64, "tool_tokens": 0, "system_tokens": 0, "requests": turns}
    (tmp_path / "sessions.jsonl").write_text((json.dumps(record) + "\n") * 3)
    (tmp_path / "damaged.jsonl").write_text(json.dumps(record) + "\n" + "{\n" * 7)
    arguments = [str(tmp_path), "--allocators", "kvpool_fifo", "--sessions", "2"]
    with pytest.raises(SystemExit) as error:
        main(arguments)
    assert error.value.code == 2
    assert capsys.readouterr().err == (
        f"python -m benchmarks replay: {tmp_path / 'damaged.jsonl'}, line 2: "
        "not JSON: Expecting property name enclosed in double quotes at column 2\n"
    )
    assert main([*arguments, "--skip-invalid"]) == 0
    printed = capsys.readouterr().out
    assert "damaged.jsonl: 2 requests, 21 blocks of 64 tokens" in printed
    assert "sessions.jsonl: 4 requests, 42 blocks of 64 tokens" in printed
    assert printed.count("skipped: ") == 6
    assert "skipped: 2 more lines of damaged.jsonl" in printed


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["none.jsonl"], "none.jsonl cannot be read: No such file or directory"),
        (["--allocators", "best"], "argument --allocators: unknown name 'best': write some of kvpool_fifo,"),
        (["--requests", "0"], "argument --requests: '0': write a positive integer"),
        (["--max-fill", "1.5"], "argument --max-fill: 1.5: write at most 1"),
        (["--page-size", "48"], "blocks of 512 tokens are not whole pages of 48"),
        (["--json-output", "none/out.json"], "argument --json-output: cannot write 'none/out.json' (No such file"),
        (["none.jsonl", "--synthetic", "agentic"], "argument --synthetic: a trace is named too"),
    ],
)
def test_the_command_explains_what_is_wrong_in_one_line(arguments, reason, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as error:
        main(arguments)
    printed = capsys.readouterr()
    assert (error.value.code, printed.out) == (2, "")
    assert printed.err.startswith(f"python -m benchmarks replay: {reason}")
    assert printed.err.count("\n") == 1


def test_sessions_can_be_limited_in_number_and_in_what_runs_at_a_time(capsys):
    assert main(["--synthetic", "agentic", "--sessions", "2", "--concurrent", "1", "--allocators", "kvpool_pages"]) == 0
    turns = synthetic_traces.agentic(2).sessions
    assert f" {sum(map(len, turns)):,} requests" in capsys.readouterr().out
