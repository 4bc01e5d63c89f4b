"""The sweeps by hand: their arguments, their figures, their output."""

import contextlib
import functools
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from benchmarks import __main__ as command
from benchmarks import pools, workloads
from sweeps import allocators, common

ROOT = Path(__file__).parents[2]
SMALL = ["--host-pages", "64", "--physical-pages", "32", "--request-pages", "1,8", "--repeat", "3", "--warmup", "1"]


def sweep(*arguments):
    return allocators.main([*SMALL, *arguments])


@functools.cache
def parse(*arguments):
    return allocators.parser().parse_args(arguments)


class TestArguments:
    WRONG = (
        (["--bench", "host,l2"], "'l2'"),
        (["--bench", ""], "empty"),
        (["--bench", "host,,l1"], "empty"),
        (["--patterns", "sorted"], "contiguous_fifo,random_fragmented,fragmented_prefix_later_run"),
        (["--host-methods", "best"], "fifo,contiguous,fewest_runs,floor"),
        (["--l1-ops", "alloc"], "stats,free_room_stats,select_only,alloc_pages,free"),
        (["--l1-selection", "lifo"], "contiguous,fifo"),
        (["--l1-free-patterns", "full"], "sequential,random,owner_fragmented_later_run"),
        (["--l1-owner-patterns", "all"], "round_robin,one_rank,zigzag"),
        (["--page-size", "0"], "positive integer"),
        (["--repeat", "-1"], "positive integer"),
        (["--warmup", "0"], "positive integer"),
        (["--cp-size", "eight"], "positive integer"),
        (["--seed", "-1"], "0 or a positive integer"),
        (["--request-pages", "1,0"], "positive integer"),
        (["--host-pages", "64,"], "empty"),
        (["--host-sizes-gb", "nan"], "positive number"),
        (["--host-sizes-gb", "0.001"], "0.0064"),
        (["--bytes-per-token", "1e5"], "positive integer"),
        (["--physical-pages", ""], "empty"),
        (["--l1-free-room-ratio", "0"], "positive number"),
        (["--l1-free-room-trigger-ratio", "inf"], "positive number"),
        (["--device", "tpu"], "cpu or cuda"),
        (["--json-output", "/no/such/folder/figures.json"], "/no/such/folder"),
        (["--json-output", "."], "path of a file"),
        (["--host-page", "64"], "--help"),
        (["--repeat"], "expected one argument"),
    )

    @pytest.mark.parametrize(("arguments", "said"), WRONG, ids=lambda value: " ".join(value))
    def test_a_wrong_one_is_named_in_one_line_before_anything_runs(self, arguments, said, capsys, monkeypatch):
        monkeypatch.setattr(allocators, "measure", lambda *_: pytest.fail("something ran"))
        with pytest.raises(SystemExit) as stop:
            allocators.main(arguments)
        out, err = capsys.readouterr()
        assert stop.value.code == 2
        assert out == ""
        assert err.count("\n") == 1
        assert said in err
        assert not Path("/no/such").exists()

    @pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
    def test_a_device_that_is_not_there(self, capsys):
        with pytest.raises(SystemExit) as stop:
            sweep("--device", "cuda")
        assert stop.value.code == 2
        assert "write --device cpu" in capsys.readouterr().err

    def test_a_cuda_device_beyond_the_last(self, capsys, monkeypatch):
        monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
        monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
        with pytest.raises(SystemExit) as stop:
            sweep("--device", "cuda", "--cuda-device", "2")
        assert stop.value.code == 2
        assert "write 0 to 1" in capsys.readouterr().err

    def test_an_output_file_that_could_be_written_is_not_left_empty(self, tmp_path):
        new, old = tmp_path / "new.json", tmp_path / "old.json"
        old.write_text("kept")
        common.output_file(str(new))
        common.output_file(str(old))
        assert not new.exists()
        assert old.read_text() == "kept"

    def test_host_pools_by_pages_and_by_size_are_merged_sorted_and_distinct(self):
        assert allocators.host_pages(parse()) == [8_192, 16_384, 32_768]
        assert allocators.host_pages(parse("--host-sizes-gb", "220,0.0128")) == [2, 34_375]
        merged = parse("--host-pages", "34375,10,34375", "--host-sizes-gb", "220,0.0128")
        assert allocators.host_pages(merged) == [2, 10, 34_375]
        assert allocators.host_pages(parse("--host-sizes-gb", "1", "--bytes-per-token", "500")) == [31_250]

    def test_the_defaults_are_the_issue_s(self):
        arguments = parse()
        assert arguments.bench == ["host", "l1"]
        assert (arguments.page_size, arguments.repeat, arguments.warmup, arguments.seed) == (64, 20, 5, 0)
        assert arguments.request_pages == [1, 8, 64, 512]
        assert arguments.patterns == list(workloads.HOST_PATTERNS)
        assert arguments.host_methods == [*pools.HOST_METHODS, "floor"]
        assert (arguments.physical_pages, arguments.cp_size) == ([8_192, 32_768], 8)
        assert (arguments.device, arguments.cuda_device) == ("cpu", 0)
        assert arguments.l1_selection == ["fifo", "contiguous"]
        assert arguments.l1_ops == ["alloc_pages"]
        assert (arguments.l1_free_room_ratio, arguments.l1_free_room_trigger_ratio) == (0.15, 0.05)

    @pytest.mark.parametrize(("arguments", "said"), [([], "''"), (["sweep"], "'sweep'")])
    def test_an_unknown_command(self, arguments, said, capsys):
        assert command.main(arguments) == 2
        err = capsys.readouterr().err
        assert said in err
        assert ", ".join(command.COMMANDS) in err


