"""Measure kvpool beside the engines, in an environment that has them.

asv makes that environment from ``asv.peers.conf.json``; it and its results stay below ``.asv/peers``.
"""

import os
import subprocess
from pathlib import Path

from asv.config import Config

from history import UsageError, asv_calls, commits
from history.paths import ROOT

CONFIGURATION = "asv.peers.conf.json"
# The canary says whether the machine was disturbed.
BENCHMARKS = ["^bench_canary", "^bench_peers"]
TESTS = [
    "tests/test_peers.py",
    "tests/test_replay.py",
    "tests/test_adopting.py",
    "tests/test_suite_sweep_implementations.py",
]


def configuration() -> Config:
    """Return the configuration of what is measured beside the engines."""
    return asv_calls.configuration(file=CONFIGURATION)


def measure(benchmarks: list[str] | None = None) -> int:
    """Measure HEAD beside the engines, test the adapters to them, and say what was found; return the exit status."""
    status = asv_calls.run(configuration(), [commits.resolve("HEAD")], bench=benchmarks or BENCHMARKS)
    print(flush=True)
    found = run("benchmarks", ["peers"])
    tested = run("pytest", ["-q", *TESTS])
    return status or found or tested


def run(module: str, arguments: list[str]) -> int:
    """Run a module with the environment's Python, in the repository; return its exit status."""
    # The environment has the kvpool that was measured last; what is run by hand is the one of the working tree.
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run([python(), "-m", module, *arguments], cwd=ROOT, env=environment, check=False).returncode


def python() -> Path:
    """Return the environment's interpreter."""
    found = asv_calls.environment_python(configuration())
    if not found.is_file():
        raise UsageError("the engines are not installed yet: 'make peers' installs and measures them")
    return found
