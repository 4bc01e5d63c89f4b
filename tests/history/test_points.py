"""Which commits are points of the history, in a small repository whose changes have known sizes."""

import subprocess

import pytest

from history import UsageError, commits, measure, milestones, points
from history.__main__ import main
from history.milestones import Milestone
from history.paths import MILESTONES


def lines(count, prefix="x"):
    return "".join(f"{prefix}{number} = {number}\n" for number in range(count))


@pytest.fixture
def repository(tmp_path, monkeypatch):
    """Return a function that writes a file, commits it and returns the hash."""
    monkeypatch.setattr(commits, "ROOT", tmp_path)

    def git(*arguments):
        settings = ["-c", "user.name=n", "-c", "user.email=e", "-c", "commit.gpgsign=false"]
        done = subprocess.run(["git", *settings, *arguments], cwd=tmp_path, check=True, capture_output=True, text=True)
        return done.stdout.strip()

    def change(name, text, subject="change"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        git("add", "--all")
        git("commit", "-m", subject)
        return git("rev-parse", "HEAD")

    git("init", "-b", "main")
    change.git = git
    return change


def chosen(first, *excluded):
    return {each.commit: each for each in points.choose("main", [Milestone(first, "begins")], excluded)}


def test_large_changes_the_milestones_and_the_last_change_are_points(repository):
    before = repository("kvpool/z.py", lines(200))
    first = repository("kvpool/a.py", "x = 1\n")
    small = repository("kvpool/a.py", "x = 2\n")
    large = repository("kvpool/b.py", lines(points.LINES))
    tests = repository("tests/c.py", lines(200))
    almost = repository("kvpool/d.py", lines(points.LINES - 1, "y"))
    build = repository("setup.py", "x = 3\n")
    found = chosen(first)
    assert [each for each, change in found.items() if change.is_point] == [first, large, build]
    assert [found[each].reason for each in (first, large, build)] == ["begins", "large", "the last change"]
    assert found[small] == (small, "change", 2, False, f"small, seen at {large[:8]}")
    assert found[almost].reason == f"small, seen at {build[:8]}"
    assert not {before, tests} & set(found)


def test_what_is_no_code_is_left_out_however_long_it_is(repository):
    first = repository("kvpool/a.py", "def f(x):\n    return g(x)\n")
    others = [
        repository("kvpool/a.py", '"A module."\n\n\ndef f(x):\n    # why\n    return g(\n        x)\n'),
        repository("kvpool/a.pyi", lines(200)),
        repository("kvpool/b.h", "// a\n" * 200 + "/*\n a\n*/\n"),
        repository("kvpool/notes.txt", lines(200)),
    ]
    found = chosen(first)
    assert [found[each].is_point for each in others] == [False] * 4
    assert {found[each].reason for each in others} == {"no code: comments, docstrings, types, or lines that moved"}


def test_code_that_moves_between_files_has_not_changed(repository, tmp_path):
    first = repository("kvpool/a.py", lines(200))
    (tmp_path / "kvpool" / "a.py").unlink()
    moved = repository("kvpool/b.py", lines(200))
    assert chosen(first)[moved].lines == 0


def test_a_merge_is_one_change_of_the_branch(repository):
    first = repository("kvpool/a.py", "x = 1\n")
    repository.git("checkout", "-b", "aside")
    inside = [repository("kvpool/b.py", lines(60)), repository("kvpool/c.py", lines(60))]
    repository.git("checkout", "main")
    repository.git("merge", "--no-ff", "-m", "merge", "aside")
    found = chosen(first)
    assert found[commits.resolve("main")].lines == 120
    assert not set(inside) & set(found)


def test_later_changes_leave_the_points_as_they_are(repository):
    first = repository("kvpool/a.py", "x = 1\n")
    repository("kvpool/b.py", lines(200))
    repository("kvpool/a.py", "x = 2\n")
    before = [each for each in chosen(first).values() if each.is_point]
    repository("kvpool/c.py", lines(200, "z"))
    after = [each for each in chosen(first).values() if each.is_point]
    assert after[:2] == before[:2]
    assert [each.reason for each in after] == ["begins", "large", "large"]


def test_a_commit_that_cannot_be_measured_is_no_point_and_says_why(repository):
    first = repository("kvpool/a.py", "x = 1\n")
    small = repository("kvpool/a.py", "x = 2\n")
    broken = repository("kvpool/b.py", lines(200))
    found = chosen(first, Milestone(broken[:10], "does not compile"))
    assert found[broken][3:] == (False, "does not compile")
    assert found[small][3:] == (True, "the last change")


def test_a_milestone_that_changes_nothing_of_kvpool_is_refused(repository):
    repository("kvpool/a.py", "x = 1\n")
    elsewhere = repository("docs/a.md", "text\n")
    with pytest.raises(UsageError, match=rf"{elsewhere[:8]} of the milestones is no change to kvpool/ on main"):
        chosen(elsewhere)


def test_a_shallow_clone_that_lacks_the_beginning_says_so(repository, tmp_path, monkeypatch):
    first = repository("kvpool/a.py", "x = 1\n")
    repository("kvpool/a.py", "x = 2\n")
    repository.git("clone", "--depth", "1", f"file://{tmp_path}", "shallow")
    monkeypatch.setattr(commits, "ROOT", tmp_path / "shallow")
    with pytest.raises(UsageError, match="shallow clone"):
        chosen(first)


def test_source_that_python_cannot_split_is_counted_by_lines():
    assert points.code("a.pyx", "x = (\n\n  y\n") == ["x = (", "y"]


def test_both_lists_are_printed(repository):
    first = repository("kvpool/a.py", "x = 1\n", "One")
    repository("kvpool/a.py", "x = 2\n", "Two")
    repository("kvpool/b.py", lines(100), "Three")
    printed = points.as_text(list(chosen(first).values()))
    recorded, left_out = printed.split("left out: 1\n")
    assert "recorded: 2\n" in recorded
    assert "100  Three  (large)" in recorded
    assert "2  Two  (small, seen at " in left_out


def test_the_list_is_printed_while_another_command_measures(monkeypatch, capsys):
    monkeypatch.setattr("history.lock.held", lambda command: pytest.fail("waits"))
    monkeypatch.setattr(points, "choose", lambda *_: [points.Change("a" * 40, "One", 2, True, "begins")])
    assert main(["record", "--list"]) == 0
    assert "aaaaaaaa     2  One  (begins)" in capsys.readouterr().out
    assert main(["record", "--list", "a..b"]) == 2


def test_more_points_than_can_be_recorded_are_refused(monkeypatch):
    many = [points.Change(str(number), "", 100, True, "large") for number in range(points.MOST + 1)]
    monkeypatch.setattr(points, "choose", lambda *_: many)
    with pytest.raises(UsageError, match=r"31 commits are points of the history, more than 30: raise LINES"):
        measure.record(None)


def test_this_history_has_25_to_30_points_and_its_milestones_among_them():
    if commits.is_shallow() or not commits.git("rev-parse", "--git-dir", check=False):
        pytest.skip("needs a git repository with its whole history")
    named = milestones.read(MILESTONES)
    found = points.choose("HEAD", named, milestones.left_out(MILESTONES))
    kept = [each for each in found if each.is_point]
    assert 25 <= len(kept) <= points.MOST
    assert kept[0].commit.startswith(named[0].commit)
    assert {each.reason for each in named} <= {each.reason for each in kept}
    assert all(each.reason for each in found)