class TestCommand:
    def test_json_reads_back_into_the_same_table(self, tmp_path):
        path = tmp_path / "figures.json"
        options = ["--request-pages", "1,8,40", "--l1-ops", ",".join(allocators.L1_OPS)]
        run = subprocess.run(
            [sys.executable, "-m", "benchmarks", "allocators", *SMALL, *options, "--json-output", str(path)],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=True,
        )
        document = json.loads(path.read_text())
        assert run.stderr == "", "a progress bar in a pipe"
        assert run.stdout.splitlines() == allocators.table(document)
        assert len(document["records"]) + len(document["skipped"]) == 3 * 3 * 4 + 3 * 3 * 3 * 5 * 2
        assert run.stdout.splitlines()[-1].startswith("skipped: l1 ")
        assert document["arguments"]["request_pages"] == [1, 8, 40]

    def test_every_record_holds_its_case_and_its_figures(self, tmp_path):
        path = tmp_path / "figures.json"
        assert sweep("--bench", "host", "--host-methods", "fewest_runs", "--json-output", str(path)) == 0
        for record in json.loads(path.read_text())["records"]:
            assert record["bench"] == "host"
            assert record["method"] == "fewest_runs"
            assert (record["pages"], record["page_size"], record["repeat"]) == (64, 64, 3)
            assert 0 < record["min"] <= record["p50"] <= record["p95"] <= record["p99"] <= record["max"]
            assert record["min"] <= record["mean"] <= record["max"]
            assert record["contiguous_share"] == 1

    def test_what_does_not_fit_is_skipped_and_named_at_the_end(self, capsys):
        assert sweep("--request-pages", "8,40,65", "--host-methods", "fifo", "--bench", "host") == 0
        lines = capsys.readouterr().out.splitlines()
        assert [line.startswith("host") for line in lines] == [False] + [True] * 5 + [False] * 4
        skipped = [line for line in lines if line.startswith("skipped: ")]
        assert len(skipped) == 4
        assert "fragmented_prefix_later_run, 64 pages, request 40" in skipped[0]

    def test_a_lane_that_is_short_is_skipped(self, capsys):
        assert sweep("--bench", "l1", "--request-pages", "17", "--l1-ops", "alloc_pages,free,stats") == 0
        out = capsys.readouterr().out
        # Half of a lane of 32 is 16 pages: one rank cannot have 17 of a random half.
        assert "skipped: l1 alloc_pages fifo random one_rank" in out
        assert "skipped: l1 free fifo random one_rank" in out

    def test_a_kvpool_without_an_allocator_is_named(self, capsys, monkeypatch):
        monkeypatch.setattr(pools, "OwnerLaneAllocator", None)
        assert sweep("--bench", "l1") == 0
        assert "this kvpool has no OwnerLaneAllocator" in capsys.readouterr().out

    @pytest.mark.skipif(sys.platform == "win32", reason="there is no pseudo-terminal")
    def test_a_terminal_has_a_progress_bar(self, monkeypatch, capsys):
        import pty
        import termios

        leader, follower = pty.openpty()
        termios.tcsetwinsize(follower, (24, 80))
        with os.fdopen(follower, "w") as terminal:
            monkeypatch.setattr(sys, "stderr", terminal)
            progress = common.Progress(4)
            progress.set_description_str("first case")
            progress.line("a figure")
            progress.update()
            progress.set_description_str("second case")
            progress.close()
        shown = ""
        with contextlib.suppress(OSError):  # Linux ends a terminal without a writer by an error.
            while part := os.read(leader, 10_000).decode():
                shown += part
        os.close(leader)
        assert capsys.readouterr().out == "a figure\n"
        assert "first case" in shown
        assert "1/4" in shown
        assert "second case" in shown


