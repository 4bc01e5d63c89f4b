"""`python -m benchmarks tokens`: the stages of a request's life at any size, a table for each length of prompt.

A figure is the mean time of a stage for a whole batch. Left out are what the stage finds made and dropping its result.
The containers take turns at each stage, so that a machine that is slow for a while is slow for all of them.
"""

import functools
import gc
import itertools
import time
from argparse import Namespace
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import torch

from benchmarks import stages, workloads
from sweeps import peer_stages
from sweeps.common import (
    Parser,
    Progress,
    add_device,
    index,
    names,
    output_file,
    positive_int,
    positive_ints,
    summary,
    torch_device,
    write_json,
)

CONTAINERS = stages.CONTAINERS | peer_stages.CONTAINERS
DEFAULT_CONTAINERS = "list,array,kvpool"
TURNS = 10
Records = list[dict[str, Any]]


def parser() -> Parser:
    """Return the parser of the command's arguments."""
    result = Parser("tokens", "Time the token containers over the life of a request: mean us a batch.")
    add = result.add_argument
    add("--prompt-tokens", type=positive_ints, default="1000,10000,100000", help="tokens of a prompt")
    add("--decode-tokens", type=positive_int, default=1_000, help="tokens decoded for each request")
    add("--requests", type=positive_int, default=2, help="requests of a batch")
    add("--containers", type=names(*CONTAINERS), default=DEFAULT_CONTAINERS, help="the first is compared with")
    add_device(result)
    add("--repeat", type=positive_int, help="samples of a stage (1000, 200 or 30, fewer for longer prompts)")
    add("--warmup", type=positive_int, default=5, help="calls before the samples, at every turn of a container")
    add("--seed", type=index, default=0, help="of the tokens")
    add("--json-output", type=output_file, metavar="FILE", help="write all figures there as well")
    return result


def samples_of(prompt_tokens: int) -> int:
    """Return how many samples a stage takes unless told."""
    return 1_000 if prompt_tokens <= 1_000 else 200 if prompt_tokens <= 10_000 else 30


