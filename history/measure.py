"""Measure commits: a few for a look, or the points of the history for the record."""

import time
from pathlib import Path

from history import UsageError, asv_calls, commits, milestones, points, publish
from history.milestones import Milestone
from history.paths import MILESTONES, SCRATCH
from history.recording import EVERYTHING, Recording

LOOK_BACK = 3
# How often a disturbed commit is measured again.
TRIES = 2


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


def record(spec: str | None, with_instructions: bool = True) -> int:
    """Measure what is not yet measured of the history's points (or a range) into results/, then publish html/.

    A commit whose canary shows that the machine was disturbed is measured again, and marked if it stays so. It can be
    interrupted at any time: finished commits are kept, and the next call goes on with the others.
    """
    conf = asv_calls.configuration()
    wanted = _in_range(spec) if spec else _points(conf)
    recording = Recording(Path(conf.results_dir), with_instructions)
    recording.prepare(wanted[-1].commit)

    _measure_missing(recording, wanted)
    measured = [each.commit for each in wanted if recording.unmeasured(each.commit) != EVERYTHING]
    _measure_disturbed(recording, measured)
    took = recording.finish([each.commit for each in wanted])
    try:
        if measured:
            publish.recorded()
    finally:
        print(took)
    return _tell(recording, wanted, measured)


def _tell(recording: Recording, wanted: list[Milestone], measured: list[str]) -> int:
    """Print what is not as it should be; return 1 where something is not measured."""
    failed = 0
    disturbed = recording.disturbed(measured)
    for each in wanted:
        name = f"{each.commit[:8]} {each.reason}"
        if each.commit in disturbed:
            print(f"disturbed: {name} (canary at {disturbed[each.commit]:.2f} of its median)")
        if each.commit in measured and recording.is_uncounted(each.commit):
            print(f"no instructions: {name}")
        for case in recording.unmeasured(each.commit):
            print(f"failed: {each.commit[:8]} {case}")
            failed = 1
    return failed


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


def _measure_missing(recording: Recording, wanted: list[Milestone]) -> None:
    todo = [each for each in wanted if recording.unmeasured(each.commit)]
    print(f"{len(wanted) - len(todo)} of {len(wanted)} commits are measured on this machine.", flush=True)
    began = time.monotonic()
    for done, each in enumerate(todo):
        minutes = (time.monotonic() - began) / 60
        left = f", about {minutes / done * (len(todo) - done):.0f} min left" if done else ""
        print(f"\n[{done + 1}/{len(todo)}{left}] {each.commit[:8]} {each.reason}", flush=True)
        recording.measure(each.commit)


def _measure_disturbed(recording: Recording, measured: list[str]) -> None:
    for _ in range(TRIES):
        for commit, ratio in recording.disturbed(measured).items():
            row = recording.rows.get(commit)
            if row and row.measurements > TRIES:
                continue
            print(f"\nagain: {commit[:8]}, its canary was at {ratio:.2f} of its median", flush=True)
            recording.measure_again(commit)
