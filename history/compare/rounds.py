"""Measure two sides in alternation, a round of the suite at a time."""

import json
import os
import re
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from asv import util
from asv.benchmarks import Benchmarks
from asv.config import Config
from asv.results import Results
from asv.runner import BENCHMARK_RUN_SCRIPT, run_benchmarks

from history.asv_calls import explanation
from history.compare import NotMeasuredError
from history.compare.sides import Side
from history.compare.verdict import Measured
from history.records import CANARY, unroll


def discover(conf: Config, side: Side) -> list[dict[str, Any]]:
    """Return the benchmarks of the working tree, as asv finds them beside the commit of `side`."""
    with tempfile.TemporaryDirectory() as folder:
        answer = Path(folder) / "benchmarks.json"
        command = [BENCHMARK_RUN_SCRIPT, "discover", os.path.abspath(conf.benchmark_dir), str(answer)]
        try:
            side.environment.run(command, cwd=folder, dots=False, display_error=False)
        except util.ProcessError as error:
            reason = explanation(error.stderr or error.stdout)
            raise NotMeasuredError(f"the suite cannot be imported beside {side}: {reason}") from error
        return json.loads(answer.read_text(encoding="utf-8"))


def select(conf: Config, found: list[dict[str, Any]], patterns: list[str] | None, rounds: int | None) -> Benchmarks:
    """Return the benchmarks that match any of the patterns (all, if there is none), in at most `rounds` rounds."""
    for benchmark in found:
        if rounds is not None:
            benchmark["rounds"] = min(rounds, benchmark.get("rounds", 1))
    return Benchmarks(conf, found, regex=patterns)


def measure(conf: Config, sides: tuple[Side, Side], benchmarks: Benchmarks, say: Callable[[str], None]) -> Measured:
    """Run the benchmarks on both sides round by round and return the figure of each round.

    The side that goes first alternates, so that neither profits from a machine that grows slower or faster.
    """
    measured = Measured({name: what["type"] for name, what in benchmarks.items()})
    rounds = max(what.get("rounds", 1) for what in benchmarks.values())
    active = benchmarks
    began = time.monotonic()
    for done in range(rounds):
        left = (time.monotonic() - began) / done * (rounds - done) if done else None
        say(f"round {done + 1} of {rounds}" + (f", about {left:.0f} s left" if left else ""))
        for side in sides if done % 2 else sides[::-1]:
            results = Results.unnamed()
            run_benchmarks(
                active, side.environment, results, run_rounds=[rounds - done], launch_method=conf.launch_method
            )
            for name in results.get_all_result_keys():
                _add(measured, side, active, name, results)
        active = active.filter_out({name for name in active if measured.failed_whole(name)})
        if all(name.startswith(CANARY) for name in active):
            break
    return measured


def _add(measured: Measured, side: Side, benchmarks: Benchmarks, name: str, results: Results) -> None:
    benchmark = benchmarks[name]
    values = unroll(name, benchmark, results.get_result_value(name, benchmark["params"]))
    chosen = benchmarks.benchmark_selection.get(name)
    reason = _reason(results.stderr.get(name))
    for index, (case, value) in enumerate(values.items()):
        if chosen is None or index in chosen:
            measured.add(side.label, case, value, reason)


def _reason(output: str | None) -> str:
    return explanation("\n".join(line for line in (output or "").splitlines() if not line.startswith("asv: benchmark")))


def exactly(cases: Iterable[object]) -> list[str]:
    """Return the patterns by which asv finds these cases and no others."""
    return [f"^{re.escape(str(case))}$" for case in cases]
