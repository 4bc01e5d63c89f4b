"""`python -m benchmarks replay`: what the requests of a trace cost in each allocator, one line an allocator."""

import argparse
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks import peers, synthetic_traces
from benchmarks.replay import ALLOCATORS, MAX_FILL, NUM_PAGES, PAGE_SIZE, Plan, build_pool, make_plan, replay
from benchmarks.traces import CONCURRENT_SESSIONS, SessionTrace, Trace, TraceError, read_trace, trace_files
from sweeps.common import Parser, Progress, index, names, output_file, positive_float, positive_int, write_json

SKIPPED_SHOWN = 5


class Line(NamedTuple):
    """One allocator's figures on one trace; milliseconds are for 1,000 requests."""

    trace: str
    allocator: str
    requests: int
    miss_rate: float
    alloc_ms: float
    free_ms: float
    runs_mean: float
    runs_p50: float
    runs_max: int
    wall_seconds: float
    allocator_share: float


def measure(trace: Trace, plan: Plan, name: str, num_pages: int, page_size: int, advance: Any) -> Line:
    """Replay a plan against a new pool."""
    outcome = replay(plan, build_pool(name, plan.block_pages, num_pages, page_size), advance)
    wall = plan.seconds + outcome.wall_seconds
    per_thousand = 1e6 / plan.requests
    return Line(
        trace=trace.name,
        allocator=name,
        requests=plan.requests,
        miss_rate=plan.miss_rate,
        alloc_ms=outcome.alloc_seconds * per_thousand,
        free_ms=outcome.free_seconds * per_thousand,
        runs_mean=float(outcome.runs.mean()) if len(outcome.runs) else 0.0,
        runs_p50=float(np.median(outcome.runs)) if len(outcome.runs) else 0.0,
        runs_max=int(outcome.runs.max(initial=0)),
        wall_seconds=wall,
        allocator_share=outcome.allocator_seconds / wall,
    )


HEADER = (
    f"{'allocator':<20} {'alloc':>9} {'free':>9} {'both':>9}   ms a 1,000 requests"
    f"   {'runs mean':>9} {'p50':>6} {'max':>6}   {'wall s':>7} {'in allocator':>12}"
)


def format_line(line: Line) -> str:
    """Return one allocator's figures under HEADER."""
    return (
        f"{line.allocator:<20} {line.alloc_ms:>9.2f} {line.free_ms:>9.2f} {line.alloc_ms + line.free_ms:>9.2f}"
        f"{'':>22}   {line.runs_mean:>9.2f} {line.runs_p50:>6.0f} {line.runs_max:>6}"
        f"   {line.wall_seconds:>7.1f} {line.allocator_share:>12.1%}"
    )


def describe(trace: Trace) -> str:
    """Return the statistics of a trace in a line."""
    inputs, outputs = (
        f"{np.mean(tokens):,.0f} / {np.median(tokens):,.0f} / {np.percentile(tokens, 99):,.0f}"
        for tokens in zip(*trace.tokens(), strict=True)
    )
    reused = f"{trace.reused_share():.1%} of the blocks reused with an unlimited cache"
    return f"whole trace: input tokens mean / p50 / p99 {inputs}, output {outputs}, {reused}"


def parser() -> Parser:
    """Return the parser of the command's arguments."""
    result = Parser("replay", "Replay a request trace against a host tier, once an allocator: what its calls cost.")
    add = result.add_argument
    add("trace", nargs="?", type=Path, help="a .jsonl or .jsonl.gz file, or a folder of them; without it one is drawn")
    add("--synthetic", choices=list(synthetic_traces.KINDS), help="the kind of trace to draw (conversation)")
    add("--seed", type=index, default=0, help="of a drawn trace")
    add("--requests", type=positive_int, help="only the first requests")
    add("--sessions", type=positive_int, help="only the first sessions")
    add("--concurrent", type=positive_int, default=CONCURRENT_SESSIONS, help="sessions at a time")
    add("--allocators", type=names(*ALLOCATORS), help=f"some of {','.join(ALLOCATORS)} (all that are installed)")
    add("--host-pages", type=positive_int, default=NUM_PAGES, help="pages of the pool")
    add("--page-size", type=positive_int, default=PAGE_SIZE, help="tokens of a page")
    add("--max-fill", type=positive_float, default=MAX_FILL, help="share of the pool in use at most")
    add("--skip-invalid", action="store_true", help="leave out lines that are not valid")
    add("--json-output", type=output_file, metavar="FILE", help="write the figures there as well")
    return result


