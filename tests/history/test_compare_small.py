"""Whole comparisons, of a package of one function by a suite of three benchmarks, in the environment of the tests."""

import os
import shutil
import subprocess
import sys

import pytest
from asv import environment
from asv.config import Config

from history import comment, commits
from history.compare import canary, command, sides
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
    rounds, repeat, sample_time, warmup_time, timeout = 2, 3, 0.002, 0.002, 1
    params = (["once", "twice", "floor"],)
    param_names = ("turns",)

    def setup(self, turns):
        if work is None and turns != "floor":
            raise NotImplementedError

    def time_work(self, turns):
        if turns == "floor":
            return sum(range(20_000))
        work()
        if turns == "twice":
            work()

    def track_size(self, turns):
        return 1 if turns == "floor" else SIZE
"""


def git(folder, *arguments):
    settings = ["-c", "user.name=n", "-c", "user.email=e", "-c", "commit.gpgsign=false"]
    subprocess.run(["git", *settings, *arguments], cwd=folder, check=True, capture_output=True)


def use(folder, monkeypatch):
    """Let the package compare in this repository, with the environment of the tests."""
    conf = Config.from_json(
        {
            "project": "kvpool",
            "repo": str(folder),
            "branches": ["main"],
            "environment_type": "virtualenv",
            "env_dir": str(folder / ".asv" / "env"),
            "benchmark_dir": str(folder / "benchmarks"),
            "launch_method": "forkserver",
        }
    )
    (shared,) = environment.get_environments(conf, None)
    shared._path = sys.prefix
    monkeypatch.setattr("history.asv_calls.configuration", lambda: conf)
    monkeypatch.setattr(sides, "shared_environment", lambda conf: shared)
    for module in (commits, sides):
        monkeypatch.setattr(module, "ROOT", folder)
    for module in (command, sides):
        monkeypatch.setattr(module, "SCRATCH", folder / ".asv")
    monkeypatch.setattr(command, "REPORT", folder.parent / "report.md")
    monkeypatch.chdir(folder)


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "repository"


@pytest.fixture
def repository(folder, monkeypatch):
    """A repository at its first commit, and how to change it: ``commit(name, path, text)``."""

    def commit(name, path, text):
        (folder / path).parent.mkdir(exist_ok=True)
        (folder / path).write_text(text)
        git(folder, "add", ".")
        git(folder, "commit", "--allow-empty-message", "-m", "" if name == "wordless" else name)
        git(folder, "branch", "-f", name)

    folder.mkdir()
    git(folder, "init", "-b", "main")
    (folder / ".gitignore").write_text("/.asv/\n")
    (folder / "setup.py").write_text(SETUP)
    (folder / "benchmarks").mkdir()
    (folder / "benchmarks" / "__init__.py").write_text("")
    (folder / "benchmarks" / "bench_toy.py").write_text(SUITE)
    commit("base", "kvpool/__init__.py", PACKAGE.format(20_000, 8))
    use(folder, monkeypatch)
    # A machine that others use: what is asked here is not whether it is calm.
    monkeypatch.setattr(canary, "seconds", lambda python: 1.0)
    return commit


def ask(base="base", head="head", **options):
    return command.run(command.Question(base, head, **{"factor": 3, **options}))


def report(folder):
    text = (folder.parent / "report.md").read_text()
    comment.check(text)
    return text


@pytest.mark.usefixtures("repository")
def test_a_commit_beside_itself(folder):
    assert ask("base", "base") is PASSED
    text = report(folder)
    assert "No regression: 4 cases of 2 benchmarks measured on both sides. BASE and HEAD are the same commit" in text
    assert "1 control, run where there is no kvpool, moved by" in text


def test_more_work_and_more_memory_are_found_and_the_suite_is_that_of_the_working_tree(repository, folder):
    repository("head", "kvpool/__init__.py", PACKAGE.format(200_000, 9))
    with (folder / "benchmarks" / "bench_toy.py").open("a") as suite:
        suite.write("\n\nclass New(Toy):\n    pass\n")
    assert ask() is REGRESSED
    text = report(folder)
    assert "8 confirmed regressions: 8 cases of 4 benchmarks measured on both sides." in text
    assert "`bench_toy.New.time_work`" in text
    assert "| `'once'` | 8 unit | 9 unit | 1.12 |" in text
    assert "floor" not in text


def test_what_is_no_longer_there_is_not_no_regression(repository, folder):
    repository("head", "kvpool/__init__.py", "work = None\n")
    assert ask() is NOT_MEASURED
    assert "Not measured: 4 cases measured on BASE cannot be measured on HEAD" in report(folder)
    assert ask(dropped=["time_work", "track_size"]) is NOT_MEASURED  # nothing is left
    assert "no benchmark could be measured on both sides" in report(folder)


@pytest.mark.parametrize(
    ("path", "text", "sentence"),
    [
        ("kvpool/__init__.py", "import no_such_library\n", "kvpool cannot be imported: ModuleNotFoundError: No module"),
        ("kvpool/__init__.py", "import os\nos.kill(os.getpid(), 11)\n", "kvpool cannot be imported: it was killed by"),
        ("kvpool/__init__.py", "SIZE = 8\n\n\ndef work():\n    raise ValueError('planted')\n", "failed on HEAD"),
        ("setup.py", "raise SystemExit('planted')\n", "cannot be built"),
    ],
)
def test_what_cannot_be_measured_is_said(repository, folder, path, text, sentence):
    repository("head", path, text)
    assert ask() is NOT_MEASURED
    assert sentence in report(folder)


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        ("raise ValueError('planted')", "ValueError: planted"),
        ("os._exit(0)", "it ended its process before there was a result"),
        ("os._exit(7)", "it ended its process with status 7"),
        ("os.kill(os.getpid(), 9)", "it was killed by SIGKILL"),
        ("sys.exit(3)", "SystemExit: 3"),
        ("os.kill(os.getppid(), 9)", "it was killed by SIGKILL, and took along the process that benchmarks are forked"),
    ],
)
def test_a_benchmark_that_does_not_come_back_says_why_and_the_others_are_measured(repository, folder, fault, reason):
    text = f"import os\nimport sys\n\n\ndef work():\n    {fault}\n\n\nSIZE = 8\n"
    repository("head", "kvpool/__init__.py", text)
    assert ask() is NOT_MEASURED
    text = report(folder)
    assert "Not measured: 1 benchmark failed on HEAD (bench_toy.Toy.time_work)" in text
    assert f"on HEAD with `'once'` and 1 other: `{reason}" in text
    assert "2 cases of 1 benchmark measured on both sides" in text


def test_a_case_that_hangs_is_tried_once(repository, folder):
    tried = folder / ".asv" / "tried"
    text = f"import time\n\n\ndef work():\n    open({str(tried)!r}, 'a').write('x')\n    time.sleep(9)\n\n\nSIZE = 8\n"
    repository("head", "kvpool/__init__.py", text)
    assert ask() is NOT_MEASURED
    assert "on HEAD with `'once'`: `it took longer than 1 s`" in report(folder)
    assert "on HEAD with `'twice'`: `not tried, as bench_toy.Toy.time_work('once') took too long`" in report(folder)
    assert tried.read_text() == "x"


def test_what_a_commit_leaves_running_does_not_disturb_the_other_side(repository, folder):
    # A process that would count on: what runs while its side is not measured is stopped.
    count = folder / ".asv" / "count"
    forked = f"os.fork() == 0 and [open({str(count)!r}, 'a').write('x') or time.sleep(0.01) for _ in range(600)]"
    text = f"import os\nimport time\n\n\ndef work():\n    {forked}\n    return sum(range(20_000))\n\n\nSIZE = 8\n"
    repository("head", "kvpool/__init__.py", text)
    assert ask(patterns=["time_work.*once"], most_rounds=1) in Status
    found = count.stat().st_size
    subprocess.run(["sleep", "0.2"], check=True)
    assert count.stat().st_size == found


PREPARING = """
import os


