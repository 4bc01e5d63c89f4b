"""What ``python -m history`` can be told: the commands and their options."""

import argparse
import os
import re
import shlex
import sys
from contextlib import ExitStack
from pathlib import Path

from history import lock, variables
from history.paths import ROOT
from history.status import Status

COMPARE = """Count the instructions of two commits' calls, time in alternation what can have changed by that, and a
sample, and report what did. Exit status 0: measured, and no regression;
1: measured, and a confirmed regression; 2: not measured, with the reason."""

ENGINE_TESTS = """Run the engines' own tests twice, as they are and with kvpool in place of their classes. Exit
status 0: each test that differs has its reason; 2: one has none, a test of kvpool's own beside the engines fails, or
they were not run, with the reason."""


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise ValueError
    return number


def _above_one(text: str) -> float:
    number = float(text)
    if not number > 1:
        raise ValueError
    return number


def _path(text: str) -> Path:
    return Path(text).absolute()


def _pattern(text: str) -> str:
    try:
        re.compile(text)
    except re.error as error:
        raise argparse.ArgumentTypeError(f"{text!r} is no regular expression: {error}") from error
    return text


def _bench(arguments: argparse.Namespace) -> int:
    from history import measure

    return measure.bench(arguments.range, arguments.bench)


def _record(arguments: argparse.Namespace) -> int:
    from history import measure

    return measure.show_points() if arguments.list else measure.record(arguments.range, arguments.instructions)


def _publish(arguments: argparse.Namespace) -> int:
    from history import publish

    publish.recorded()
    return 0


def _compare(arguments: argparse.Namespace) -> int:
    from history.compare import command

    question = command.Question(
        arguments.base,
        arguments.head,
        arguments.bench,
        arguments.rounds,
        arguments.factor,
        arguments.dropped,
        arguments.from_tip,
        arguments.all,
    )
    return (command.run_exact if arguments.exact else command.run)(question, arguments.output)


def _peers(arguments: argparse.Namespace) -> int:
    from history import peers

    return peers.measure(arguments.bench)


def _peers_run(arguments: argparse.Namespace) -> int:
    from history import peers

    return peers.run(arguments.module, arguments.arguments)


def _engine_tests(arguments: argparse.Namespace) -> int:
    from history import engine_tests

    return Status.FAILED if engine_tests.run(arguments.engine or ()) else Status.PASSED


def _performance(arguments: argparse.Namespace) -> int:
    from history import performance

    if arguments.record is not None:
        performance.record(arguments.record)
    performance.write()
    return 0


def _selftest(arguments: argparse.Namespace) -> int:
    from history import selftest

    return selftest.run(arguments.only)


def _add_bench(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--bench", action="append", type=_pattern, metavar="REGEX", help="only benchmarks that match")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m history", description="The history of kvpool's speed.")
    # What measures or publishes is alone in its clone, and inherits no more than it needs.
    parser.set_defaults(alone=True)
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    bench = commands.add_parser("bench", help="measure a few commits and publish them, under .asv/")
    bench.add_argument("range", nargs="?", help="as for git rev-list; default: the last 3 changes to kvpool/")
    _add_bench(bench)
    bench.set_defaults(run=_bench)

    record = commands.add_parser("record", help="measure the points of the history into results/ and publish html/")
    extent = record.add_mutually_exclusive_group()
    extent.add_argument("range", nargs="?", help="measure this range instead of what history/points.py chooses")
    extent.add_argument("--list", action="store_true", help="only print what is chosen, and why the rest is not")
    record.add_argument(
        "--without-instructions", dest="instructions", action="store_false", help="do not count: valgrind is missing"
    )
    record.set_defaults(run=_record)

    publish = commands.add_parser("publish", help="publish what results/ holds to html/")
    publish.set_defaults(run=_publish)

    compare = commands.add_parser("compare", help="has HEAD made anything slower than BASE?", description=COMPARE)
    compare.add_argument("base", metavar="BASE", help="a branch, tag or hash; compared is where HEAD left it")
    compare.add_argument("head", metavar="HEAD", nargs="?", default="HEAD", help="the same; default: HEAD")
    _add_bench(compare)
    compare.add_argument("--rounds", type=_positive, metavar="N", help="at most N rounds; default: the suite's")
    compare.add_argument("--factor", type=_above_one, default=1.1, help="how much is a change; default: 1.1")
    compare.add_argument(
        "--from-tip", action="store_true", help="compare with BASE itself, not with where HEAD left it"
    )
    compare.add_argument(
        "--dropped", action="append", type=_pattern, metavar="REGEX", help="cases that HEAD drops, and is meant to"
    )
    extent = compare.add_mutually_exclusive_group()
    extent.add_argument(
        "--exact", action="store_true", help="count the instructions of single calls and take no times: two minutes"
    )
    extent.add_argument(
        "--all", action="store_true", help="time everything, not what the counts say can have changed and a sample"
    )
    compare.add_argument("--output", type=_path, metavar="FILE", help="write the report here too")
    compare.set_defaults(run=_compare)

    peers = commands.add_parser(
        "peers", help="measure this commit beside the engines, under .asv/, and test the adapters"
    )
    _add_bench(peers)
    peers.set_defaults(run=_peers)

    beside = commands.add_parser("peers-run", help="run a module where the engines are: benchmarks, pytest, …")
    beside.add_argument("module", metavar="MODULE", help="as for python -m")
    beside.add_argument("arguments", nargs=argparse.REMAINDER, metavar="…", help="what to give to it")
    beside.set_defaults(run=_peers_run, alone=False)

    engine_tests = commands.add_parser(
        "engine-tests", help="run the engines' own tests as they are and over kvpool", description=ENGINE_TESTS
    )
    engine_tests.add_argument(
        "--engine", action="append", choices=("vllm", "lmcache"), help="only this engine's; default: all"
    )
    engine_tests.set_defaults(run=_engine_tests)

    performance = commands.add_parser("performance", help="write docs/performance.md from docs/performance.json")
    performance.add_argument(
        "--record",
        nargs="*",
        type=_path,
        metavar="TRACE",
        help="measure first, and replay these traces (or a drawn one)",
    )
    performance.set_defaults(run=_performance)

    selftest = commands.add_parser("selftest", help="plant faults and see the comparison find each of them")
    selftest.add_argument("--only", metavar="WORD", help="only the faults whose name holds it")
    selftest.set_defaults(run=_selftest)
    return parser


def run(argv: list[str] | None = None) -> Status:
    """Run one command; what it returns is REGRESSED only where a comparison says so itself."""
    try:
        arguments = _parser().parse_args(argv)
    except SystemExit as said:
        return Status.FAILED if said.code else Status.PASSED
    os.chdir(ROOT)
    with ExitStack() as stack:
        if arguments.alone and not getattr(arguments, "list", False):
            stack.enter_context(lock.held(shlex.join(sys.argv[1:] if argv is None else argv)))
            stack.enter_context(variables.only_these())
        found = arguments.run(arguments)
    if isinstance(found, Status):
        return found
    # What another program left with is not ours: its 1 means anything.
    return Status.FAILED if found else Status.PASSED