def main(argv: list[str]) -> int:
    """Run the command; return the exit status."""
    command = parser()
    arguments = command.parse_args(argv)
    if arguments.trace and arguments.synthetic:
        command.error("argument --synthetic: a trace is named too: write one of the two")
    if arguments.max_fill > 1:
        command.error(f"argument --max-fill: {arguments.max_fill:g}: write at most 1")
    try:
        chosen, missing = _installed(arguments.allocators)
        records = [line for trace in _traces(arguments) for line in _replay_all(trace, chosen, arguments)]
    except (TraceError, peers.MissingPeerError, ValueError) as error:
        command.error(str(error))
    for reason in missing:
        print(f"n/a: {reason}")
    if arguments.json_output is not None:
        given = {name: str(value) if isinstance(value, Path) else value for name, value in vars(arguments).items()}
        write_json(arguments.json_output, {"arguments": given, "records": [line._asdict() for line in records]})
    return 0


def _replay_all(trace: Trace, chosen: Sequence[str], arguments: argparse.Namespace) -> list[Line]:
    progress = Progress(100 * (1 + len(chosen)))
    size = (arguments.host_pages, arguments.page_size)
    count = min(len(trace), arguments.requests or len(trace))
    plan = make_plan(trace, *size, arguments.max_fill, arguments.requests, _percents(progress, count, "prefix cache"))
    progress.line(f"{trace.name}: {plan.requests:,} requests, {plan.blocks:,} blocks of {trace.block_tokens} tokens")
    progress.line(describe(trace))
    progress.line(
        f"{arguments.host_pages:,} pages of {arguments.page_size} tokens, at most {arguments.max_fill:.0%} full: "
        f"miss rate {plan.miss_rate:.1%}, {plan.too_long} requests too long for the pool"
    )
    progress.line(HEADER)
    lines = []
    for name in chosen:
        lines.append(measure(trace, plan, name, *size, _percents(progress, len(plan.steps), name)))
        progress.line(format_line(lines[-1]))
    progress.close()
    print()
    return lines


def _percents(progress: Progress, total: int, label: str) -> Callable[[int], None]:
    """Return what advances the bar by 100 while it is told of 1 to `total`."""

    def advance(done: int) -> None:
        progress.set_description_str(label, refresh=False)
        progress.update(done * 100 // total - (done - 1) * 100 // total)

    return advance


def _installed(chosen: Sequence[str] | None) -> tuple[list[str], list[str]]:
    """Return the allocators that can be built, and why the others cannot; what the user named has to be there."""
    found, missing = [], []
    for name in chosen or ALLOCATORS:
        try:
            build_pool(name, 1, 1, 1)
            found.append(name)
        except (peers.MissingPeerError, NotImplementedError) as error:
            if chosen:
                raise peers.MissingPeerError(f"argument --allocators: {name}: {error}") from None
            missing.append(str(error))
    return found, list(dict.fromkeys(missing))


def _traces(arguments: argparse.Namespace) -> Iterator[Trace]:
    if arguments.trace is None:
        kind = arguments.synthetic or "conversation"
        size = arguments.requests if kind == "conversation" else arguments.sessions
        yield _limited(synthetic_traces.KINDS[kind](*([size] if size else []), seed=arguments.seed), arguments)
        return
    for path in trace_files(arguments.trace):
        trace, skipped = read_trace(path, arguments.skip_invalid)
        for each in skipped[:SKIPPED_SHOWN]:
            print(f"skipped: {each}")
        if len(skipped) > SKIPPED_SHOWN:
            print(f"skipped: {len(skipped) - SKIPPED_SHOWN} more lines of {path.name}")
        yield _limited(trace, arguments)


def _limited(trace: Trace, arguments: argparse.Namespace) -> Trace:
    if isinstance(trace, SessionTrace):
        return SessionTrace(trace.name, trace.block_tokens, trace.sessions[: arguments.sessions], arguments.concurrent)
    return trace
