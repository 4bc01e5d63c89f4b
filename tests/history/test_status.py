"""That only a confirmed regression leaves with status 1, whatever else happens to a command."""

import json
import os
import signal
import subprocess
import sys
import textwrap

import pytest

from history import UsageError, lock, machine
from history.__main__ import main
from history.paths import ROOT
from history.status import INTERRUPTED, Status, guarded

REPORT = "print('1 \\u2192 2 \\u03bcs', flush={flush}); return Status.REGRESSED"
PROGRAM = """
import sys
from history.status import Status, guarded
def run():
    {body}
sys.exit(guarded(run))
"""


def left(body: str, **options) -> subprocess.CompletedProcess[str]:
    """Run a command of this body in a process of its own."""
    command = [sys.executable, "-c", PROGRAM.format(body=body)]
    return subprocess.run(command, cwd=ROOT, text=True, **{"stderr": subprocess.PIPE, **options})


@pytest.mark.parametrize("status", Status)
def test_a_command_leaves_with_what_it_found(status):
    assert guarded(lambda: status) is status


@pytest.mark.parametrize("found", [1, True, None, "1", 257, 0])
def test_what_is_no_status_is_a_failure(found):
    assert guarded(lambda: found) is Status.FAILED


ERRORS = [
    ValueError("planted"),
    SystemExit(0),
    SystemExit(1),
    SystemExit("planted"),
    GeneratorExit(),
    MemoryError(),
    ImportError("planted"),
    BrokenPipeError(),
    RecursionError(),
    UsageError("planted"),
]


@pytest.mark.parametrize("error", ERRORS, ids=repr)
def test_whatever_is_raised_is_a_failure(error, capsys):
    def run():
        raise error

    assert guarded(run) is Status.FAILED
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.splitlines()[-1].startswith("history: ")


def test_an_interruption_has_its_own_status(capsys):
    def run():
        raise KeyboardInterrupt

    assert guarded(run) == INTERRUPTED
    assert capsys.readouterr().err == "history: interrupted; what was measured before is kept\n"


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_a_command_that_is_told_to_end_ends_what_it_has_begun(how):
    body = f"""
    import os
    try:
        os.kill(os.getpid(), {int(how)})
    finally:
        print('cleaned up')
    """
    done = left(body, stdout=subprocess.PIPE)
    assert (done.returncode, done.stdout) == (INTERRUPTED, "cleaned up\n")
    before = [signal.getsignal(each) for each in (signal.SIGTERM, signal.SIGHUP)]
    guarded(lambda: Status.PASSED)
    assert [signal.getsignal(each) for each in (signal.SIGTERM, signal.SIGHUP)] == before


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
def test_a_character_that_cannot_be_shown_is_replaced_and_the_status_stays(encoding):
    done = left(REPORT.format(flush=True), stdout=subprocess.PIPE, env={**os.environ, "PYTHONIOENCODING": encoding})
    assert (done.returncode, done.stderr) == (Status.REGRESSED, "")
    assert done.stdout == ("1 \u2192 2 \u03bcs\n" if encoding == "utf-8" else "1 \\u2192 2 \\u03bcs\n")


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs a device that is always full")
@pytest.mark.parametrize("flush", [True, False])
def test_a_full_disk_is_a_failure(flush):
    with open("/dev/full", "w") as full:
        done = left(REPORT.format(flush=flush), stdout=full)
    assert done.returncode == Status.FAILED
    assert "history: failed" in done.stderr


@pytest.fixture
def closed_pipe():
    reading, writing = os.pipe()
    os.close(reading)
    yield writing
    os.close(writing)


@pytest.mark.parametrize("flush", [True, False])
def test_a_closed_pipe_is_a_failure(flush, closed_pipe):
    done = left(REPORT.format(flush=flush), stdout=closed_pipe)
    assert done.returncode == Status.FAILED
    assert "history: failed" in done.stderr
    assert "Traceback" not in done.stderr


def test_what_is_said_beside_the_report_does_not_decide(closed_pipe):
    body = "from history.status import say; say('planted'); return Status.REGRESSED"
    assert left(body, stderr=closed_pipe).returncode == Status.REGRESSED


@pytest.mark.parametrize("command", ["bench", "compare main", "publish", "record", "selftest"])
def test_a_python_without_asv_is_a_failure(command, tmp_path):
    text = f"""
    import pathlib
    from history import __main__, lock
    lock.PATH = pathlib.Path({str(tmp_path / "lock")!r})
    sys.exit(__main__.main({command.split()}))
    """
    # -S: without the folder that the tools are installed in.
    call = [sys.executable, "-S", "-c", "import sys" + textwrap.dedent(text)]
    done = subprocess.run(call, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == Status.FAILED
    assert "ModuleNotFoundError" in done.stderr.splitlines()[-1]


@pytest.mark.parametrize("command", ["bench", "compare main", "peers"])
def test_a_wrong_regular_expression_has_a_sentence_of_its_own(command, capsys):
    assert main([*command.split(), "--bench", "["]) is Status.FAILED
    assert "--bench: '[' is no regular expression: unterminated character set" in capsys.readouterr().err


def test_help_is_no_failure_and_a_mistake_is_one(capsys):
    assert main(["compare", "--help"]) is Status.PASSED
    assert "usage:" in capsys.readouterr().out
    assert main(["no-such-command"]) is Status.FAILED


def test_what_another_program_left_with_is_not_ours(monkeypatch, tmp_path):
    monkeypatch.setattr(lock, "PATH", tmp_path / "lock")
    monkeypatch.setattr("history.peers.run", lambda module, arguments: 1)
    assert main(["peers-run", "pytest"]) is Status.FAILED
    monkeypatch.setattr("history.measure.bench", lambda *_: 1)
    assert main(["bench"]) is Status.FAILED


@pytest.mark.parametrize("broken", ['{"machine": {', "", "[]"])
def test_a_broken_machine_file_is_written_anew(tmp_path, broken):
    (tmp_path / "machines.json").write_text(broken)
    name, path = machine.write_machine_file(tmp_path)
    assert json.loads(path.read_text())[name]["machine"] == name
