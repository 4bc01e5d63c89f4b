"""One command at a time in a clone; the processes that would be two of them are real."""

import re
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from history import UsageError, command_line, lock
from history.__main__ import main
from history.paths import ROOT
from history.status import Status

HOLD = """
import os, sys, time
from pathlib import Path
from history import lock
lock.PATH, lock.PATIENCE = Path(sys.argv[1]), 0.01
with lock.held(sys.argv[2]):
    print("in", flush=True)
    {body}
"""
UNTIL_TOLD = "sys.stdin.read()"


@pytest.fixture
def start(tmp_path):
    """Start a process that takes the lock under a name and does something with it."""
    started = []

    def start(name: str, body: str = UNTIL_TOLD) -> subprocess.Popen[str]:
        command = [sys.executable, "-c", HOLD.format(body=body), str(tmp_path / ".asv" / "lock"), name]
        pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
        started.append(subprocess.Popen(command, cwd=ROOT, text=True, **pipes))
        return started[-1]

    yield start
    for each in started:
        each.kill()
        each.communicate()


def test_a_second_command_names_the_first_and_waits_for_it(start):
    first = start("compare main HEAD")
    assert first.stdout.readline() == "in\n"
    second = start("bench")
    line = second.stderr.readline()
    pattern = rf"history: waiting for 'compare main HEAD' \(process {first.pid}, since [\d:]{{8}}\), which has"
    assert re.match(pattern, line), line
    time.sleep(0.1)
    assert second.poll() is None
    first.communicate("")
    assert second.stdout.readline() == "in\n"


def test_a_third_command_is_told_who_is_before_it_each_time(start):
    first = start("one")
    first.stdout.readline()
    second = start("two")
    assert "'one'" in second.stderr.readline()
    third = start("three")
    assert "'one'" in third.stderr.readline()
    first.communicate("")
    (begun,), _, _ = select.select([second.stdout, third.stdout], [], [])
    waiting, holder = (third, "'two'") if begun is second.stdout else (second, "'three'")
    assert holder in waiting.stderr.readline()


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_a_command_that_is_killed_holds_no_lock(start, how):
    first = start("one")
    first.stdout.readline()
    first.send_signal(how)
    first.wait()
    assert start("two").stdout.readline() == "in\n"


def test_what_a_command_leaves_running_holds_no_lock(start):
    leave = "os.fork() or (os.close(1), os.close(2), time.sleep(5)); print(os.getpid(), flush=True)"
    first = start("one", leave)
    first.communicate("")
    assert start("two").stdout.readline() == "in\n"


def test_a_command_that_has_to_wait_can_be_interrupted(start):
    start("one").stdout.readline()
    second = start("two")
    second.stderr.readline()
    second.send_signal(signal.SIGINT)
    assert "KeyboardInterrupt" in second.communicate()[1]


def test_a_clone_that_cannot_be_written_is_said(monkeypatch, tmp_path):
    (tmp_path / "file").write_text("")
    monkeypatch.setattr(lock, "PATH", tmp_path / "file" / "lock")
    with pytest.raises(UsageError, match="this clone cannot be locked against another measurement"), lock.held("x"):
        raise AssertionError


def test_an_error_of_the_command_is_the_command_s(monkeypatch, tmp_path):
    monkeypatch.setattr(lock, "PATH", tmp_path / "lock")
    with pytest.raises(FileNotFoundError), lock.held("x"):
        Path("no such file").read_text()


@pytest.mark.parametrize(
    ("command", "alone"),
    [
        ("bench", True),
        ("record", True),
        ("publish", True),
        ("compare main", True),
        ("peers", True),
        ("performance", True),
        ("selftest", True),
        ("peers-run pytest", False),
    ],
)
def test_what_measures_or_publishes_is_alone_in_its_clone(command, alone, monkeypatch, tmp_path):
    path = tmp_path / "lock"
    seen = []
    monkeypatch.setattr(lock, "PATH", path)
    name = command.split()[0].replace("-", "_")
    monkeypatch.setattr(command_line, f"_{name}", lambda arguments: seen.append(path.exists() and path.read_text()))
    assert main(command.split()) is Status.PASSED
    assert [str(each).startswith(f"'{command}' (process ") for each in seen] == [alone]
