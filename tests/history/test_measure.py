import json
import math
import subprocess

import pytest

from history import UsageError, commits, lock, machine, milestones, records
from history.__main__ import main
from history.records import Case
from tests.history.recorded import ALLOC, CANARY, write


def test_the_machine_is_named_by_its_processor_cores_and_memory(monkeypatch):
    monkeypatch.setattr("asv.util.get_cpu_info", lambda: "Intel(R) Core(TM) i7-8550U CPU @ 1.80GHz")
    monkeypatch.setattr("asv.util.get_memsize", lambda: 16 * 2**30 - 300_000_000)
    monkeypatch.setattr("os.cpu_count", lambda: 8)
    found = machine.describe()
    assert found["machine"] == "Intel-Core-i7-8550U-1.80GHz-8-cores-16GiB"
    assert found["cpu"] == "Intel Core i7-8550U 1.80GHz"
    assert (found["num_cpu"], found["ram"]) == ("8", "16GiB")


def test_a_machine_whose_processor_is_unknown_still_has_a_name(monkeypatch):
    monkeypatch.setattr("asv.util.get_cpu_info", lambda: "")
    monkeypatch.setattr("asv.util.get_memsize", lambda: "")
    monkeypatch.setattr("platform.machine", lambda: "aarch64")
    assert machine.describe()["machine"].startswith("aarch64-")
    assert machine.describe()["machine"].endswith("-unknown-memory")


def test_the_machine_file_names_no_host_user_or_kernel(tmp_path):
    import getpass
    import platform

    name, path = machine.write_machine_file(tmp_path)
    text = path.read_text()
    assert json.loads(text)[name]["machine"] == name
    assert platform.release() not in text
    for secret in (platform.node(), getpass.getuser()):
        assert f'"{secret}"' not in text


def test_milestones_are_read_in_order_and_comments_skipped(tmp_path):
    path = tmp_path / "milestones.txt"
    path.write_text("# why\n\nabc1234 the first allocator\n-def5678 does not build\nHEAD~1   the indexed one\n")
    assert milestones.read(path) == [("abc1234", "the first allocator"), ("HEAD~1", "the indexed one")]
    assert milestones.left_out(path) == [("def5678", "does not build")]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("abc1234\n", "line 1: write the commit's hash, a space, and the reason"),
        ("abc one\nabc two\n", "line 2: abc is listed twice"),
        ("# nothing\n", "lists no commit"),
        ("-abc does not build\n", "lists no commit"),
        ("abc one\n-abc two\n", "line 2: abc is listed twice"),
        ("- reason\n", "line 1: write the commit's hash, a space, and the reason"),
    ],
)
def test_a_list_of_milestones_that_cannot_be_used_is_refused(tmp_path, text, message):
    path = tmp_path / "milestones.txt"
    path.write_text(text)
    with pytest.raises(UsageError, match=message.replace(".", r"\.")):
        milestones.read(path)


def test_a_missing_list_of_milestones_is_refused(tmp_path):
    with pytest.raises(UsageError, match=r"milestones\.txt is missing"):
        milestones.read(tmp_path / "milestones.txt")


@pytest.fixture
def repository(tmp_path, monkeypatch):
    def git(*arguments):
        settings = ["-c", "user.name=n", "-c", "user.email=e", "-c", "commit.gpgsign=false"]
        subprocess.run(["git", *settings, *arguments], cwd=tmp_path, check=True, capture_output=True)

    monkeypatch.setattr(commits, "ROOT", tmp_path)
    git("init", "-b", "main")
    for number, name in enumerate(["kvpool/a", "docs/b", "kvpool/c"]):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text("x")
        git("add", ".")
        git("commit", "-m", f"change {number}")
    return git


@pytest.mark.usefixtures("repository")
def test_the_last_changes_to_a_folder_are_found_oldest_first():
    found = commits.describe(commits.last_changes("kvpool/", 3))
    assert [each.subject for each in found] == ["change 0", "change 2"]


@pytest.mark.usefixtures("repository")
def test_a_range_is_given_as_for_git_rev_list():
    assert commits.in_range("HEAD~2..HEAD") == [commits.resolve("HEAD~1"), commits.resolve("main")]
    with pytest.raises(UsageError, match=r"the range 'HEAD\.\.HEAD' holds no commit"):
        commits.in_range("HEAD..HEAD")
    with pytest.raises(UsageError, match="git rev-list failed"):
        commits.in_range("no-such-branch")


@pytest.mark.usefixtures("repository")
def test_an_unknown_revision_is_named():
    with pytest.raises(UsageError, match="no commit is named 'nowhere'"):
        commits.resolve("nowhere")


def test_a_mistake_of_the_user_is_one_line_and_status_2(capsys, monkeypatch, tmp_path):
    monkeypatch.setattr(lock, "PATH", tmp_path / "lock")
    assert main(["bench", "no-such-branch"]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith("history: git rev-list failed")
    assert printed.err.count("\n") == 1


def test_what_failed_and_what_does_not_apply_are_told_apart(tmp_path):
    write(tmp_path, "a" * 40, {CANARY: [1.0], ALLOC: [2.0, None, math.nan, 3.0]})
    (found,) = records.load(tmp_path)
    assert found.figures == {
        Case(CANARY, ()): 1.0,
        Case(ALLOC, ("1", "'contiguous'")): 2.0,
        Case(ALLOC, ("64", "'floor'")): 3.0,
    }
    assert found.failed == [Case(ALLOC, ("1", "'floor'"))]
    assert (found.commit, found.python, found.requirements) == ("a" * 40, "3.11", {"numpy": "2.4.6"})
    assert found.measured == 1000


def test_what_another_version_of_a_benchmark_measured_is_left_out(tmp_path):
    write(tmp_path, "a" * 40, {CANARY: [1.0], ALLOC: [1.0] * 4}, versions={ALLOC: "0"})
    (found,) = records.load(tmp_path)
    assert found.benchmarks == {CANARY}


def test_the_canary_is_compared_with_its_median_on_the_same_machine(tmp_path):
    figures = [("a", 1.0, "m"), ("b", 1.2, "m"), ("c", 0.9, "m"), ("d", 9.0, "other")]
    for commit, canary, name in figures:
        write(tmp_path, commit * 40, {CANARY: [canary]}, machine=name)
    ratios = records.canary_ratios(records.load(tmp_path))
    assert ratios == {"a" * 40: 1.0, "b" * 40: pytest.approx(1.2), "c" * 40: pytest.approx(0.9), "d" * 40: 1.0}
