"""Measure commits: a few for a look, or the points of the history for the record."""

import time
from pathlib import Path

from history import UsageError, asv_calls, commits, milestones, points, publish, records
from history.machine import describe
from history.milestones import Milestone
from history.paths import MILESTONES, SCRATCH

LOOK_BACK = 3
TRIES = 3


def bench(spec: str | None, benchmarks: list[str] | None = None) -> int:
    """Measure the commits of the range `spec` and publish them, all of it under .asv/.

    The default is the last changes to kvpool/. `benchmarks` are regular expressions, as for asv. Returns the exit
    status of asv.
    """
    if changed := commits.uncommitted("kvpool/"):
        print(f"Not measured, as it is not committed: {', '.join(changed)}.")
    hashes = commits.in_range(spec) if spec else commits.last_changes("kvpool/", LOOK_BACK)
    if not hashes:
        raise UsageError("no commit changes kvpool/; name a range, as for git rev-list")
    results = SCRATCH / "results"
    status = asv_calls.run(asv_calls.configuration(results=results), hashes[::-1], bench=benchmarks)
    publish.beside_history(results)
    return status


def record(spec: str | None) -> int:
    """Measure what is not yet measured of the history's points (or a range) into results/, then publish html/.

    A commit whose canary shows that the machine was disturbed is measured again. It can be interrupted at any
    time: finished commits are kept, and the next call goes on with the others.
    """
    conf = asv_calls.configuration()
    results = Path(conf.results_dir)
    wanted = _in_range(spec) if spec else _points(conf)
    asv_calls.run(conf, [wanted[-1].commit], bench=["just-discover"])
    environment = asv_calls.environment_name(conf)

    _measure_missing(conf, wanted, results, environment)
    disturbed = _measure_disturbed(conf, wanted, results, environment)
    publish.recorded()

    unmeasured = {each.commit: _unmeasured(each.commit, results, environment) for each in wanted}
    for each in wanted:
        if each.commit in disturbed:
            ratio = disturbed[each.commit]
            print(f"disturbed: {each.commit[:8]} {each.reason} (canary at {ratio:.2f} of its best)")
        for case in unmeasured[each.commit]:
            print(f"failed: {each.commit[:8]} {case}")
    return 1 if any(unmeasured.values()) else 0


def show_points() -> int:
    """Print which commits are recorded, and why the others are not."""
    print(points.as_text(_changes(asv_calls.configuration())))
    return 0


def _in_range(spec: str) -> list[Milestone]:
    return [Milestone(each.hash, each.subject) for each in commits.describe(commits.in_range(spec))]


def _points(conf) -> list[Milestone]:
    chosen = [Milestone(each.commit, each.subject) for each in _changes(conf) if each.is_point]
    if len(chosen) > points.MOST:
        raise UsageError(
            f"{len(chosen)} commits are points of the history, more than {points.MOST}: raise LINES in "
            "history/points.py, or name a range"
        )
    return chosen


def _changes(conf) -> list[points.Change]:
    return points.choose(conf.branches[0], milestones.read(MILESTONES), milestones.left_out(MILESTONES))


def _measure_missing(conf, wanted: list[Milestone], results: Path, environment: str) -> None:
    todo = [each for each in wanted if _unmeasured(each.commit, results, environment)]
    print(f"{len(wanted) - len(todo)} of {len(wanted)} commits are measured on this machine.", flush=True)
    began = time.monotonic()
    for done, each in enumerate(todo):
        minutes = (time.monotonic() - began) / 60
        left = f", about {minutes / done * (len(todo) - done):.0f} min left" if done else ""
        print(f"\n[{done + 1}/{len(todo)}{left}] {each.commit[:8]} {each.reason}", flush=True)
        asv_calls.run(conf, [each.commit], only_missing=True)


def _measure_disturbed(conf, wanted: list[Milestone], results: Path, environment: str) -> dict[str, float]:
    """Measure disturbed commits again, a few times; return those that stay so, with their canary's ratio."""
    for _ in range(TRIES):
        disturbed = _disturbed(wanted, results, environment)
        for commit, ratio in disturbed.items():
            print(f"\nagain: {commit[:8]}, its canary was at {ratio:.2f} of its best", flush=True)
            asv_calls.run(conf, [commit])
    return _disturbed(wanted, results, environment)


def _disturbed(wanted: list[Milestone], results: Path, environment: str) -> dict[str, float]:
    ratios = records.canary_ratios(_here(results, environment))
    found = {each.commit: ratios.get(each.commit, 0.0) for each in wanted}
    return {commit: ratio for commit, ratio in found.items() if ratio > records.DISTURBED}


def _unmeasured(commit: str, results: Path, environment: str) -> list[str]:
    """Return the names of what today's suite has and `commit` has no result of, on this machine."""
    found = [each for each in _here(results, environment) if each.commit == commit]
    if not found:
        return ["everything"]
    missing = records.suite(results).keys() - found[0].benchmarks
    return sorted(missing) + [str(case) for case in found[0].failed]


def _here(results: Path, environment: str) -> list[records.Record]:
    here = describe()["machine"], environment
    return [each for each in records.load(results) if (each.machine, each.environment) == here]
