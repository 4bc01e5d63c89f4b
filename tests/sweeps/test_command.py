"""`python -m benchmarks`: a forwarder, which the suite has also where there are no sweeps."""

import importlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.__main__ import COMMANDS
from tests.copied import ROOT


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_is_there(command: str) -> None:
    module, _ = COMMANDS[command]
    assert callable(importlib.import_module(module).main)


def test_a_command_says_that_there_are_no_sweeps(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "benchmarks", tmp_path / "benchmarks")
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    command = [sys.executable, "-m", "benchmarks", "replay", "--requests", "1"]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "python -m benchmarks: replay needs sweeps/: run it where the repository is\n"
