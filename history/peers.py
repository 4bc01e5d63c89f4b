"""Measure kvpool beside the engines, in an environment that has them.

asv makes that environment, as its own but with the engines; it and its results stay below ``.asv/peers``.
"""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

from asv.config import Config

from history import UsageError, asv_calls, commits
from history.paths import ROOT, SCRATCH

# The canary says whether the machine was disturbed.
BENCHMARKS = ["^bench_canary", "^bench_peers"]
TESTS = "tests/engines"

PLACE = SCRATCH / "peers"
PINS = ROOT / "history" / "peers.txt"
REQUIREMENTS = ROOT / "history" / "engine_requirements.txt"
ENGINES = ("sglang", "vllm", "lmcache")


def configuration() -> Config:
    """Return the configuration of what is measured beside the engines: the suite's, in another environment.

    The engines come without what they ask for: `history/peers.txt` pins what they need here.
    """
    conf = asv_calls.configuration(results=PLACE / "results", html=PLACE / "html")
    conf.env_dir = str(PLACE / "env")
    engines = f"in-dir={{conf_dir}} python -m pip install --no-deps -r {PINS.relative_to(ROOT)}"
    conf.install_command = [engines, *conf.install_command]
    return conf


def measure(benchmarks: list[str] | None = None) -> int:
    """Measure HEAD beside the engines, test the adapters to them, and say what was found; return the exit status."""
    write_requirements()
    status = asv_calls.run(configuration(), [commits.resolve("HEAD")], bench=benchmarks or BENCHMARKS)
    print(flush=True)
    found = run("benchmarks", ["peers"])
    tested = run("pytest", ["-q", TESTS])
    return status or found or tested


def write_requirements() -> None:
    """Write what each engine requires as its metadata says, without what it offers as an extra."""
    pins = re.findall(r"^(?:{})==.*$".format("|".join(ENGINES)), PINS.read_text(encoding="utf-8"), re.MULTILINE)
    lines = ["# What the engines require where they are installed, by their metadata; written by 'make peers'."]
    for pin in pins:
        lines += ["", f"[{pin}]", *required_by(pin)]
    REQUIREMENTS.write_text("\n".join(lines) + "\n", encoding="utf-8")


def required_by(pin: str) -> list[str]:
    """Return the requirements of a pinned package, which is asked for its metadata and not installed."""
    command = ["install", "--dry-run", "--no-deps", "--ignore-installed", "--quiet", "--report", "-", pin]
    done = subprocess.run([sys.executable, "-m", "pip", *command], capture_output=True, text=True)
    if done.returncode:
        raise UsageError(f"the package index does not say what {pin} requires: {asv_calls.explanation(done.stderr)}")
    (found,) = json.loads(done.stdout)["install"]
    return [line for line in found["metadata"].get("requires_dist", []) if "extra ==" not in line]


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