class Preparing:
    version = "1"
    params = (["a", "b"],)
    param_names = ("case",)

    def setup_cache(self):
        with open({prepared!r}, "a") as file:
            file.write("x")
        {fault}
        return {{"a": 1, "b": 2}}

    def track_prepared(self, cache, case):
        return cache[case]
"""


@pytest.mark.usefixtures("repository")
@pytest.mark.parametrize("fault", ["pass", "raise ValueError('planted')"])
def test_what_cases_share_is_prepared_once_a_side(folder, fault):
    prepared = folder / ".asv" / "prepared"
    text = PREPARING.format(prepared=str(prepared), fault=fault)
    (folder / "benchmarks" / "bench_prepared.py").write_text(text)
    status = ask("base", "base", patterns=["Preparing"])
    assert prepared.read_text() == "xx"
    if fault == "pass":
        assert status is PASSED
        assert "No regression: 2 cases of 1 benchmark" in report(folder)
    else:
        assert status is NOT_MEASURED
        assert (
            "on BASE and HEAD with `'a'` and 1 other: `what its cases share cannot be prepared: ValueError: planted`"
            in report(folder)
        )


def test_a_suite_that_cannot_be_imported_is_said(repository, folder):
    (folder / "benchmarks" / "bench_toy.py").write_text("1 / 0\n")
    assert ask("base", "base") is NOT_MEASURED
    assert "the suite cannot be imported beside HEAD" in report(folder)
    assert "ZeroDivisionError: division by zero" in report(folder)


@pytest.mark.usefixtures("repository")
def test_a_link_to_nothing_in_the_suite_is_said(folder):
    (folder / "benchmarks" / "bench_other.py").symlink_to("nowhere.py")
    assert ask("base", "base") is NOT_MEASURED
    assert "Not measured: benchmarks/bench\\_other.py is a link" not in report(folder)
    assert "Not measured: benchmarks/bench_other.py is a link to what is not there: nowhere.py." in report(folder)


# What is written here stands for the processes under valgrind, which have tests of their own.
COUNTING = """
import json
import sys

