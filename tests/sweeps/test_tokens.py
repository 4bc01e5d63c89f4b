"""The sweep of the token containers: its arguments, its figures, its output."""

import itertools
import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from benchmarks import stages, workloads
from sweeps import tokens as sweep_tokens

ROOT = Path(__file__).parents[2]
SMALL = ["--prompt-tokens", "300,200", "--decode-tokens", "3", "--repeat", "7", "--warmup", "1"]


def parse(*arguments):
    return sweep_tokens.parser().parse_args(arguments)


class TestArguments:
    WRONG = (
        (["--prompt-tokens", ""], "empty"),
        (["--prompt-tokens", "1000,0"], "positive integer"),
        (["--prompt-tokens", "10k"], "positive integer"),
        (["--decode-tokens", "0"], "positive integer"),
        (["--requests", "-2"], "positive integer"),
        (["--containers", "list,deque"], "list,array,array_slices,kvpool,kvpool_single"),
        (["--containers", ""], "empty"),
        (["--containers", "list,,array"], "empty"),
        (["--repeat", "0"], "positive integer"),
        (["--repeat", "1.5"], "positive integer"),
        (["--warmup", "0"], "positive integer"),
        (["--seed", "-1"], "0 or a positive integer"),
        (["--device", "tpu"], "cpu or cuda"),
        (["--json-output", "/no/such/folder/figures.json"], "/no/such/folder"),
        (["--json-output", "."], "path of a file"),
        (["--prompt", "64"], "--help"),
        (["--seed"], "expected one argument"),
    )

    @pytest.mark.parametrize(("arguments", "said"), WRONG, ids=lambda value: " ".join(value))
    def test_a_wrong_one_is_named_in_one_line_before_anything_runs(self, arguments, said, capsys, monkeypatch):
        monkeypatch.setattr(sweep_tokens, "take_turns", lambda *_: pytest.fail("something ran"))
        with pytest.raises(SystemExit) as stop:
            sweep_tokens.main(arguments)
        out, err = capsys.readouterr()
        assert stop.value.code == 2
        assert out == ""
        assert err.count("\n") == 1
        assert said in err

    @pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
    def test_a_device_that_is_not_there(self, capsys):
        with pytest.raises(SystemExit) as stop:
            sweep_tokens.main([*SMALL, "--device", "cuda"])
        assert stop.value.code == 2
        assert "write --device cpu" in capsys.readouterr().err

    def test_a_container_that_is_not_there(self, capsys, monkeypatch):
        monkeypatch.setattr(stages, "match_prefix", None)
        with pytest.raises(SystemExit) as stop:
            sweep_tokens.main(SMALL)
        out, err = capsys.readouterr()
        assert stop.value.code == 2
        assert out == ""
        assert err.count("\n") == 1
        assert "kvpool is not there (this kvpool has no match_prefix): write others" in err

    def test_the_defaults_are_the_issue_s(self):
        arguments = parse()
        assert arguments.prompt_tokens == [1_000, 10_000, 100_000]
        assert (arguments.decode_tokens, arguments.requests) == (1_000, 2)
        assert arguments.containers == ["list", "array", "kvpool"]
        assert (arguments.device, arguments.cuda_device) == ("cpu", 0)
        assert (arguments.warmup, arguments.seed) == (5, 0)
        assert arguments.repeat is None
        assert [sweep_tokens.samples_of(tokens) for tokens in arguments.prompt_tokens] == [1_000, 200, 30]
        assert [sweep_tokens.iterations_of(tokens) for tokens in (10, *arguments.prompt_tokens)] == [
            20_000,
            200,
            50,
            50,
        ]


