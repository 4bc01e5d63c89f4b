"""Whole comparisons, of a package of one function by a suite of three benchmarks, in the environment of the tests."""

import subprocess
import sys

import pytest
from asv import environment
from asv.config import Config

from history import commits
from history.compare import command, sides
from history.status import Status

PASSED, REGRESSED, NOT_MEASURED = Status

SETUP = 'from setuptools import setup\nsetup(name="kvpool", version="0", packages=["kvpool"])\n'
PACKAGE = "def work():\n    return sum(range({}))\n\n\nSIZE = {}\n"
SUITE = """
try:
    from kvpool import SIZE, work
except ImportError:
    work = None


class Toy:
    version = "1"
    rounds, repeat, sample_time, warmup_time = 2, 3, 0.002, 0.002
    params = (["once", "twice"],)
    param_names = ("turns",)

    def setup(self, turns):
        if work is None:
            raise NotImplementedError

    def time_work(self, turns):
        work()
        if turns == "twice":
            work()

    def track_size(self, turns):
        return SIZE
"""


@pytest.fixture
def repository(tmp_path, monkeypatch):
    """A repository at its first commit, and how to change it: ``commit(name, path, text)``."""

    def git(*arguments):
        settings = ["-c", "user.name=n", "-c", "user.email=e", "-c", "commit.gpgsign=false"]
        subprocess.run(["git", *settings, *arguments], cwd=tmp_path, check=True, capture_output=True)

    def commit(name, path, text):
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).write_text(text)
        git("add", ".")
        git("commit", "-m", name)
        git("branch", name)

    git("init", "-b", "main")
    (tmp_path / ".gitignore").write_text("/.asv/\n")
    (tmp_path / "setup.py").write_text(SETUP)
    (tmp_path / "benchmarks").mkdir()
    (tmp_path / "benchmarks" / "__init__.py").write_text("")
    (tmp_path / "benchmarks" / "bench_toy.py").write_text(SUITE)
    commit("base", "kvpool/__init__.py", PACKAGE.format(20_000, 8))

    conf = Config.from_json(
        {
            "project": "kvpool",
            "repo": str(tmp_path),
            "branches": ["main"],
            "environment_type": "virtualenv",
            "env_dir": str(tmp_path / ".asv" / "env"),
            "benchmark_dir": str(tmp_path / "benchmarks"),
            "launch_method": "forkserver",
        }
    )
    (shared,) = environment.get_environments(conf, None)
    shared._path = sys.prefix
    monkeypatch.setattr("history.asv_calls.configuration", lambda: conf)
    monkeypatch.setattr(sides, "shared_environment", lambda conf: shared)
    for module in (commits, sides):
        monkeypatch.setattr(module, "ROOT", tmp_path)
    for module in (command, sides):
        monkeypatch.setattr(module, "SCRATCH", tmp_path / ".asv")
    monkeypatch.setattr(command, "REPORT", tmp_path / "report.md")
    monkeypatch.chdir(tmp_path)
    return commit


def report(tmp_path):
    return (tmp_path / "report.md").read_text()


def test_a_commit_beside_itself(repository, tmp_path):
    assert command.run("base", "base", factor=3) == PASSED
    assert "No regression: 4 cases of 2 benchmarks measured on both sides. BASE and HEAD are the same" in report(
        tmp_path
    )


def test_more_work_and_more_memory_are_found_and_the_suite_is_that_of_the_working_tree(repository, tmp_path):
    repository("head", "kvpool/__init__.py", PACKAGE.format(200_000, 9))
    with (tmp_path / "benchmarks" / "bench_toy.py").open("a") as suite:
        suite.write("\n\nclass New(Toy):\n    pass\n")
    assert command.run("base", "head", factor=3) == REGRESSED
    text = report(tmp_path)
    assert "8 confirmed regressions: 8 cases of 4 benchmarks measured on both sides." in text
    assert "`bench_toy.New.time_work`" in text
    assert "| 'once' | 8 unit | 9 unit | 1.12 |" in text


def test_what_is_no_longer_there_is_not_no_regression(repository, tmp_path):
    repository("head", "kvpool/__init__.py", "work = None\n")
    assert command.run("base", "head") == NOT_MEASURED
    assert "Not measured: 4 cases measured on BASE cannot be measured on HEAD" in report(tmp_path)


@pytest.mark.parametrize(
    ("path", "text", "sentence"),
    [
        ("kvpool/__init__.py", "import no_such_library\n", "kvpool cannot be imported: ModuleNotFoundError: No module"),
        ("kvpool/__init__.py", "SIZE = 8\n\n\ndef work():\n    raise ValueError('planted')\n", "failed on HEAD"),
        ("setup.py", "raise SystemExit('planted')\n", "cannot be built"),
    ],
)
def test_what_cannot_be_measured_is_said(repository, tmp_path, path, text, sentence):
    repository("head", path, text)
    assert command.run("base", "head") == NOT_MEASURED
    assert sentence in report(tmp_path)


def test_a_suite_that_cannot_be_imported_is_said(repository, tmp_path):
    (tmp_path / "benchmarks" / "bench_toy.py").write_text("1 / 0\n")
    assert command.run("base", "base") == NOT_MEASURED
    assert "the suite cannot be imported beside HEAD" in report(tmp_path)
    assert "ZeroDivisionError: division by zero" in report(tmp_path)


def test_nothing_is_written_to_the_tree(repository, tmp_path):
    command.run("base", "base", patterns=["track_size"])
    (tmp_path / "report.md").unlink()
    status = subprocess.run(["git", "status", "--porcelain"], cwd=tmp_path, capture_output=True, text=True)
    assert status.stdout == ""