import kvpool

reason = {reason!r}
calls = {{"work": {{"instructions": 1_000 * kvpool.SIZE, "functions": {{"kvpool.work": 1_000 * kvpool.SIZE}}}}}}
found = {{"reason": reason}} if reason else {{"made_with": "a pencil", "cases": calls}}
with open(sys.argv[1], "w") as file:
    json.dump(found, file)
"""
TIMED = 'times_of = {"work": ("time_work",)}.get\nSAMPLE = ("time_work.*once",)\n'


class TestCountedFirst:
    """Of the whole suite, instructions are counted before anything is timed."""

    @pytest.fixture(autouse=True)
    def counting(self, repository, folder):
        self.suite = folder / "benchmarks"
        self.count("")

    def count(self, reason):
        (self.suite / "counting.py").write_text(COUNTING.format(reason=reason))
        (self.suite / "timed.py").write_text(TIMED)

    def test_without_a_change_a_sample_is_timed_and_all_else_on_request(self, folder):
        assert ask("base", "base") is PASSED
        text = report(folder)
        assert "No regression: 3 cases of 2 benchmarks measured on both sides." in text
        assert "None of 1 call took more instructions, by more than 1 %." in text
        assert "Timed was a sample, as no count has moved; --all times everything." in text
        assert "1 call counted on both sides before, with a pencil" in text
        assert ask("base", "base", everything=True) is PASSED
        assert "No regression: 4 cases of 2 benchmarks" in report(folder)

    def test_what_has_moved_is_timed_and_a_count_that_grew_is_a_regression(self, repository, folder):
        repository("head", "kvpool/__init__.py", PACKAGE.format(20_000, 9))
        assert ask() is REGRESSED
        text = report(folder)
        assert "1 of 1 call took more instructions, by more than 1 %. 4 cases of 2 benchmarks measured" in text
        assert "| `work` | 8000 | 9000 | 1.125 | `kvpool.work` 8000 → 9000 |" in text
        assert "Timed was what times the 1 method of which a count has moved" in text

    def test_it_stands_where_the_machine_is_disturbed(self, repository, monkeypatch, folder):
        repository("head", "kvpool/__init__.py", PACKAGE.format(20_000, 9))
        turns = iter(range(1_000_000))
        monkeypatch.setattr(canary, "seconds", lambda python: 2.0 ** next(turns))
        monkeypatch.setattr(command, "TRIES", 0)
        assert ask(most_rounds=1) is REGRESSED
        assert "The times are open: " in report(folder)

    def test_what_cannot_be_counted_is_timed_in_full(self, folder):
        self.count("there is no valgrind")
        assert ask("base", "base") is PASSED
        text = report(folder)
        assert "No regression: 4 cases of 2 benchmarks" in text
        assert "Everything was timed, as nothing can be counted: BASE (" in text
        assert "was not counted: there is no valgrind." in text

    def test_a_pattern_is_taken_at_its_word(self, folder):
        assert ask("base", "base", patterns=["twice"]) is PASSED
        text = report(folder)
        assert "No regression: 2 cases of 2 benchmarks" in text
        assert "counted on both sides" not in text


class TestDropped:
    """HEAD's own suite beside BASE's."""

    def removed(self, repository, old, new):
        repository("head", "benchmarks/bench_toy.py", SUITE.replace(old, new))

    @pytest.mark.parametrize(
        ("old", "new", "cases"),
        [
            ("def track_size", "def measure_size", 3),
            ("def track_size", "def track_bytes", 3),
            ('["once", "twice", "floor"]', '["once", "floor"]', 2),
        ],
        ids=["a benchmark is removed", "one is renamed", "a parameter is removed"],
    )
    def test_what_head_drops_is_named(self, repository, folder, old, new, cases):
        self.removed(repository, old, new)
        assert ask() is NOT_MEASURED
        assert f"Not measured: HEAD drops {cases} cases that BASE has (bench_toy.Toy." in report(folder)
        assert ask(dropped=[r"Toy\.t"]) is PASSED
        assert "## Dropped on purpose" in report(folder)

    def test_what_the_working_tree_drops_is_named_too(self, repository, folder):
        repository("head", "kvpool/__init__.py", PACKAGE.format(20_000, 7))
        (folder / "benchmarks" / "bench_toy.py").write_text(SUITE.replace("track_size", "measure_size"))
        assert ask() is NOT_MEASURED
        assert "HEAD drops 3 cases that BASE has" in report(folder)

    def test_what_was_not_asked_for_is_not_missed(self, repository):
        self.removed(repository, "def track_size", "def measure_size")
        assert ask(patterns=["time_work"]) is PASSED

    def test_a_suite_of_base_that_cannot_be_read_is_said(self, repository, folder):
        repository("broken", "benchmarks/bench_toy.py", "1 / 0\n")
        repository("head", "benchmarks/bench_toy.py", SUITE)
        assert ask("broken") is NOT_MEASURED
        assert "HEAD drops 1 case that BASE has (all of BASE's suite, as nobody knows what it has" in report(folder)
        assert ask("broken", dropped=["all of BASE's suite"]) is PASSED

    def test_a_base_without_a_suite_has_nothing_to_drop(self, repository, folder):
        git(folder, "rm", "-rq", "--cached", "benchmarks")
        git(folder, "commit", "-m", "none")
        git(folder, "branch", "none")
        repository("head", "benchmarks/bench_toy.py", SUITE)
        assert ask("none") is PASSED


class TestCommits:
    """Which commits are compared, and what is said of them."""

    def test_base_is_where_head_branched_off(self, repository, folder):
        git(folder, "checkout", "-q", "-b", "branch")
        repository("head", "README", "")
        git(folder, "checkout", "-q", "base")
        repository("gained", "kvpool/__init__.py", PACKAGE.format(20_000, 7))
        assert ask("gained") is PASSED
        assert "BASE is where HEAD branched off from gained." in report(folder)
        assert "| BASE | " in report(folder)
        assert " | `base` |" in report(folder)
        assert ask("gained", from_tip=True) is REGRESSED
        assert " | `gained` |" in report(folder)

    def test_a_head_that_base_has_already_is_no_question(self, repository, folder):
        repository("later", "kvpool/__init__.py", PACKAGE.format(20_000, 7))
        assert ask("later", "base") is NOT_MEASURED
        assert "Not measured: later has all of base already, which leaves nothing to compare" in report(folder)
        assert ask("later", "base", from_tip=True) is REGRESSED

    def test_histories_that_share_nothing_are_said(self, repository, folder):
        git(folder, "checkout", "-q", "--orphan", "other")
        repository("orphan", "README", "")
        assert ask("orphan", "base") is NOT_MEASURED
        assert "have no commit in common; no history is shared" in report(folder)

    def test_a_shallow_clone_is_named(self, repository, folder, tmp_path, monkeypatch):
        repository("head", "kvpool/__init__.py", PACKAGE.format(20_000, 8) + "\n")
        git(tmp_path, "clone", "-q", "--depth", "1", "--no-single-branch", f"file://{folder}", "shallow")
        use(tmp_path / "shallow", monkeypatch)
        assert ask("origin/base", "origin/head") is NOT_MEASURED
        assert "no commit in common; this is a shallow clone: 'git fetch --unshallow'" in report(folder)
        assert ask("HEAD~3", "HEAD") is NOT_MEASURED
        assert "no commit is named 'HEAD\\~3' (this is a shallow clone" in report(folder)
        assert ask("HEAD", "HEAD") is PASSED
        assert "\nThis is a shallow clone: " in report(folder)

    def test_what_is_not_committed_is_named_as_not_measured(self, repository, folder):
        repository("head", "kvpool/__init__.py", PACKAGE.format(20_000, 8) + "\n")
        (folder / "kvpool" / "__init__.py").write_text(PACKAGE.format(900_000, 9))
        (folder / "kvpool" / "new.py").write_text("")
        (folder / "README").write_text("")
        assert ask() is PASSED
        line = "\nNot measured, as it is not committed: kvpool/\\_\\_init\\_\\_.py, kvpool/new.py.\n"
        assert line in report(folder)

    def test_a_commit_without_a_message_has_a_row(self, repository, folder):
        repository("wordless", "README", "")
        assert ask(head="wordless") is PASSED
        assert " | `(no message)` |" in report(folder)

    def test_a_subject_with_a_bar_a_tag_and_a_mention_stays_in_its_cell(self, repository, folder):
        (folder / "README").write_text("")
        git(folder, "add", ".")
        git(folder, "commit", "-m", "Fix a | b for <b>@team</b> `x`")
        assert ask(head="main") is PASSED
        assert " | `` Fix a \\| b for <b>@team</b> `x` `` |\n" in report(folder)

    @pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder to somebody else")
    def test_a_checkout_of_another_owner_has_a_sentence_of_its_own(self, repository, folder, monkeypatch):
        monkeypatch.setenv("HOME", str(folder.parent))
        monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")
        for path in (folder, folder / ".git"):
            shutil.chown(path, 65534, 65534)
        assert ask("base", "base") is NOT_MEASURED
        text = report(folder)
        assert "Not measured: this checkout belongs to another user, and git does not read it" in text
        assert "safe.directory" in text


@pytest.mark.usefixtures("repository")
def test_nothing_is_written_to_the_tree(folder):
    ask("base", "base", patterns=["track_size"])
    status = subprocess.run(["git", "status", "--porcelain"], cwd=folder, capture_output=True, text=True)
    assert status.stdout == ""


def test_the_canary_runs_where_nothing_is_imported():
    found = canary.seconds(sys.executable)
    assert 1e-5 < found < 1
    assert "import" not in canary._LOOP.replace("from time import perf_counter", "")
