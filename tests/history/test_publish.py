"""That html/ is the whole new site or the whole one before, in a small repository that has a history."""

import json
import re
import shutil
import subprocess
import time
from itertools import pairwise
from pathlib import Path

import pytest
from asv.commands.publish import Publish
from asv.config import Config

import history.asv_site  # noqa: F401  (wraps Publish.run)
from history import UsageError, commits, publish, records
from history.machine import describe
from history.paths import ROOT
from history.site import corrections, libraries
from tests.history.recorded import ALLOC, CANARY, write


def git(folder: Path, *arguments: str) -> str:
    settings = ["-c", "user.name=n", "-c", "user.email=e", "-c", "commit.gpgsign=false"]
    return subprocess.run(
        ["git", *settings, *arguments], cwd=folder, check=True, capture_output=True, text=True
    ).stdout.strip()


def commit(folder: Path, speed: float, results: str = "results") -> str:
    """Make a commit and record its speed, in a folder of results that the next commit adds."""
    git(folder, "add", "--all")
    git(folder, "commit", "--allow-empty", "-m", "Change")
    found = git(folder, "rev-parse", "HEAD")
    write(folder / results, found, {CANARY: [1e-4], ALLOC: [speed] * 4})
    return found


def use(folder: Path, monkeypatch) -> None:
    """Let the package work in this repository."""

    def configuration(results=None, html=None):
        places = {"results_dir": str(results or folder / "results"), "html_dir": str(html or folder / "html")}
        return Config.from_json({"project": "kvpool", "repo": str(folder), "branches": ["main"], **places})

    monkeypatch.setattr("history.asv_calls.configuration", configuration)
    for module in (commits, publish):
        monkeypatch.setattr(module, "ROOT", folder)
    monkeypatch.setattr(publish, "SCRATCH", folder / ".asv")
    # The libraries of the page are not what is asked here.
    monkeypatch.setattr(libraries, "bring", lambda vendor: "not brought")


@pytest.fixture
def repository(tmp_path, monkeypatch):
    folder = tmp_path / "repository"
    folder.mkdir()
    git(folder, "init", "-b", "main")
    (folder / ".gitignore").write_text("/.asv/\n")
    for speed in (1e-3, 1e-3, 1e-5):
        commit(folder, speed)
    (folder / "html").mkdir()
    (folder / "html" / "index.html").write_text("the site before")
    git(folder, "add", "--all")
    git(folder, "commit", "-m", "Record")
    use(folder, monkeypatch)
    return folder


def site(folder: Path) -> dict[str, bytes]:
    html = folder / "html"
    return {str(path.relative_to(html)): path.read_bytes() for path in html.rglob("*") if path.is_file()}


def refused(folder: Path, error: type[BaseException] = UsageError) -> str:
    """Return why the site is not published, and assert that it is as it was."""
    before = site(folder)
    with pytest.raises(error) as raised:
        publish.recorded()
    assert site(folder) == before
    return str(raised.value)


def test_a_whole_site_takes_the_place_of_the_one_before(repository, capsys):
    publish.recorded()
    found = site(repository)
    assert found["index.html"] != b"the site before"
    assert any(name.startswith("graphs/") for name in found)
    assert f"The site is in {repository / 'html' / 'index.html'}" in capsys.readouterr().out
    assert git(repository, "status", "--porcelain", "--", ":!html") == ""
    assert not (repository / ".asv" / "site").exists()


def test_the_same_data_are_published_as_the_same_bytes(repository, monkeypatch):
    publish.recorded()
    first = site(repository)
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    publish.recorded()
    assert site(repository) == first
    assert time.tzname[0] == "JST"  # as it was
    monkeypatch.undo()
    time.tzset()


def test_other_data_have_another_stamp(repository):
    publish.recorded()
    first = json.loads(site(repository)["info.json"])["timestamp"]
    path = result(repository)
    path.write_text(path.read_text().replace("0.0001", "0.0002"))
    publish.recorded()
    assert json.loads(site(repository)["info.json"])["timestamp"] != first


def test_what_asv_names_after_a_host_is_ignored_and_not_published(repository, capsys):
    (repository / ".gitignore").write_text((ROOT / ".gitignore").read_text() + "!/results/m/\n")
    newest = git(repository, "rev-parse", "HEAD~1")
    write(repository / "results", newest, {CANARY: [1e-4], ALLOC: [1.0] * 4}, machine="a-host")
    write(repository / "results", newest, {CANARY: [1e-4], ALLOC: [1.0] * 4}, machine=describe()["machine"])
    publish.recorded()
    assert "Not published, as git ignores it: results/a-host." in capsys.readouterr().out
    assert json.loads(site(repository)["index.json"])["params"]["machine"] == sorted(["m", describe()["machine"]])
    assert "a-host" not in git(repository, "status", "--porcelain", "--untracked-files=all")


