"""Where there is no C compiler: make brings one, an installation says in a sentence what it lacks."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from tests.copied import NEEDED, ROOT, copy_into


def without_compiler(**variables: str) -> dict[str, str]:
    """Return this environment with nobody's choice of a compiler."""
    kept = {name: value for name, value in os.environ.items() if name not in ("CC", "LDSHARED", "MAKEFLAGS")}
    return kept | variables


def dry_run(folder: Path, **variables: str) -> str:
    """Return what make would run and what it exports, in a fresh clone."""
    copy_into(folder, (*NEEDED, "Makefile"))
    return subprocess.run(
        [shutil.which("make"), "--dry-run", "--print-data-base", "PYTHON=python", "tools"],
        cwd=folder,
        env=without_compiler(**variables),
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    ).stdout


def installs(output: str) -> list[str]:
    return re.findall(r"pip install .*requirements\.txt(.*)", output)


def test_make_brings_a_compiler_where_there_is_none(tmp_path: Path) -> None:
    output = dry_run(tmp_path / "clone", PATH=str(tmp_path))
    assert installs(output)[0].strip() == "ziglang==0.17.1"
    zig = f"{tmp_path}/clone/.venv/bin/python -m ziglang cc -mcpu=baseline"
    assert f"\nexport CC := {zig}\n" in output or f"\nCC := {zig}\n" in output
    assert f"LDSHARED := {zig} -shared\n" in output


def test_make_leaves_a_compiler_that_is_there_alone(tmp_path: Path) -> None:
    assert installs(dry_run(tmp_path / "named", PATH=str(tmp_path), CC="my-cc"))[0].strip() == ""
    (tmp_path / "cc").write_text("#!/bin/sh\n")
    (tmp_path / "cc").chmod(0o755)
    output = dry_run(tmp_path / "found", PATH=str(tmp_path))
    assert installs(output)[0].strip() == ""
    assert "LDSHARED" not in output


def test_an_installation_without_a_compiler_says_so_in_a_sentence(tmp_path: Path) -> None:
    clone = tmp_path / "clone"
    copy_into(clone)
    # What is translated already is newer than its source here, and is not translated again.
    shutil.copytree(ROOT / "build" / "kvpool", clone / "build" / "kvpool", copy_function=shutil.copyfile)
    install = ["install", "--no-index", "--no-deps", "--no-build-isolation", "--target", str(tmp_path / "installed")]
    done = subprocess.run(
        [sys.executable, "-m", "pip", *install, str(clone)],
        env=without_compiler(CC="no-such-cc -pthread"),
        check=False,
        capture_output=True,
        text=True,
    )
    said = done.stdout + done.stderr
    assert done.returncode == 1
    assert said.count("error: kvpool is compiled while it is installed, and its C compiler 'no-such-cc'") == 1, said
    assert "Traceback" not in said
