"""The token containers' budgets: the hot calls beside what engines use, and the stages of a request's life."""

import statistics
import time
from argparse import Namespace
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch

from benchmarks import bench_token_memory, stages, workloads
from benchmarks.budgets import Line, Measure
from benchmarks.common import book_bytes
from benchmarks.stages import TokenBuffer, TokenTable, match_prefix
from benchmarks.sweep_tokens import measure_stage

TOKENS = 100_000
ROWS = 256
STEPS = 1_000
ROUNDS = 5


def measurements() -> Iterator[Measure]:
    """Yield the measurements; each returns its lines."""
    yield match_lines
    yield append_lines
    yield stage_lines
    yield byte_lines


def median_us(call: Callable[[], object], times: int) -> float:
    """Return the median time of a call in us, each timed as the mean of ten."""
    clock = time.perf_counter
    samples = []
    for _ in range(times):
        start = clock()
        for _ in range(10):
            call()
        samples.append((clock() - start) * 1e5)
    return statistics.median(samples)


def match_lines() -> list[Line]:
    """Compare match_prefix with comparing bytes, over buffers at several places of memory."""
    ids = workloads.token_ids(TOKENS, 0)
    early = ids.copy()
    early[15] += 1
    ratios, early_us, kept = [], [], []
    for place in range(12):
        a, b, differing = (TokenBuffer(tokens, np.int32) for tokens in (ids, ids, early))
        left, right = a.numpy().tobytes(), b.numpy().tobytes()
        assert match_prefix(a, b) == TOKENS
        assert match_prefix(a, differing) == 15
        found, floor = [], []
        for _ in range(10):
            found.append(median_us(lambda a=a, b=b: match_prefix(a, b), 3))
            floor.append(median_us(lambda left=left, right=right: left == right, 3))
        ratios.append(statistics.median(found) / statistics.median(floor))
        early_us.append(median_us(lambda a=a, b=differing: match_prefix(a, b), 50))
        # Moves what is made next.
        kept += [a, b, left, right, bytearray(1_000 + 16 * place)]
    return [
        Line("match_prefix, two int32 TokenBuffers of 100,000 that agree", statistics.median(ratios), 1.5, "x bytes"),
        Line("match_prefix, two that differ in the first 16 tokens", statistics.median(early_us), 1, "us"),
    ]


def append_lines() -> list[Line]:
    """Compare 1,000 decode steps of 256 requests, one call a token and one call a step, with appends to lists."""
    sampled = np.stack([workloads.token_ids(ROWS, 0, step) for step in range(STEPS)])
    rows = workloads.shuffled(ROWS, 0)
    single, whole = [], []
    for _ in range(ROUNDS):
        lists: list[list[int]] = [[] for _ in range(ROWS)]
        buffers = [TokenBuffer() for _ in range(ROWS)]
        table = TokenTable(ROWS, STEPS)
        for _ in range(ROWS):
            table.add(())
        spent = np.zeros(3)
        clock = time.perf_counter
        for ids in sampled:
            tokens = ids.tolist()
            start = clock()
            append_to_lists(lists, tokens)
            lists_done = clock()
            append_to_buffers(buffers, tokens)
            buffers_done = clock()
            table.append(rows, ids)
            end = clock()
            spent += lists_done - start, buffers_done - lists_done, end - buffers_done
        assert buffers[7].tolist() == lists[7] == sampled[:, 7].tolist()
        assert table.row(int(rows[7])).tolist() == lists[7]
        single.append(spent[1] / spent[0])
        whole.append(spent[2] / spent[0])
    return [
        Line("TokenBuffer.append, a token to each of 256 requests", statistics.median(single), 4, "x list"),
        Line("TokenTable.append, 256 rows", statistics.median(whole), 1 / 3, "x list"),
    ]


# Two functions of the same code, so that the interpreter specialises each for what it is given.


def append_to_lists(requests: list[list[int]], tokens: list[int]) -> None:
    """Append one token to each."""
    for request, token in zip(requests, tokens):  # noqa: B905  (as engines write it)
        request.append(token)


def append_to_buffers(requests: list[Any], tokens: list[int]) -> None:
    """Append one token to each."""
    for request, token in zip(requests, tokens):  # noqa: B905
        request.append(token)


def stage_lines() -> list[Line]:
    """Measure the stage table of the sweep: 2 requests, prompts of 10,000 tokens, 1,000 decoded."""
    containers = ["list", "array", "kvpool"]
    batch = workloads.token_batch(2, 10_000, 1_000, 0)
    arguments = Namespace(containers=containers, repeat=100, warmup=5)
    p50 = {
        stage: {
            record["container"]: record["p50"] for record in measure_stage(stage, batch, arguments, torch.device("cpu"))
        }
        for stage in stages.STAGES
    }
    ingest = p50.pop("ingest")
    later = {name: sum(figures[name] for figures in p50.values()) for name in containers}
    lines = [
        Line("stages: ingest", ingest["kvpool"] / ingest["array"], 1.2, "x array"),
        Line("stages: all but ingest, decode by the table", later["kvpool"] / later["list"], 0.1, "x list"),
        Line(
            "stages: all, decode by the table",
            (ingest["kvpool"] + later["kvpool"]) / (ingest["list"] + later["list"]),
            0.25,
            "x list",
        ),
    ]
    for stage, figures in p50.items():
        faster = min(("list", "array"), key=figures.__getitem__)
        lines.append(Line(f"stages: {stage}", figures["kvpool"] / figures[faster], 1.2, f"x {faster}"))
    return lines


def byte_lines() -> list[Line]:
    """Bytes a token of buffers of 10,000, everything counted."""
    lines = []
    for built, factor in (("at_once", 1.0), ("appended", 1.15)):
        for container, budget in (("kvpool", 8.5), ("kvpool_int32", 4.5)):
            build = bench_token_memory.BUILDS[built]
            build(container)

            def held(container: str = container, build: Callable[[str], Any] = build) -> Any:
                return build(container)

            measured = book_bytes(held) / bench_token_memory.TOKENS
            name = {"kvpool": "int64", "kvpool_int32": "int32"}[container]
            lines.append(Line(f"TokenBuffer of 10,000, {name}, {built}", measured, budget * factor, "bytes/token"))
    return lines