def test_a_commit_is_dated_after_its_ancestors(repository, monkeypatch):
    monkeypatch.setenv("GIT_COMMITTER_DATE", "2001-01-01T00:00:00Z")
    monkeypatch.setenv("GIT_AUTHOR_DATE", "2001-01-01T00:00:00Z")
    commit(repository, 1e-5)
    publish.recorded()
    dates = json.loads(site(repository)["index.json"])["revision_to_date"]
    in_order = [dates[str(revision)] for revision in sorted(map(int, dates))]
    assert len(in_order) == 4
    assert all(earlier < later for earlier, later in pairwise(in_order))


def test_regressions_are_of_kvpool_and_in_one_order():
    names = ["bench_b.X.t(64, 'list')", "bench_b.X.t(64, 'kvpool')", CANARY, "bench_a.Y.t(1, 'x'y')", "bench_a.Y.t"]
    found = [[name, "graphs/a.json", {}, 0, 1.0, 1.0, []] for name in names]
    corrections.tidy(found)
    assert [each[0] for each in found] == ["bench_a.Y.t", "bench_a.Y.t(1, 'x'y')", "bench_b.X.t(64, 'kvpool')"]


def test_the_feed_has_no_link_to_a_commit_without_an_address(repository):
    for _ in range(3):
        commit(repository, 1.0)
    publish.recorded()
    feed = site(repository)["regressions.xml"].decode()
    assert "regression&lt;/a&gt; on " in feed
    assert "'floor'" not in feed
    assert "in commit" in feed
    assert 'href="#' not in feed


def result(folder: Path) -> Path:
    return next((folder / "results" / "m").glob("*-env.json"))


@pytest.mark.parametrize("which", ["benchmarks.json", "m/machine.json", "result"])
@pytest.mark.parametrize("keep", [0, 1, 40])
def test_a_truncated_file_is_named(repository, which, keep):
    path = result(repository) if which == "result" else repository / "results" / which
    path.write_bytes(path.read_bytes()[:keep])
    assert refused(repository).startswith(f"{path.relative_to(repository)} cannot be used (JSONDecodeError: ")


def test_a_file_that_is_whole_and_says_something_else_is_named(repository):
    path = result(repository)
    path.write_text('{"version": 2}')
    assert f"{path.relative_to(repository)} cannot be used (UserError: " in refused(repository)


@pytest.mark.parametrize("which", ["m/machine.json", "result"])
def test_a_file_that_git_has_and_the_folder_has_not_is_named(repository, which):
    path = result(repository) if which == "result" else repository / "results" / which
    path.unlink()
    assert refused(repository).startswith(f"{path.relative_to(repository)} is missing, which git has")


def test_a_machine_that_git_does_not_have_either_is_named(repository):
    git(repository, "rm", "-q", "results/m/machine.json")
    assert "results/m/machine.json cannot be used (it is missing)" in refused(repository)


def test_no_record_at_all_says_what_to_do(repository):
    shutil.rmtree(repository / "results")
    assert "'make history' measures the milestones" in refused(repository)


def test_a_shallow_clone_is_named(repository, tmp_path, monkeypatch):
    shallow = tmp_path / "shallow"
    git(tmp_path, "clone", "-q", "--depth", "1", f"file://{repository}", str(shallow))
    use(shallow, monkeypatch)
    text = refused(shallow)
    assert text.startswith("3 of 3 recorded commits are not in the branch main: ")
    assert "this is a shallow clone: 'git fetch --unshallow'" in text
    with pytest.raises(UsageError, match=r"not in this repository.*this is a shallow clone"):
        publish.beside_history(shallow / "results")


def test_a_commit_of_another_branch_is_named(repository):
    git(repository, "checkout", "-q", "-b", "other")
    other = commit(repository, 1e-4)
    git(repository, "checkout", "-q", "main")
    assert refused(repository) == f"1 of 4 recorded commits are not in the branch main: {other[:8]}"


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_a_site_that_is_not_finished_is_not_shown(repository, error, monkeypatch):
    def fail(*_):
        raise error("planted")

    monkeypatch.setattr("history.asv_site.finish", fail)
    assert "planted" in refused(repository, error)


def test_a_site_without_graphs_is_not_shown(repository, monkeypatch):
    monkeypatch.setattr("asv.commands.publish.Publish.iter_results", staticmethod(lambda *_: iter(())))
    assert refused(repository).startswith("the new site lacks ")


