"""The stages of a request's life: that every container comes to the same result, and by the work that is named."""

import subprocess
import sys
from array import array
from pathlib import Path

import numpy as np
import pytest
import torch

from benchmarks import stages, workloads

ROOT = Path(__file__).parents[2]
BATCH = workloads.token_batch(3, 100, 20, 7)
WHOLE = np.concatenate(BATCH, axis=1)
CACHED = 90
COMMITTED = 119
EXPECTED = {
    "ingest": BATCH.prompts.tolist(),
    "prefix_match": [100] * 3 + [CACHED] * 3,
    "prefill_concat": WHOLE.tolist(),
    "prefill_perreq_slice": WHOLE[:, CACHED:].tolist(),
    "batch_torch_tensor": WHOLE.ravel().tolist(),
    "finish_concat": WHOLE[:, :COMMITTED].tolist(),
    "cache_finished_req": [COMMITTED] * 3,
}

every_container = pytest.mark.parametrize("name", stages.CONTAINERS)


def plain(result):
    """A result as Python ints and lists, whatever holds it."""
    if isinstance(result, torch.Tensor):
        assert result.dtype == torch.int64
        return result.tolist()
    return [getattr(each, "fill_ids", each) for each in result]


def container(name, stage):
    held = stages.CONTAINERS[name](BATCH, "cpu")
    held.prepare(stage)
    return held


@every_container
@pytest.mark.parametrize("stage", EXPECTED)
def test_every_container_comes_to_the_same_result_again_and_again(name, stage):
    held = container(name, stage)
    for _ in range(2):
        result = plain(getattr(held, stage)())
        assert [each if isinstance(each, int) else list(each) for each in result] == EXPECTED[stage]


@every_container
def test_every_container_decodes_the_same_tokens(name):
    held = container(name, "decode_append")
    for _ in range(2):
        result = held.decode_append()
        if name == "kvpool":
            outputs = [result.row(row).tolist() for row in held.rows]
        else:
            outputs = [list(request.output) for request in result]
            assert [list(request.origin) for request in result] == BATCH.prompts.tolist()
        assert outputs == BATCH.decoded.tolist()
        held.rewind()


@every_container
def test_a_stage_finds_made_what_it_takes(name, monkeypatch):
    for stage in stages.STAGES:
        held = container(name, stage)
        monkeypatch.setattr(held, "key", lambda tokens: pytest.fail("a key was made on the clock"))
        monkeypatch.setattr(held, "request", lambda *tokens: pytest.fail("a request was made on the clock"))
        before = set(vars(held))
        getattr(held, stage)()
        assert set(vars(held)) == before


@every_container
def test_keys_share_no_memory_with_what_is_matched(name):
    held = container(name, "prefix_match")
    if name == "list":
        for request, key in zip(held.requests, held.equal_keys, strict=True):
            assert request.origin is not key
            big = [(a, b) for a, b in zip(request.origin, key, strict=True) if a > 256]
            assert not any(a is b for a, b in big)
    else:
        for request, key in zip(held.requests, held.equal_keys, strict=True):
            assert not np.shares_memory(np.asarray(request.origin), np.asarray(key))


def test_engines_hold_tokens_in_lists_and_arrays():
    assert type(container("list", "ingest").ingest()[0]) is list
    for name in ("array", "array_slices"):
        held = container(name, "prefix_match")
        assert isinstance(held.requests[0].origin, array)
        assert held.requests[0].origin.typecode == held.equal_keys[0].typecode == "q"
    held = container("list", "ingest")
    assert held.ingest()[0] is held.prompts[0]


def test_the_floor_comes_to_the_same_result():
    held = stages.Floor(BATCH, "cpu")
    for stage in ("prefix_match", "batch_torch_tensor"):
        held.prepare(stage)
    assert held.prefix_match() == [True] * 3 + [False] * 3
    assert held.batch_torch_tensor().tolist() == EXPECTED["batch_torch_tensor"]


@pytest.mark.parametrize("compare", [stages.walk, stages.doubling])
def test_comparisons_agree_with_a_search(compare):
    tokens = array("q", range(200))
    for place in range(200):
        other = tokens[:]
        other[place] = -1
        assert compare(tokens, other) == compare(other, tokens) == place
        assert compare(tokens, tokens[:place]) == compare(tokens[:place], tokens) == place
    assert compare(tokens, tokens[:]) == 200
    assert compare(tokens[:0], tokens) == 0


@pytest.mark.parametrize("road", stages.CONVERSIONS)
def test_every_conversion_leads_to_the_same_tensor(road):
    held_in, convert = stages.CONVERSIONS[road]
    held = held_in([5, 6, 2**40])
    result = convert(held, torch.device("cpu"))
    assert result.dtype == torch.int64
    assert result.tolist() == [5, 6, 2**40]
    held[0] = 9
    assert (result[0] == 9) == (road == "buffer")


def test_a_kvpool_without_containers_is_named(monkeypatch):
    monkeypatch.setattr(stages, "TokenTable", None)
    for name in ("kvpool", "kvpool_single"):
        with pytest.raises(NotImplementedError, match="this kvpool has no TokenTable"):
            stages.CONTAINERS[name](BATCH, "cpu")
    assert container("list", "ingest").ingest() == BATCH.prompts.tolist()


def test_token_ids_are_of_the_vocabulary_and_follow_their_seed():
    tokens = workloads.token_ids(10_000, 3, 1)
    assert tokens.dtype == np.int64
    assert tokens.min() >= 0
    assert workloads.VOCABULARY * 0.99 < tokens.max() < workloads.VOCABULARY
    assert np.array_equal(tokens, workloads.token_ids(10_000, 3, 1))
    assert not np.array_equal(tokens, workloads.token_ids(10_000, 3, 2))
    assert not np.array_equal(BATCH.prompts[0], BATCH.prompts[1])


@pytest.mark.parametrize("length", [1, 9, 10, 1_000])
def test_the_other_key_differs_after_nine_tenths(length):
    tokens = workloads.token_ids(length, 0)
    other = workloads.differing_at_nine_tenths(tokens)
    assert np.flatnonzero(tokens != other).tolist() == [length * 9 // 10]
    assert other.max() < workloads.VOCABULARY


# Runs in a process of its own: the suite imports kvpool once.
WITHOUT_CONTAINERS = """
import math, sys, types
sys.modules["kvpool"] = types.ModuleType("kvpool")
from asv_runner.discovery import disc_benchmarks, get_benchmark_from_name
for benchmark in disc_benchmarks("benchmarks"):
    if benchmark.name.startswith("bench_tok") and "Cuda" not in benchmark.name:
        for index in range(len(benchmark._params[-1])):
            benchmark = get_benchmark_from_name("benchmarks", f"{benchmark.name.split('-')[0]}-{index}")
            print(benchmark.name, benchmark._current_params[-1], benchmark.do_setup())
"""


def test_a_kvpool_without_containers_reads_not_applicable_and_the_others_are_measured():
    output = subprocess.run(
        [sys.executable, "-c", WITHOUT_CONTAINERS], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    lines = [line.split() for line in output.splitlines() if line.startswith("bench_tok")]
    assert len(lines) > 30
    for name, held_in, skipped in lines:
        assert skipped == str(held_in.startswith("kvpool")), name
