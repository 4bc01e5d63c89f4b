"""The token containers' budgets: the hot calls beside what engines use, and the stages of a request's life."""

import statistics
import time
import timeit
from argparse import Namespace
from array import array
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from benchmarks import bench_token_memory, common, stages, token_calls, workloads
from benchmarks.common import book_bytes
from kvpool import TokenBuffer, TokenTable, match_prefix
from sweeps.budgets import Line, Measure
from sweeps.tokens import measure_stage

TOKENS = 100_000
ROWS = 256
STEPS = 1_000
ROUNDS = 5


def measurements() -> Iterator[Measure]:
    """Yield the measurements; each returns its lines."""
    yield match_lines
    yield append_lines
    yield table_lines
    yield build_lines
    yield call_lines
    yield row_lines
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
    ratios, early_ratios, kept = [], [], []
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
        parted, page = [], []
        for _ in range(10):
            parted.append(median_us(lambda a=a, b=differing: match_prefix(a, b), 20))
            page.append(median_us(lambda: common.floor(64), 20))
        early_ratios.append(statistics.median(parted) / statistics.median(page))
        # Moves what is made next.
        kept += [a, b, left, right, bytearray(1_000 + 16 * place)]
    return [
        Line("match_prefix, two int32 TokenBuffers of 100,000 that agree", statistics.median(ratios), 1.1, "x bytes"),
        Line(
            "match_prefix, two that differ in the first 16 tokens", statistics.median(early_ratios), 0.1, "x floor(1)"
        ),
    ]


def append_lines() -> list[Line]:
    """Compare 1,000 decode steps of 256 requests with appends to lists, and calls alone with an array's."""
    sampled = np.stack([workloads.token_ids(ROWS, 0, step) for step in range(STEPS)])
    ratios = []
    for _ in range(ROUNDS):
        lists: list[list[int]] = [[] for _ in range(ROWS)]
        buffers = [TokenBuffer() for _ in range(ROWS)]
        spent = np.zeros(2)
        clock = time.perf_counter
        for ids in sampled:
            tokens = ids.tolist()
            start = clock()
            append_to_lists(lists, tokens)
            middle = clock()
            append_to_buffers(buffers, tokens)
            spent += middle - start, clock() - middle
        assert buffers[7].tolist() == lists[7] == sampled[:, 7].tolist()
        ratios.append(spent[1] / spent[0])
    ours, theirs = [], []
    for _ in range(ROWS):
        for figures, append in ((ours, TokenBuffer().append), (theirs, array("q").append)):
            figures.append(timeit.timeit("append(70_000)", globals={"append": append}, number=STEPS))
    return [
        Line("TokenBuffer.append, a token to each of 256 requests", statistics.median(ratios), 2, "x list"),
        Line("TokenBuffer.append, 1,000 in a row", statistics.median(ours) / statistics.median(theirs), 0.5, "x array"),
    ]


KINDS: dict[str, Callable[[npt.NDArray[np.int64]], Any]] = {
    "int64 ndarrays": lambda values: values,
    "int32 ndarrays": lambda values: values.astype(np.int32),
    "int64 tensors": torch.from_numpy,
    "int32 tensors": lambda values: torch.from_numpy(values.astype(np.int32)),
}


def table_lines() -> list[Line]:
    """Compare 1,000 decode steps of 256 requests, one call a step, with 256 appends to lists."""
    sampled = np.stack([workloads.token_ids(ROWS, 0, step) for step in range(STEPS)]).astype(np.int64)
    rows = workloads.shuffled(ROWS, 0)
    lines = []
    for kind, convert in KINDS.items():
        numbers = convert(rows)
        ratios = []
        for _ in range(ROUNDS):
            lists: list[list[int]] = [[] for _ in range(ROWS)]
            table = TokenTable(ROWS, STEPS)
            for _ in range(ROWS):
                table.add(())
            spent = np.zeros(2)
            clock = time.perf_counter
            for ids in sampled:
                # Fresh, as from a sampler.
                tokens, step = ids.tolist(), convert(ids)
                start = clock()
                append_to_lists(lists, tokens)
                middle = clock()
                table.append(numbers, step)
                spent += middle - start, clock() - middle
            assert table.row(int(rows[7])).tolist() == lists[7]
            ratios.append(spent[1] / spent[0])
        lines.append(Line(f"TokenTable.append, 256 rows, {kind}", statistics.median(ratios), 1 / 6, "x list"))
    return lines


def build_lines() -> list[Line]:
    """Compare a buffer of a list of 10,000 tokens with an array of it."""
    tokens = workloads.token_ids(10_000, 0).tolist()
    ours, theirs = [], []
    for _ in range(30):
        ours.append(median_us(lambda: TokenBuffer(tokens), 3))
        theirs.append(median_us(lambda: array("q", tokens), 3))
    measured = statistics.median(ours) / statistics.median(theirs)
    return [Line("TokenBuffer of a list of 10,000", measured, 0.4, "x array")]


def ratio(ours: Callable[[], object], theirs: Callable[[], object]) -> float:
    """Return how much longer one call takes than another, called in turn."""
    found, floor = [], []
    for _ in range(30):
        found.append(timeit.timeit(ours, number=3))
        floor.append(timeit.timeit(theirs, number=3))
    return statistics.median(found) / statistics.median(floor)


def call_lines() -> list[Line]:
    """Compare parts as lists, drafts that are taken back, and matches from a known start, with the cheapest ways."""
    lines = []
    for tokens, budget in ((16, 1.0), (1_000, 1.2)):
        part = token_calls.KvpoolParts(tokens)
        array = part.request.fill_ids[part.start : part.stop]
        measured = ratio(part.listed, lambda array=array: [array.tolist() for _ in range(token_calls.REPEATS)])
        lines.append(Line(f"RequestTokens.tolist of {tokens:,} tokens", measured, budget, "x ndarray"))
    measured = ratio(token_calls.KvpoolDrafts().steps, token_calls.ListDrafts().steps)
    lines.append(Line("RequestTokens, five tokens drafted and three taken back", measured, 2, "x list"))
    measured = ratio(token_calls.KvpoolMatches(TOKENS).matched, token_calls.FloorMatches(TOKENS).matched)
    lines.append(Line("match_prefix, the last tenth of 100,000 int64", measured, 1.2, "x bytes"))
    return lines


ROW_BUDGETS = {"add_at": 0.7, "write": 0.5, "swap": 0.4, "move": 0.4, "row": 0.8, "tensor": 2}


def row_lines() -> list[Line]:
    """Compare the calls of a table's rows with an ndarray's, which check nothing."""
    lines = []
    for name, budget in ROW_BUDGETS.items():
        ours, theirs = token_calls.KvpoolRows(), token_calls.FloorRows()
        measured = ratio(getattr(ours, name), getattr(theirs, name))
        lines.append(Line(f"TokenTable.{name}, 256 rows", measured, budget, "x ndarray"))
    return lines


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