class TestCommand:
    def test_json_reads_back_into_the_same_table(self, tmp_path):
        path = tmp_path / "figures.json"
        options = ["--containers", "array,kvpool_single,kvpool", "--json-output", str(path)]
        run = subprocess.run(
            [sys.executable, "-m", "benchmarks", "tokens", *SMALL, *options],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=True,
        )
        document = json.loads(path.read_text())
        assert run.stderr == "", "a progress bar in a pipe"
        assert run.stdout.splitlines() == sweep_tokens.table(document)
        assert document["arguments"]["containers"] == ["array", "kvpool_single", "kvpool"]
        assert len(document["stages"]) == 2 * 8 * 3
        assert len(document["conversions"]) == 2 * 3

    def test_every_record_holds_its_case_and_its_figures(self, tmp_path, capsys):
        path = tmp_path / "figures.json"
        assert sweep_tokens.main([*SMALL, "--json-output", str(path)]) == 0
        document = json.loads(path.read_text())
        assert [record["stage"] for record in document["stages"][:24:3]] == list(stages.STAGES)
        for record in document["stages"] + document["conversions"]:
            assert record["repeat"] == 7 or record["repeat"] == sweep_tokens.iterations_of(record["tokens"])
            assert 0 < record["min"] <= record["p50"] <= record["p95"] <= record["p99"] <= record["max"]
            assert record["min"] <= record["mean"] <= record["max"]
        assert {record["prompt_tokens"] for record in document["stages"]} == {200, 300}
        lines = capsys.readouterr().out.splitlines()
        assert [line for line in lines if line.startswith("prompts of ")] == [
            f"prompts of {tokens} tokens, 3 decoded, 2 requests, cpu, mean of 7: us a batch" for tokens in (300, 200)
        ]
        verdicts = [line for line in lines if " WINS over list by " in line or " LOSES to list by " in line]
        assert len(verdicts) == 2 * 2

    def test_one_container_is_compared_with_none(self, capsys):
        assert sweep_tokens.main([*SMALL, "--containers", "kvpool"]) == 0
        out = capsys.readouterr().out
        assert "WINS" not in out
        assert "LOSES" not in out

    def test_what_is_printed_is_of_the_records(self):
        records = [
            {"prompt_tokens": 30, "stage": stage, "repeat": 7, "container": container, "mean": mean}
            for stage in stages.STAGES
            for container, mean in (("list", 10.0), ("array", 12.5), ("kvpool", 0.5))
        ]
        converted = [{"tokens": 30, "repeat": 50, "road": name, "mean": 1.25} for name in stages.CONVERSIONS]
        given = {"containers": ["list", "array", "kvpool"], "decode_tokens": 3, "requests": 2, "device": "cpu"}
        lines = sweep_tokens.table({"arguments": given, "stages": records, "conversions": converted})
        assert lines[1].split() == ["stage", "list", "array", "-", "list", "kvpool", "-", "list"]
        assert lines[2].split() == ["ingest", "10.00", "12.50", "+2.50", "0.50", "-9.50"]
        assert lines[10].split() == ["TOTAL", "80.00", "100.00", "+20.00", "4.00", "-76.00"]
        assert lines[11] == "array LOSES to list by 20.00 us: 1.25 times as slow"
        assert lines[12] == "kvpool WINS over list by 76.00 us: 20.00 times as fast"
        assert lines[-1].split() == ["30", "50", "1.25", "1.25", "1.25"]
        assert len({len(line) for line in lines[1:11]}) == 1, "columns do not line up"


class TestTurns:
    def test_all_take_turns_and_the_warmup_is_not_sampled(self):
        made = []
        calls = {name: lambda name=name: made.append(name) for name in "ab"}
        before = {name: lambda name=name: made.append(f"before {name}") for name in "ab"}
        samples = sweep_tokens.take_turns(calls, 25, 2, before, lambda: made.append("after"))
        assert {name: len(found) for name, found in samples.items()} == {"a": 25, "b": 25}
        called = [each for each in made if each in "ab"]
        assert len(called) == 2 * (25 + 10 * 2)
        assert made[:3] == ["before a", "a", "after"]
        changes = sum(one != other for one, other in itertools.pairwise(called))
        assert changes == 2 * sweep_tokens.TURNS - 1

    def test_fewer_samples_than_turns(self):
        samples = sweep_tokens.take_turns({"a": int}, 3, 1, {"a": int}, int)
        assert len(samples["a"]) == 3

    def test_only_the_call_is_on_the_clock(self, monkeypatch):
        now = [0.0]

        def passing(seconds):
            def spend():
                now[0] += seconds

            return spend

        monkeypatch.setattr(sweep_tokens.time, "perf_counter", lambda: now[0])
        samples = sweep_tokens.take_turns({"a": passing(2e-6)}, 4, 1, {"a": passing(5)}, passing(7))
        assert samples["a"] == pytest.approx([2] * 4, rel=1e-3)

    def test_decoding_starts_from_requests_without_output(self, monkeypatch):
        seen = []
        original = stages.Lists.decode_append

        def decode(self):
            seen.append([len(request.output) for request in self.decoding])
            return original(self)

        monkeypatch.setattr(stages.Lists, "decode_append", decode)
        batch = workloads.token_batch(2, 10, 3, 0)
        arguments = parse(*SMALL, "--containers", "list")
        records = sweep_tokens.measure_stage("decode_append", batch, arguments, torch.device("cpu"))
        assert seen == [[0, 0]] * (7 + 7 * 1)
        assert records[0]["repeat"] == 7