def iterations_of(tokens: int) -> int:
    """Return how many samples a conversion takes."""
    return max(50, 200_000 // tokens)


def take_turns(
    calls: dict[str, Callable[[], Any]],
    repeat: int,
    warmup: int,
    before: dict[str, Callable[[], Any]],
    after: Callable[[], Any],
) -> dict[str, list[float]]:
    """Time each call `repeat` times, in turns; return the samples in us. `before` and `after` it the clock stands."""
    clock = time.perf_counter
    samples: dict[str, list[float]] = {name: [] for name in calls}
    turns = min(TURNS, repeat)
    gc.collect()
    gc.disable()
    try:
        for turn in range(turns):
            so_many = repeat * (turn + 1) // turns - repeat * turn // turns
            for name, call in calls.items():
                for sample in range(-warmup, so_many):
                    before[name]()
                    start = clock()
                    result = call()
                    elapsed = clock() - start
                    after()
                    del result
                    if sample >= 0:
                        samples[name].append(elapsed * 1e6)
    finally:
        gc.enable()
    return samples


def synchronizer(device: torch.device) -> Callable[[], Any]:
    """Return what waits for a device, so that issuing one call is not timed with the work of the one before."""
    return functools.partial(torch.cuda.synchronize, device) if device.type == "cuda" else lambda: None


def measure_stage(stage: str, batch: workloads.TokenBatch, arguments: Namespace, device: torch.device) -> Records:
    """Measure a stage for each container; NotImplementedError where kvpool lacks one."""
    held = {name: CONTAINERS[name](batch, str(device)) for name in arguments.containers}
    for container in held.values():
        container.prepare(stage)
    repeat = arguments.repeat or samples_of(batch.prompts.shape[1])
    samples = take_turns(
        {name: getattr(container, stage) for name, container in held.items()},
        repeat,
        arguments.warmup,
        {name: container.rewind if stage == "decode_append" else _nothing for name, container in held.items()},
        synchronizer(device),
    )
    case = {"prompt_tokens": batch.prompts.shape[1], "stage": stage, "repeat": repeat}
    return [case | {"container": name} | summary(found) for name, found in samples.items()]


def measure_conversions(tokens: int, arguments: Namespace, device: torch.device) -> Records:
    """Measure the conversions from tokens in host memory to a tensor on the device."""
    ids = workloads.token_ids(tokens, arguments.seed).tolist()
    calls = {
        road: functools.partial(convert, held_in(ids), device)
        for road, (held_in, convert) in stages.CONVERSIONS.items()
    }
    repeat = iterations_of(tokens)
    samples = take_turns(calls, repeat, arguments.warmup, dict.fromkeys(calls, _nothing), synchronizer(device))
    case = {"tokens": tokens, "repeat": repeat}
    return [case | {"road": name} | summary(found) for name, found in samples.items()]


def _nothing() -> None:
    pass


def title(given: dict[str, Any], prompt_tokens: int, repeat: int) -> str:
    """Return the line above a table."""
    return (
        f"prompts of {prompt_tokens} tokens, {given['decode_tokens']} decoded, {given['requests']} requests, "
        f"{given['device']}, mean of {repeat}: us a batch"
    )


def heading(containers: Sequence[str]) -> str:
    """Return the heading of a table: a column a container, and what it differs by from the first."""
    return _row("stage", _titles(containers))


def row(name: str, means: dict[str, float]) -> str:
    """Return a line of a table."""
    first, *others = means.values()
    figures = [f"{first:.2f}"]
    for mean in others:
        figures += [f"{mean:.2f}", f"{mean - first:+.2f}"]
    widths = [len(each) for each in _titles(list(means))]
    return _row(name, [f"{figure:>{width}}" for figure, width in zip(figures, widths, strict=True)])


def verdicts(totals: dict[str, float]) -> list[str]:
    """Return for each container but the first whether it wins over that, by how much and by what factor."""
    (first, base), *others = totals.items()
    lines = []
    for name, total in others:
        if total <= base:
            lines.append(f"{name} WINS over {first} by {base - total:.2f} us: {base / total:.2f} times as fast")
        else:
            lines.append(f"{name} LOSES to {first} by {total - base:.2f} us: {total / base:.2f} times as slow")
    return lines


def conversions_heading() -> list[str]:
    """Return the lines above the conversions."""
    return [
        "from host memory to a tensor: us a conversion",
        f"{'tokens':>8} {'mean of':>8}" + "".join(f"{name:>13}" for name in stages.CONVERSIONS),
    ]


def conversions_row(records: Records) -> str:
    """Return the line of a number of tokens."""
    means = "".join(f"{record['mean']:13.2f}" for record in records)
    return f"{records[0]['tokens']:8} {records[0]['repeat']:8}" + means


def stage_lines(given: dict[str, Any], by_stage: Iterable[Records]) -> Iterator[str]:
    """Yield the lines of a table from the records of each stage, as they come in."""
    totals = dict.fromkeys(given["containers"], 0.0)
    for number, records in enumerate(by_stage):
        if number == 0:
            yield title(given, records[0]["prompt_tokens"], records[0]["repeat"])
            yield heading(given["containers"])
        means = {record["container"]: record["mean"] for record in records}
        totals = {name: totals[name] + mean for name, mean in means.items()}
        yield row(records[0]["stage"], means)
    yield row("TOTAL", totals)
    yield from verdicts(totals)
    yield ""


def table(document: dict[str, Any]) -> list[str]:
    """Return the lines that a run printed, from the document that it wrote."""
    given = document["arguments"]
    lines: list[str] = []
    for _, records in itertools.groupby(document["stages"], lambda record: record["prompt_tokens"]):
        by_stage = itertools.groupby(records, lambda record: record["stage"])
        lines += stage_lines(given, (list(found) for _, found in by_stage))
    lines += conversions_heading()
    by_tokens = itertools.groupby(document["conversions"], lambda record: record["tokens"])
    return lines + [conversions_row(list(found)) for _, found in by_tokens]


def _titles(containers: Sequence[str]) -> list[str]:
    first, *others = containers
    titles = [f"{first:>12}"]
    for name in others:
        titles += [f"{name:>12}", f"{f'- {first}':>12}"]
    return titles


def _row(name: str, cells: Sequence[str]) -> str:
    return f"{name:20} " + " ".join(cells)


def check_containers(command: Parser, arguments: Namespace, device: torch.device) -> None:
    """Report a container that is not there, before anything runs."""
    batch = workloads.token_batch(1, 1, 1, 0)
    for name in arguments.containers:
        try:
            CONTAINERS[name](batch, str(device))
        except NotImplementedError as reason:
            command.error(f"argument --containers: {name} is not there ({reason}): write others")


def main(argv: list[str]) -> int:
    """Run the command; return the exit status."""
    command = parser()
    arguments = command.parse_args(argv)
    device = torch_device(command, arguments)
    check_containers(command, arguments, device)
    given = {name: str(value) if name == "json_output" else value for name, value in vars(arguments).items()}
    given["device"] = str(device)
    measured: dict[str, Records] = {"stages": [], "conversions": []}
    progress = Progress(len(arguments.prompt_tokens) * (len(stages.STAGES) + 1))

    def by_stage(batch: workloads.TokenBatch) -> Iterator[Records]:
        for stage in stages.STAGES:
            progress.set_description_str(f"{stage}, {batch.prompts.shape[1]} tokens")
            records = measure_stage(stage, batch, arguments, device)
            measured["stages"] += records
            progress.update()
            yield records

    for prompt_tokens in arguments.prompt_tokens:
        batch = workloads.token_batch(arguments.requests, prompt_tokens, arguments.decode_tokens, arguments.seed)
        for line in stage_lines(given, by_stage(batch)):
            progress.line(line)
    for line in conversions_heading():
        progress.line(line)
    for tokens in arguments.prompt_tokens:
        progress.set_description_str(f"conversions, {tokens} tokens")
        records = measure_conversions(tokens, arguments, device)
        measured["conversions"] += records
        progress.line(conversions_row(records))
        progress.update()
    progress.close()
    if arguments.json_output is not None:
        write_json(arguments.json_output, {"arguments": given, **measured})
    return 0
