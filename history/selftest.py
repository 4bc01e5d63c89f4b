"""Plant faults, each in a throwaway clone, and see that the comparison finds it and says what it should."""

import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from history import UsageError, asv_calls, records
from history.compare import sides
from history.paths import ROOT, SCRATCH
from history.status import Status

PASSED, REGRESSED, NOT_MEASURED = Status

ROUNDS = 3
BUILT = SCRATCH / "selftest"
ALLOC = r"^bench_host\.ChurnedAlloc\.time_alloc\(64, 'fifo'\)$"
FREE = r"^bench_host\.Free\.time_free\(64, 'kvpool'\)$"
RETAINED = r"^bench_memory\.HostRetention\.track_retained_bytes\('fifo'\)$"
OPERATIONS = r"^bench_memory\.HostAten\.track_aten_ops\('fifo'\)$"


class Clone:
    """A throwaway clone of the repository's HEAD that shares its environments."""

    def __init__(self, folder: Path):
        self.folder = folder
        subprocess.run(["git", "clone", "--quiet", "--shared", str(ROOT), str(folder)], check=True)
        self.git("checkout", "--quiet", "-B", "main")
        scratch = folder / SCRATCH.name
        scratch.mkdir()
        # What all clones share: asv's environment, the page's libraries, and the sides that are measured twice.
        for name, shared in (("env", SCRATCH / "env"), ("npm", SCRATCH / "npm"), ("compare", BUILT)):
            shared.mkdir(parents=True, exist_ok=True)
            (scratch / name).symlink_to(shared)

    def git(self, *arguments: str) -> None:
        """Run git in the clone."""
        settings = ["-c", "user.name=selftest", "-c", "user.email=selftest", "-c", "commit.gpgsign=false"]
        subprocess.run(["git", *settings, *arguments], cwd=self.folder, check=True)

    def commit(self, name: str) -> None:
        """Commit everything, and give the commit a branch of that name."""
        self.git("add", "--all")
        self.git("commit", "--quiet", "--allow-empty", "--message", f"Planted: {name}")
        self.branch(name)

    def branch(self, name: str) -> None:
        """Give the commit that is checked out a branch of that name."""
        self.git("branch", "--force", name)

    def append(self, path: str, text: str) -> None:
        """Add text to the end of a file, which has to be there."""
        with (self.folder / path).open("r+") as file:
            file.seek(0, 2)
            file.write(text)

    def replace(self, path: str, old: str, new: str) -> None:
        """Replace what is in a file exactly once."""
        text = (self.folder / path).read_text()
        if text.count(old) != 1:
            raise UsageError(f"{path} does not hold {old!r} exactly once: the fault cannot be planted")
        (self.folder / path).write_text(text.replace(old, new))

    def history(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run a command of this package in the clone."""
        command = [sys.executable, "-m", "history", *arguments]
        return subprocess.run(command, cwd=self.folder, capture_output=True, text=True)


class Fault(NamedTuple):
    """What to plant, and what the comparison has to answer."""

    name: str
    plant: Callable[[Clone], None]  # makes the branches base and head
    benchmarks: list[str]
    status: int
    says: list[str]  # each is somewhere in the report
    base: str = "base"
    head: str = "head"
    also: Callable[[Clone], str | None] | None = None  # returns what is wrong beyond the comparison


def _at_head(path: str, text: str) -> Callable[[Clone], None]:
    """Return what plants `text` at the end of a file of HEAD."""

    def plant(clone: Clone) -> None:
        clone.branch("base")
        clone.append(path, text)
        clone.commit("head")

    return plant


SLOW_FREE = """

from time import perf_counter_ns as _clock

_Pool = HostAllocator


class HostAllocator(_Pool):
    def free(self, slots):
        start = _clock()
        freed = super().free(slots)
        end = _clock()
        while _clock() < end + 3 * (end - start) // 10:
            pass
        return freed
"""

COPIED_RESULT = """

_Pool = HostAllocator


class HostAllocator(_Pool):
    def alloc(self, need_size):
        slots = super().alloc(need_size)
        return None if slots is None else slots.clone()
"""

PINNED_RESULT = """

import torch

_Pool = HostAllocator


class HostAllocator(_Pool):
    def alloc(self, need_size):
        slots = super().alloc(need_size)
        if slots is None:
            return None
        view = torch.empty(self.size, dtype=torch.int64)[: slots.numel()]
        view.copy_(slots)
        return view
"""

RAISING_ALLOC = """

_Pool = HostAllocator


class HostAllocator(_Pool):
    def alloc(self, need_size):
        return 1 / 0
"""

ALLOCATE = """    def _alloc(self, need_size, policy):
"""

# In the middle of what is compiled; what it works out is asked for, so that no compiler leaves it away.
WORK_IN_ALLOC = """        turn: cython.longlong
        worked: cython.ulonglong = self.page_size
        for turn in range(10_000):
            worked = worked * 6364136223846793005 + turn
        if worked == 7:
            return None
"""

RAISING_BENCHMARK = """
class Planted:
    version = "1"

    def time_nothing(self):
        raise RuntimeError("planted")
"""


def _loop(clone: Clone) -> None:
    clone.replace("kvpool/host.py", ALLOCATE, ALLOCATE + WORK_IN_ALLOC)
    clone.commit("base")
    # As long as before: what a build remembers of a file, its size and time, may be the same.
    clone.replace("kvpool/host.py", "range(10_000)", "range(99_000)")
    clone.commit("head")


def _loop_in_history(clone: Clone) -> str | None:
    """Measure the two loops one after the other in asv's own environment, as the history does."""
    done = clone.history("bench", "--bench", ALLOC, "base^..head")
    if done.returncode:
        return f"make bench failed: {asv_calls.explanation(done.stderr or done.stdout)}"
    found = [sum(each.figures.values()) for each in records.load(clone.folder / ".asv" / "results")]
    if len(found) != 2 or max(found) < 2 * min(found):
        return f"asv measured {found} for loops of 10,000 and 99,000 turns"
    return None


def _nothing(clone: Clone) -> None:
    clone.branch("base")
    clone.append("README.md", "\n")
    clone.commit("head")


def _raising_suite(clone: Clone) -> None:
    _nothing(clone)
    (clone.folder / "benchmarks" / "bench_planted.py").write_text(RAISING_BENCHMARK)


def _no_package(clone: Clone) -> None:
    clone.branch("head")
    clone.git("rm", "-r", "--quiet", "kvpool")
    clone.commit("base")
    clone.git("checkout", "--quiet", "head")


FAULTS = [
    Fault("nothing but the README changed", _nothing, [ALLOC], PASSED, ["No regression: 1 case of 1 benchmark"]),
    Fault("HEAD is BASE", _nothing, [ALLOC], PASSED, ["BASE and HEAD are the same commit"], "base", "base"),
    Fault(
        "a 1.3x slowdown in free",
        _at_head("kvpool/__init__.py", SLOW_FREE),
        [FREE],
        REGRESSED,
        ["1 confirmed regression: 1 case of 1 benchmark", "## Slower\n\n`bench_host.Free.time_free`"],
    ),
    Fault(
        "one more copy of the result in alloc",
        _at_head("kvpool/__init__.py", COPIED_RESULT),
        [ALLOC, OPERATIONS],
        REGRESSED,
        ["confirmed regression", "## Exact counts that grew\n\n`bench_memory.HostAten.track_aten_ops`"],
    ),
    Fault(
        "a result that keeps the pool alive",
        _at_head("kvpool/__init__.py", PINNED_RESULT),
        [RETAINED],
        REGRESSED,
        ["confirmed regression", "## Exact counts that grew\n\n`bench_memory.HostRetention.track_retained_bytes`"],
    ),
    Fault(
        "a compiled loop whose constant changed",
        _loop,
        [ALLOC],
        REGRESSED,
        ["1 confirmed regression", "## Slower\n\n`bench_host.ChurnedAlloc.time_alloc`"],
        also=_loop_in_history,
    ),
    Fault(
        "an import that fails",
        _at_head("kvpool/__init__.py", '\nraise ImportError("planted")\n'),
        [ALLOC],
        NOT_MEASURED,
        ["Not measured: HEAD (", "kvpool cannot be imported: ImportError: planted."],
    ),
    Fault(
        "an allocator that raises",
        _at_head("kvpool/__init__.py", RAISING_ALLOC),
        [ALLOC, FREE],
        NOT_MEASURED,
        ["Not measured: ", "failed on HEAD (", "ZeroDivisionError: division by zero"],
    ),
    Fault(
        "a benchmark that raises",
        _raising_suite,
        [ALLOC, "Planted"],
        NOT_MEASURED,
        ["Not measured: 1 benchmark failed on BASE and HEAD (bench_planted.Planted.time_nothing)", "planted"],
    ),
    Fault(
        "a range without the package",
        _no_package,
        [ALLOC],
        NOT_MEASURED,
        ["Not measured: BASE (", "cannot be built"],
    ),
    Fault(
        "a revision that is not there",
        _nothing,
        [ALLOC],
        NOT_MEASURED,
        ["Not measured: no commit is named 'no-such-branch'"],
        "no-such-branch",
    ),
    Fault(
        "no benchmark in common",
        _nothing,
        [r"^bench_host\.none$"],
        NOT_MEASURED,
        ["Not measured: no benchmark matches"],
    ),
]


def run(only: str | None = None) -> int:
    """Plant each fault (or those whose name holds `only`); return 0 if all were found, 1 if not."""
    chosen = [fault for fault in FAULTS if only is None or only in fault.name]
    if not chosen:
        raise UsageError(f"no fault is named {only!r}; they are: {', '.join(fault.name for fault in FAULTS)}")
    sides.shared_environment(asv_calls.configuration())
    shutil.rmtree(BUILT, ignore_errors=True)
    missed = 0
    for fault in chosen:
        began = time.monotonic()
        with tempfile.TemporaryDirectory(prefix="kvpool-selftest-") as folder:
            wrong, report = _try(fault, Clone(Path(folder) / "clone"))
        missed += bool(wrong)
        sentence = re.search(r"\*\*(.*)\*\*", report)
        said = sentence[1] if sentence else "nothing"
        print(f"{'MISSED' if wrong else 'ok    '} {fault.name} ({time.monotonic() - began:.0f} s): {said}", flush=True)
        for line in wrong:
            print(f"       {line}")
        if wrong:
            print("".join(f"       | {line}\n" for line in report.splitlines()))
    shutil.rmtree(BUILT)
    print(f"{len(chosen) - missed} of {len(chosen)} planted faults were found and named")
    return 1 if missed else 0


def _try(fault: Fault, clone: Clone) -> tuple[list[str], str]:
    """Return what was not as it should be, and the report (or what was printed in its place)."""
    fault.plant(clone)
    patterns = [word for pattern in fault.benchmarks for word in ("--bench", pattern)]
    done = clone.history("compare", fault.base, fault.head, "--rounds", str(ROUNDS), *patterns)
    wrong = []
    if done.returncode != fault.status:
        wrong.append(f"status {done.returncode} instead of {fault.status}")
    wrong += [f"the report does not say: {text!r}" for text in fault.says if text not in done.stdout]
    if not wrong and fault.also is not None and (problem := fault.also(clone)):
        wrong.append(problem)
    return wrong, done.stdout if not wrong else f"{done.stdout}\n{done.stderr}"
