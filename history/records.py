"""Read what asv has recorded, as plain figures."""

import json
import math
from collections import defaultdict
from collections.abc import Callable, Mapping
from itertools import product
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from asv.benchmarks import Benchmarks
from asv.machine import Machine
from asv.results import Results, iter_results
from asv.util import load_json

CANARY = "bench_canary."

# The files of a folder of results that are not of one commit.
SUITE, MACHINE = "benchmarks.json", "machine.json"

# Parameter values that run no code of kvpool: no commit changes them, and a change would be the machine's.
REFERENCES = {"'floor'", "'floor_pages'", "'list'", "'array'", "'array_slices'"}

# Above this ratio to its median, the canary says that the machine was slow, not the code.
DISTURBED = 1.05

_MACHINE_FIELDS = {"machine", "os", "arch", "cpu", "num_cpu", "ram", "python"}


class Case(NamedTuple):
    """One combination of a benchmark's parameters, each as asv writes it (``repr``)."""

    benchmark: str
    parameters: tuple[str, ...]

    def __str__(self) -> str:
        """Return the case as asv names it."""
        return f"{self.benchmark}({', '.join(self.parameters)})" if self.parameters else self.benchmark


def is_control(case: Case) -> bool:
    """Tell whether a case runs no code of kvpool."""
    return case.benchmark.startswith(CANARY) or not REFERENCES.isdisjoint(case.parameters)


class Record(NamedTuple):
    """What was measured of one commit, on one machine, in one environment."""

    commit: str
    machine: str
    environment: str
    python: str
    requirements: dict[str, str]
    measured: int  # seconds since the epoch
    figures: dict[Case, float]  # what could be measured, in the benchmark's unit
    failed: list[Case]  # what failed, or was added to a benchmark's parameters since
    benchmarks: frozenset[str]  # those that were tried, at the version that the suite has now


def load(results: Path) -> list[Record]:
    """Return all records in `results`, less what another version of a benchmark measured."""
    benchmarks = suite(results)
    return [_record(found, benchmarks) for found in iter_results(str(results))] if benchmarks else []


def files(results: Path) -> list[Path]:
    """Return the files that hold what was measured of a commit."""
    return sorted(each for each in results.rglob("*.json") if each.name not in (SUITE, MACHINE))


def damage(results: Path) -> dict[Path, str]:
    """Return the files of a folder of results that are broken or missing, and why: asv passes over them in silence."""
    found: dict[Path, str] = {}

    def read(path: Path, version: int, use: Callable[[Any], object]) -> None:
        try:
            json.loads(path.read_text(encoding="utf-8"))
            use(load_json(str(path), version))
        except FileNotFoundError:
            found[path] = "it is missing"
        except Exception as error:
            found[path] = f"{type(error).__name__}: {error}"

    read(results / SUITE, Benchmarks.api_version, lambda suite: [each["params"] for each in suite.values()])
    for folder in {path.parent for path in files(results)}:
        read(folder / MACHINE, Machine.api_version, lambda machine: machine["machine"])
    if not found:
        benchmarks = suite(results)
        for path in files(results):
            read(path, Results.api_version, lambda _, path=path: _record(Results.load(str(path)), benchmarks))
    return dict(sorted(found.items()))


def suite(results: Path) -> dict[str, dict[str, Any]]:
    """Return the benchmarks that the folder describes, by name."""
    path = results / SUITE
    if not path.is_file():
        return {}
    return {name: what for name, what in json.loads(path.read_text(encoding="utf-8")).items() if isinstance(what, dict)}


def unroll(name: str, benchmark: Mapping[str, Any], values: list[float | None] | None) -> dict[Case, float | None]:
    """Return asv's flat list of values by case: None where it failed, NaN where it does not apply."""
    combinations = [tuple(each) for each in product(*benchmark["params"])]
    if values is None:
        values = [None] * len(combinations)
    return {Case(name, each): value for each, value in zip(combinations, values, strict=True)}


def durations(results: Path, machine: str, environment: str) -> dict[str, dict[str, float]]:
    """Return the seconds that each benchmark took, by commit; ``<build>`` and the like are preparations."""
    here = machine, environment
    return {
        found.commit_hash: {name: seconds for name, seconds in found.duration.items() if seconds is not None}
        for found in iter_results(str(results))
        if (found.params["machine"], found.env_name) == here
    }


def canary_ratios(records: list[Record]) -> dict[str, float]:
    """Return for each commit how slow its canary was: 1 is the median of its machine and environment."""
    figures: dict[tuple[str, str, Case], list[float]] = defaultdict(list)
    for record in records:
        for case, figure in _canaries(record):
            figures[record.machine, record.environment, case].append(figure)
    ratios: dict[str, float] = {}
    for record in records:
        for case, figure in _canaries(record):
            ratio = figure / median(figures[record.machine, record.environment, case])
            ratios[record.commit] = max(ratio, ratios.get(record.commit, 0.0))
    return ratios


def _canaries(record: Record) -> list[tuple[Case, float]]:
    return [(case, figure) for case, figure in record.figures.items() if case.benchmark.startswith(CANARY)]


def _record(found, benchmarks: Mapping[str, Mapping[str, Any]]) -> Record:
    names = found.get_result_keys(benchmarks)
    figures: dict[Case, float] = {}
    failed = []
    for name in sorted(names):
        values = found.get_result_value(name, benchmarks[name]["params"])
        for case, value in unroll(name, benchmarks[name], values).items():
            if value is None:
                failed.append(case)
            elif not math.isnan(value):
                figures[case] = value
    started = [found.started_at[name] for name in names if found.started_at.get(name)]
    return Record(
        found.commit_hash,
        found.params["machine"],
        found.env_name,
        found.params["python"],
        {key: value for key, value in found.params.items() if key not in _MACHINE_FIELDS},
        max(started, default=0) // 1000,
        figures,
        failed,
        frozenset(names),
    )
