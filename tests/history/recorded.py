"""A small recorded history, written as asv writes it."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

CANARY = "bench_canary.Canary.time_python_loop"
ALLOC = "bench_host.ChurnedAlloc.time_alloc"
RUNS = "bench_memory.HostRuns.track_runs_per_alloc"

MACHINE = {"os": "Linux", "arch": "x86_64", "cpu": "AMD EPYC", "num_cpu": "2", "ram": "24GiB"}


def benchmark(name: str, unit: str, kind: str = "time", **parameters: list[str]) -> dict[str, Any]:
    """Describe a benchmark as asv does."""
    return {
        "name": name,
        "code": "def time(): ...",
        "param_names": list(parameters),
        "params": list(parameters.values()),
        "type": kind,
        "unit": unit,
        "version": "1",
    }


BENCHMARKS = {
    CANARY: benchmark(CANARY, "seconds"),
    ALLOC: benchmark(ALLOC, "seconds", pages=["1", "64"], method=["'contiguous'", "'floor'"]),
    RUNS: benchmark(RUNS, "runs", "track", method=["'fewest_runs'"]),
}


def write(
    folder: Path,
    commit: str,
    figures: Mapping[str, list[float | None]],
    versions: Mapping[str, str] | None = None,
    machine: str = "m",
    date: int = 0,
    started: int = 1000,
) -> None:
    """Record the figures of one commit: a list for each benchmark, in the order of its cases."""
    here = folder / machine
    here.mkdir(parents=True, exist_ok=True)
    _dump(folder / "benchmarks.json", {**BENCHMARKS, "version": 2})
    _dump(here / "machine.json", {**MACHINE, "machine": machine, "version": 1})
    rows = {
        name: [values, BENCHMARKS[name]["params"], (versions or {}).get(name, "1"), started * 1000]
        for name, values in figures.items()
    }
    requirements = {"numpy": "2.4.6"}
    found = {
        "version": 2,
        "commit_hash": commit,
        "env_name": "env",
        "date": date * 1000,
        "params": {**MACHINE, "machine": machine, "python": "3.11", **requirements},
        "python": "3.11",
        "requirements": requirements,
        "env_vars": {},
        "result_columns": ["result", "params", "version", "started_at"],
        "results": rows,
        "durations": {},
    }
    _dump(here / f"{commit[:8]}-env.json", found)


def _dump(path: Path, what: object) -> None:
    path.write_text(json.dumps(what))