def test_a_site_that_cannot_be_put_in_place_leaves_the_one_before(repository, monkeypatch):
    move = shutil.move

    def full(source, target):
        if source.name == "new":
            raise OSError("No space left on device")
        return move(source, target)

    monkeypatch.setattr(shutil, "move", full)
    assert "No space left" in refused(repository, OSError)


def test_what_was_measured_of_commits_that_are_gone_is_left_out(repository, capsys):
    git(repository, "checkout", "-q", "-b", "other")
    commit(repository, 1e-4, ".asv/results")
    gone = commit(repository, 1e-4, ".asv/results")
    git(repository, "reset", "-q", "--hard", "HEAD~1")
    publish.beside_history(repository / ".asv" / "results")
    assert f"Not shown: {gone[:8]}, which no branch has any more." in capsys.readouterr().out
    assert len(list((repository / ".asv" / "together" / "m").glob("*-env.json"))) == 4
    assert (repository / ".asv" / "html" / "index.json").is_file()
    assert site(repository) == {"index.html": b"the site before"}


def test_what_was_measured_here_wins_over_what_is_recorded(repository):
    recorded = result(repository)
    found = json.loads(recorded.read_text())["commit_hash"]
    write(repository / ".asv" / "results", found, {CANARY: [7.0], ALLOC: [1.0] * 4})
    write(repository / ".asv" / "results", found, {CANARY: [3.0], ALLOC: [1.0] * 4}, machine="newcomer")
    publish.beside_history(repository / ".asv" / "results")
    together = repository / ".asv" / "together"
    figures = [
        json.loads((together / name / recorded.name).read_text())["results"][CANARY][0] for name in ("m", "newcomer")
    ]
    assert figures == [[7.0], [3.0]]
    assert len(list(together.glob("*/*-env.json"))) == 4


def configured() -> dict[str, dict[str, float | None]]:
    """Return what asv.conf.json says of regressions."""
    conf = Config.load(str(ROOT / "asv.conf.json"))
    return {name: getattr(conf, name) for name in ("regressions_first_commits", "regressions_thresholds")}


def regressions(folder: Path, figures: list[list[float]]) -> set[str]:
    """Publish a history of these figures of ALLOC, and return the cases that are listed as regressions."""
    folder.mkdir()
    git(folder, "init", "-b", "main")
    for each in figures:
        write(folder / "results", commit(folder, 1.0), {CANARY: [each[1]], ALLOC: each})
    places = {"results_dir": str(folder / "results"), "html_dir": str(folder / "html")}
    conf = Config.from_json({"project": "kvpool", "repo": str(folder), "branches": ["main"], **places, **configured()})
    Publish.run(conf, pull=False)
    feed = (folder / "html" / "regressions.xml").read_text()
    found = {each[0] for each in json.loads((folder / "html" / "regressions.json").read_text())["regressions"]}
    assert all(name in feed for name in found)
    assert feed.count("<entry>") == len(found)
    return found


def test_what_runs_no_code_of_kvpool_is_never_listed_as_a_regression(tmp_path, monkeypatch):
    monkeypatch.setattr(libraries, "bring", lambda vendor: "not brought")
    monkeypatch.setattr(commits, "ROOT", tmp_path / "slower")
    before, after = [1e-3, 1e-3, 1e-3, 1e-3], [1e-3, 2e-3, 3e-3, 2e-3]  # contiguous and floor, for 1 and 64 pages
    assert regressions(tmp_path / "slower", [before] * 4 + [after] * 4) == {f"{ALLOC}(64, 'contiguous')"}


def test_a_time_within_the_noise_is_not_listed_as_a_regression(tmp_path, monkeypatch):
    monkeypatch.setattr(libraries, "bring", lambda vendor: "not brought")
    monkeypatch.setattr(commits, "ROOT", tmp_path / "noisy")
    assert regressions(tmp_path / "noisy", [[1e-3] * 4] * 4 + [[1.14e-3] * 4] * 4) == set()


def test_what_is_configured_to_be_no_regression_is_what_runs_no_code_of_kvpool():
    patterns = configured()["regressions_first_commits"]
    recorded = {case for record in records.load(ROOT / "results") for case in record.figures}
    made_up = {records.Case("bench_a.A.time_a", each) for each in [("1", name) for name in records.REFERENCES]}
    made_up |= {records.Case("bench_a.A.time_a", each) for each in [("'floored'",), ("'alloc list'", "1"), ()]}
    for case in recorded | made_up:
        unlisted = any(re.match(pattern, f"{case}@main") for pattern in patterns)
        assert unlisted == records.is_control(case), case