class TestFigures:
    def test_percentiles_are_linear_in_the_rank(self):
        samples = [float(value) for value in range(20, 0, -1)]
        found = common.summary(samples)
        assert found == pytest.approx(
            {"mean": 10.5, "p50": 10.5, "p95": 1 + 19 * 0.95, "p99": 1 + 19 * 0.99, "min": 1, "max": 20}
        )

    @pytest.mark.parametrize(
        ("pattern", "method", "share"),
        [
            ("contiguous_fifo", "fifo", 1),
            ("random_fragmented", "fifo", 0),
            ("fragmented_prefix_later_run", "fifo", 0),
            ("fragmented_prefix_later_run", "contiguous", 1),
            ("random_fragmented", "fewest_runs", 1),
            ("random_fragmented", "floor", 1),
        ],
    )
    def test_contiguous_share_of_the_host(self, pattern, method, share):
        case = allocators.Case("host", method, "", pattern, "", "cpu", 64, 8, 64)
        assert allocators.measure(case, parse(*SMALL))["contiguous_share"] == share

    @pytest.mark.parametrize(
        ("op", "pattern", "selection", "share"),
        [
            ("alloc_pages", "sequential", "fifo", 1),
            ("alloc_pages", "owner_fragmented_later_run", "fifo", 0),
            ("alloc_pages", "owner_fragmented_later_run", "contiguous", 1),
            ("select_only", "owner_fragmented_later_run", "fifo", 0),
            ("select_only", "owner_fragmented_later_run", "contiguous", 1),
            ("free", "owner_fragmented_later_run", "fifo", 0),
            ("free", "owner_fragmented_later_run", "contiguous", 1),
            ("stats", "sequential", "fifo", None),
            ("free_room_stats", "sequential", "fifo", None),
        ],
    )
    def test_contiguous_share_of_the_lanes(self, op, pattern, selection, share):
        case = allocators.Case("l1", op, selection, pattern, "round_robin", "cpu", 64, 32, 64)
        assert allocators.measure(case, parse(*SMALL))["contiguous_share"] == share

    def test_each_sample_starts_from_the_state_of_the_pattern(self):
        case = allocators.Case("host", "contiguous", "", "fragmented_prefix_later_run", "", "cpu", 64, 8, 64)
        prepared = allocators.prepare(case, parse(*SMALL))
        results = [prepared.call(prepared.prepare()).tolist() for _ in range(3)]
        assert results[0] == results[1] == results[2] == list(range(8 * 64))
        case = allocators.Case("host", "fifo", "", "fragmented_prefix_later_run", "", "cpu", 64, 8, 64)
        prepared = allocators.prepare(case, parse(*SMALL))
        for _ in range(2):
            slots = prepared.call(prepared.prepare())
            order = workloads.fragmented_prefix_later_run(64, 8, 0)
            assert np.array_equal(allocators.pages_of(slots, 64), order[:8])

    def test_lanes_start_from_their_free_set(self):
        pool = pools.lane_pool(32, 64, 3, "fifo")
        owners = workloads.round_robin(9, 3)
        pools.arrange_lanes(pool, "owner_fragmented_later_run", owners, 0)
        free = np.array([*range(0, 8, 2), 9, 10, 11, *range(14, 32, 2)])
        expected = sorted(int(index) * 3 + rank + 1 for index in free for rank in range(3))
        assert sorted(pool.free_pages.tolist()) == expected
