"""Plant faults, each in a throwaway clone, and see that the commands find it and say what they should."""

import contextlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from history import UsageError, asv_calls, comment, records
from history.compare import sides
from history.paths import ROOT, SCRATCH
from history.status import Status

PASSED, REGRESSED, NOT_MEASURED = Status

ROUNDS = 3
BUILT = SCRATCH / "selftest"
ALLOC = r"^bench_host\.ChurnedAlloc\.time_alloc\(64, 'fifo'\)$"
SMALL_ALLOC = r"^bench_host\.ChurnedAlloc\.time_alloc\(1, 'fifo'\)$"
FREE = r"^bench_host\.Free\.time_free\(64, 'kvpool'\)$"
RETAINED = r"^bench_memory\.HostRetention\.track_retained_bytes\('fifo'\)$"
OPERATIONS = r"^bench_memory\.HostAten\.track_aten_ops\('fifo'\)$"
BOOKS = r"^bench_memory\.Books\.track_book_bytes_per_page\('host'\)$"


class Clone:
    """A throwaway clone of the repository's HEAD that shares its environments."""

    def __init__(self, folder: Path, shallow: bool = False):
        self.folder = folder
        self.variables = dict(os.environ)
        source = ["--depth", "1", f"file://{ROOT}"] if shallow else ["--shared", str(ROOT)]
        subprocess.run(["git", "clone", "--quiet", *source, str(folder)], check=True)
        self.git("checkout", "--quiet", "-B", "main")
        self.branch("base")
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

    def commit(self, name: str, subject: str = "Planted") -> None:
        """Commit everything, and give the commit a branch of that name."""
        self.git("add", "--all")
        self.git("commit", "--quiet", "--allow-empty", "--allow-empty-message", "--message", subject)
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

    def command(self, *arguments: str) -> list[str]:
        """Return the words of a command of this package."""
        return [sys.executable, "-m", "history", *arguments]

    def history(self, *arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
        """Run a command of this package in the clone."""
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "encoding": "utf-8"}
        options = {**pipes, "env": self.variables, **options}
        return subprocess.run(self.command(*arguments), cwd=self.folder, **options)

    def compare(self, fault: "Fault", **options: Any) -> subprocess.CompletedProcess[str]:
        """Ask the fault's question."""
        patterns = [word for pattern in fault.benchmarks for word in ("--bench", pattern)]
        rounds = ["--rounds", str(ROUNDS)]
        return self.history("compare", fault.base, fault.head, *rounds, *patterns, *fault.options, **options)


class Fault(NamedTuple):
    """What to plant, and what the comparison has to answer."""

    name: str
    plant: Callable[[Clone], object]  # may move the branches base, where the clone is, and head
    benchmarks: Sequence[str]
    status: Status
    says: Sequence[str]  # each is somewhere in the report
    base: str = "base"
    head: str = "head"
    options: Sequence[str] = ()
    # What is right with a busy neighbour on every core; without any, it is not asked.
    noisy: Sequence[Status] = ()
    # Returns what is wrong beyond the comparison.
    also: Callable[[Clone, "Fault"], str | None] | None = None


def _at_head(path: str, text: str) -> Callable[[Clone], None]:
    """Return what plants `text` at the end of a file of HEAD."""

    def plant(clone: Clone) -> None:
        clone.append(path, text)
        clone.commit("head")

    return plant


SLOW_FREE = """

from time import perf_counter_ns as _clock

_Pool = HostAllocator


class HostAllocator(_Pool):
    def free(self, slots, **options):
        start = _clock()
        freed = super().free(slots, **options)
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
        factor: cython.ulonglong = 6364136223846793005
        worked: cython.ulonglong = self.page_size
        for turn in range(10_000):
            worked = worked * factor + turn
        if worked == 7:
            return None
"""

IN_USE = """        number: cython.longlong = self._in_use(row if type(row) is int else as_int(row, "row"))
        rows: TokenRows = self.rows
        start"""

# A few instructions more in one method of one class, a share of it that no time shows. Without the shift a compiler
# knows beforehand which number leads to 7.
A_LITTLE_WORK = """        turn: cython.longlong
        factor: cython.ulonglong = 6364136223846793005
        worked: cython.ulonglong = number
        for turn in range(6):
            worked = (worked >> 7) + worked * factor
        if worked == 7:
            return None
"""

WITHOUT_COUNT_RUNS = """

del count_runs
__all__ = [name for name in __all__ if name != "count_runs"]
"""

# Whatever is called in a process that imports this costs a call more.
PROFILED = """

import sys

sys.setprofile(lambda *_: list(range(100)))
"""

BUSY_THREAD = """

import threading


def _turn():
    while True:
        pass


threading.Thread(target=_turn, daemon=True).start()
"""

ONE_ATTRIBUTE_MORE = """

_Pool = HostAllocator


class HostAllocator(_Pool):
    __slots__ = ("name",)

    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        self.name = "a pool"
"""

# Each ends in a way of its own, beside both commits.
FAILING_BENCHMARKS = """
import os
import time


class Planted:
    version = "1"
    timeout = 3
    params = (["raises", "leaves", "exits", "dies", "takes_all", "returns_text", "hangs", "is_not_tried"],)
    param_names = ("how",)

    def track_nothing(self, how):
        if how == "raises":
            raise RuntimeError("planted <b>|@team")
        if how == "leaves":
            os._exit(0)
        if how == "exits":
            os._exit(7)
        if how == "dies":
            os.kill(os.getpid(), 11)
        if how == "takes_all":
            os.kill(os.getppid(), 9)
        if how == "returns_text":
            return "1"
        time.sleep(60)
"""

ENDS = {
    "raises": "RuntimeError: planted <b>\\|@team",
    "leaves": "it ended its process before there was a result",
    "exits": "it ended its process with status 7",
    "dies": "it was killed by SIGSEGV",
    "takes_all": "it was killed by SIGKILL, and took along the process that benchmarks are forked from",
    "returns_text": "it returned '1', which is no number",
    "hangs": "it took longer than 3 s",
    "is_not_tried": "not tried, as bench_planted.Planted.track_nothing('hangs') took too long",
}

INHERITING_BENCHMARK = """
import os


class Planted:
    version = "1"

    def track_foreign_variables(self):
        found = [name for name in os.environ if name in {foreign}]
        if found:
            raise RuntimeError("inherited: " + " ".join(found))
        return 0
"""

FOREIGN = {
    "NUMBA_DISABLE_JIT": "1",
    "OMP_WAIT_POLICY": "ACTIVE",
    "MALLOC_ARENA_MAX": "1",
    "PYTHONMALLOC": "debug",
    "LD_PRELOAD": "",
    "KVPOOL_CPU": "baseline",
    "CFLAGS": "-O0",
}


def _nothing(clone: Clone) -> None:
    clone.append("README.md", "\n")
    clone.commit("head", "Planted: `a` | <b>@team</b>")


def _nothing_at_all(clone: Clone) -> None:
    """Leave the clone as it is: what is asked is of one commit."""


def _wordless(clone: Clone) -> None:
    clone.append("README.md", "\n")
    clone.commit("head", "")


def _a_little_more(clone: Clone) -> None:
    first, rest = IN_USE.split("\n", 1)
    clone.replace("kvpool/token_table.py", IN_USE, f"{first}\n{A_LITTLE_WORK}{rest}")
    clone.commit("head")


def _loop(clone: Clone) -> None:
    clone.replace("kvpool/host.py", ALLOCATE, ALLOCATE + WORK_IN_ALLOC)
    clone.commit("base")
    # As long as before: what a build remembers of a file, its size and time, may be the same.
    clone.replace("kvpool/host.py", "range(10_000)", "range(99_000)")
    clone.commit("head")


def _loop_in_history(clone: Clone, _: Fault) -> str | None:
    """Measure the two loops one after the other in asv's own environment, as the history does."""
    (clone.folder / ".asv" / "machines.json").write_text('{"version": 1, "AMD')
    done = clone.history("bench", "--bench", ALLOC, "base^..head")
    if done.returncode:
        return f"make bench failed: {asv_calls.explanation(done.stderr or done.stdout)}"
    found = [sum(each.figures.values()) for each in records.load(clone.folder / ".asv" / "results")]
    if len(found) != 2 or max(found) < 2 * min(found):
        return f"asv measured {found} for loops of 10,000 and 99,000 turns"
    return None


def _is_little(clone: Clone, _: Fault) -> str | None:
    """Tell whether what was planted is as little as it is meant to be."""
    report = (clone.folder / SCRATCH.name / "compare" / "report.md").read_text()
    (ratio,) = re.findall(r"^\| `TokenTable\.row` .* \| (\d\.\d+) \| ", report, re.MULTILINE)
    return None if 1.02 < float(ratio) < 1.05 else f"row takes {ratio} times the instructions: change its turns"


def _failing_suite(clone: Clone) -> None:
    (clone.folder / "benchmarks" / "bench_planted.py").write_text(FAILING_BENCHMARKS)


def _dropped_on_purpose(clone: Clone, fault: Fault) -> str | None:
    done = clone.compare(fault._replace(options=["--dropped", "HostAten"]))
    if done.returncode == PASSED and "## Dropped on purpose" in done.stdout:
        return None
    return f"status {done.returncode} where it is meant: {done.stdout}"


def _dangling_link(clone: Clone) -> None:
    (clone.folder / "benchmarks" / "bench_planted.py").symlink_to("nowhere.py")


def _inheriting_suite(clone: Clone) -> None:
    text = INHERITING_BENCHMARK.replace("{foreign}", repr(sorted(FOREIGN)))
    (clone.folder / "benchmarks" / "bench_planted.py").write_text(text)


def _inherits_nothing(clone: Clone, fault: Fault) -> str | None:
    """Ask again with variables that would change the figure."""
    foreign = {**clone.variables, **FOREIGN}
    if (done := clone.compare(fault, env=foreign)).returncode != PASSED:
        return f"compare: {done.stdout}"
    done = clone.history("bench", "--bench", "track_foreign_variables", "base^!", env=foreign)
    found = [each.failed for each in records.load(clone.folder / ".asv" / "results")]
    return f"bench left with {done.returncode}: {found}\n{done.stderr}" if done.returncode or found != [[]] else None


def _no_package(clone: Clone) -> None:
    clone.commit("head")
    clone.git("rm", "-r", "--quiet", "kvpool")
    clone.commit("base")
    clone.git("checkout", "--quiet", "head")


def _gained_on_main(clone: Clone) -> None:
    """Make a branch that changes nothing, from before main became slower."""
    clone.append("README.md", "\n")
    clone.commit("head")
    clone.git("checkout", "--quiet", "base")
    clone.append("kvpool/__init__.py", SLOW_FREE)
    clone.commit("gained")


def _dropping(clone: Clone) -> None:
    clone.replace(
        "benchmarks/bench_memory.py", "def track_aten_ops(self, method)", "def measure_aten_ops(self, method)"
    )
    clone.commit("head")


def _uncommitted(clone: Clone) -> None:
    clone.append("kvpool/__init__.py", SLOW_FREE)


def _other_owner(clone: Clone) -> None:
    # Somebody may have told git to trust every folder.
    clone.variables |= {"HOME": str(clone.folder.parent), "GIT_CONFIG_NOSYSTEM": "1"}
    for path in (clone.folder, clone.folder / ".git"):
        shutil.chown(path, 65534, 65534)


def _every_stream(clone: Clone, fault: Fault) -> str | None:
    """Ask again with an output that cannot show every character, and with ones that take nothing."""
    ascii_only = {**clone.variables, "PYTHONIOENCODING": "ascii"}
    if (done := clone.compare(fault, env=ascii_only)).returncode != fault.status:
        return f"status {done.returncode} where the output is ASCII: {done.stderr}"
    with open("/dev/full", "w") as full:
        if (done := clone.compare(fault, stdout=full)).returncode != NOT_MEASURED:
            return f"status {done.returncode} where the disk is full: {done.stderr}"
    reading, writing = os.pipe()
    os.close(reading)
    if (done := clone.compare(fault, stdout=writing)).returncode != NOT_MEASURED:
        return f"status {done.returncode} where the pipe is closed: {done.stderr}"
    os.close(writing)
    return None


def _two_at_once(clone: Clone, fault: Fault) -> str | None:
    """Ask twice at the same time."""
    command = clone.command("compare", fault.base, fault.head, "--rounds", "1", "--bench", ALLOC)
    both = [
        subprocess.Popen(command, cwd=clone.folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, encoding="utf-8")
        for _ in range(2)
    ]
    said = [each.communicate() for each in both]
    if any(each.returncode != PASSED for each in both):
        return f"statuses {[each.returncode for each in both]}"
    waited = [errors for _, errors in said if "history: waiting for 'compare base base" in errors]
    return None if len(waited) == 1 else "neither waited for the other"


def _wrong_patterns(clone: Clone, _: Fault) -> str | None:
    for command in (["bench"], ["compare", "base", "base"]):
        done = clone.history(*command, "--bench", "[")
        if done.returncode != NOT_MEASURED or "'[' is no regular expression" not in done.stderr:
            return f"status {done.returncode} of {command[0]}: {done.stderr}"
    return None


def _publish_or_keep(clone: Clone, _: Fault) -> str | None:
    """Break a recorded file, take one away, and publish from a shallow clone: the site has to stay as it was."""
    result = next(clone.folder.glob("results/*/*-*.json"), None)
    if result is None:
        return None
    shallow = Clone(clone.folder.with_name("shallow"), shallow=True)
    for where, break_it, says in (
        (clone, lambda: result.write_bytes(result.read_bytes()[:99]), f"{result.name} cannot be used"),
        (clone, lambda: result.unlink(), f"{result.name} is missing"),
        (shallow, lambda: None, "this is a shallow clone"),
    ):
        break_it()
        done = where.history("publish")
        changed = subprocess.run(
            ["git", "status", "--porcelain", "html"], cwd=where.folder, capture_output=True, text=True
        ).stdout
        if done.returncode != NOT_MEASURED or says not in done.stderr or changed:
            return f"publish left with {done.returncode}, changed {changed or 'nothing'} and said: {done.stderr}"
    return None


FAULTS = [
    Fault(
        "nothing but the README changed",
        _nothing,
        [ALLOC],
        PASSED,
        ["No regression: 1 case of 1 benchmark", "| `` Planted: `a` \\| <b>@team</b> `` |"],
        noisy=[PASSED, NOT_MEASURED],
    ),
    Fault(
        "HEAD is BASE",
        _nothing_at_all,
        [ALLOC],
        PASSED,
        ["BASE and HEAD are the same commit"],
        head="base",
        noisy=[PASSED, NOT_MEASURED],
        also=_two_at_once,
    ),
    Fault(
        "a 1.3x slowdown in free",
        _at_head("kvpool/__init__.py", SLOW_FREE),
        [FREE],
        REGRESSED,
        ["1 confirmed regression: 1 case of 1 benchmark", "## Slower\n\n`bench_host.Free.time_free`"],
        noisy=[REGRESSED, NOT_MEASURED],
        also=_every_stream,
    ),
    Fault(
        "one more copy of the result in alloc",
        _at_head("kvpool/__init__.py", COPIED_RESULT),
        [ALLOC, OPERATIONS],
        REGRESSED,
        ["confirmed regression", "## Exact counts that grew\n\n`bench_memory.HostAten.track_aten_ops`"],
        noisy=[REGRESSED],
    ),
    Fault(
        "a result that keeps the pool alive",
        _at_head("kvpool/__init__.py", PINNED_RESULT),
        [RETAINED],
        REGRESSED,
        ["confirmed regression", "## Exact counts that grew\n\n`bench_memory.HostRetention.track_retained_bytes`"],
        noisy=[REGRESSED],
    ),
    Fault(
        "one attribute more of a pool",
        _at_head("kvpool/__init__.py", ONE_ATTRIBUTE_MORE),
        [BOOKS],
        PASSED,
        ["No regression", "## Exact counts that grew by too little to matter\n\n`bench_memory.Books."],
    ),
    Fault(
        "nothing but the README changed, by instructions",
        _nothing,
        [],
        PASSED,
        ["No regression: none of ", "Times are open"],
        options=["--exact"],
        noisy=[PASSED],
    ),
    Fault(
        "3 % more instructions in one method",
        _a_little_more,
        [],
        REGRESSED,
        [
            "1 confirmed regression: 1 of ",
            "## More instructions",
            "| `TokenTable.row` |",
            "`kvpool.token_table.TokenTable.row` ",
        ],
        options=["--exact"],
        noisy=[REGRESSED],
        also=_is_little,
    ),
    Fault(
        "3 % more instructions in one method, and times",
        _a_little_more,
        [],
        REGRESSED,
        ["1 confirmed regression: 1 of ", "Timed was what times the 1 method of which a count has moved"],
    ),
    Fault(
        "a function that HEAD no longer has",
        _at_head("kvpool/__init__.py", WITHOUT_COUNT_RUNS),
        [],
        NOT_MEASURED,
        ["Not measured: HEAD no longer has 2 calls that BASE has", "## Counted on BASE, gone from HEAD"],
        options=["--exact"],
    ),
    Fault(
        "a compiled loop whose constant changed",
        _loop,
        [ALLOC],
        REGRESSED,
        ["1 confirmed regression", "## Slower\n\n`bench_host.ChurnedAlloc.time_alloc`"],
        noisy=[REGRESSED, NOT_MEASURED],
        also=_loop_in_history,
    ),
    Fault(
        "an import that makes every call slower",
        _at_head("kvpool/__init__.py", PROFILED),
        [SMALL_ALLOC],
        REGRESSED,
        ["1 confirmed regression", "## Slower\n\n`bench_host.ChurnedAlloc.time_alloc`"],
    ),
    Fault(
        "an import that leaves a thread busy",
        _at_head("kvpool/__init__.py", BUSY_THREAD),
        [ALLOC],
        PASSED,
        ["No regression: 1 case of 1 benchmark"],
    ),
    Fault(
        "a slowdown that main has gained since",
        _gained_on_main,
        [FREE],
        PASSED,
        ["No regression: 1 case", "BASE is where HEAD branched off from gained."],
        base="gained",
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
        "benchmarks that do not come back",
        _failing_suite,
        [ALLOC, "Planted"],
        NOT_MEASURED,
        [
            "Not measured: 1 benchmark failed on BASE and HEAD (bench_planted.Planted.track_nothing)",
            *(f"  on BASE and HEAD with `'{how}'`: `{reason}`\n" for how, reason in ENDS.items()),
        ],
        head="base",
    ),
    Fault(
        "a link to nothing among the benchmarks",
        _dangling_link,
        [ALLOC],
        NOT_MEASURED,
        ["Not measured: benchmarks/bench_planted.py is a link to what is not there: nowhere.py."],
        head="base",
    ),
    Fault(
        "a benchmark that HEAD drops",
        _dropping,
        [OPERATIONS, ALLOC],
        NOT_MEASURED,
        ["HEAD drops 1 case that BASE has (bench_memory.HostAten.track_aten_ops)", "## In BASE's suite, not in HEAD's"],
        also=_dropped_on_purpose,
    ),
    Fault(
        "variables that change a figure",
        _inheriting_suite,
        ["track_foreign_variables"],
        PASSED,
        ["No regression: 1 case"],
        head="base",
        also=_inherits_nothing,
    ),
    Fault(
        "a change that is not committed",
        _uncommitted,
        [FREE],
        PASSED,
        ["No regression", "Not measured, as it is not committed: kvpool/\\_\\_init\\_\\_.py."],
        head="base",
    ),
    Fault(
        "a commit without a message",
        _wordless,
        [ALLOC],
        PASSED,
        ["| `(no message)` |"],
    ),
    Fault(
        "a checkout of another owner",
        _other_owner,
        [ALLOC],
        NOT_MEASURED,
        ["Not measured: this checkout belongs to another user, and git does not read it"],
    ),
    Fault(
        "a range without the package",
        _no_package,
        [ALLOC],
        NOT_MEASURED,
        ["Not measured: BASE (", "cannot be built"],
        options=["--from-tip"],
    ),
    Fault(
        "a revision that is not there",
        _nothing_at_all,
        [ALLOC],
        NOT_MEASURED,
        ["Not measured: no commit is named 'no-such-branch'"],
        base="no-such-branch",
        also=_wrong_patterns,
    ),
    Fault(
        "no benchmark in common",
        _nothing_at_all,
        [r"^bench_host\.none$"],
        NOT_MEASURED,
        ["Not measured: no benchmark matches"],
        head="base",
        also=_publish_or_keep,
    ),
]


def run(only: str | None = None) -> Status:
    """Plant each fault (or those whose name holds `only`), and tell whether all were found."""
    chosen = [fault for fault in FAULTS if only is None or only in fault.name]
    if not chosen:
        raise UsageError(f"no fault is named {only!r}; they are: {', '.join(fault.name for fault in FAULTS)}")
    if os.geteuid() != 0:  # who alone can give a folder to somebody else
        chosen = [fault for fault in chosen if fault.plant is not _other_owner]
    sides.shared_environment(asv_calls.configuration())
    shutil.rmtree(BUILT, ignore_errors=True)
    began, missed = time.monotonic(), 0
    for fault in chosen:
        since = time.monotonic()
        with tempfile.TemporaryDirectory(prefix="kvpool-selftest-") as folder:
            wrong, report, said = _try(fault, Clone(Path(folder) / "clone"))
        missed += bool(wrong)
        seconds = time.monotonic() - since
        print(f"{'MISSED' if wrong else 'ok    '} {fault.name} ({seconds:.0f} s): {'; '.join(said)}", flush=True)
        for line in wrong:
            print(f"       {line}")
        if wrong:
            print("".join(f"       | {line}\n" for line in report.splitlines()))
    shutil.rmtree(BUILT)
    minutes = (time.monotonic() - began) / 60
    print(f"{len(chosen) - missed} of {len(chosen)} planted faults were found and named, in {minutes:.0f} minutes")
    return Status.FAILED if missed else Status.PASSED


def _try(fault: Fault, clone: Clone) -> tuple[list[str], str, list[str]]:
    """Return what was not as it should be, what was printed, and the sentence of each report."""
    fault.plant(clone)
    done = clone.compare(fault)
    wrong, printed = [], f"{done.stdout}\n{done.stderr}"
    if done.returncode != fault.status:
        wrong.append(f"status {done.returncode} instead of {fault.status}")
    wrong += [f"the report does not say: {text!r}" for text in fault.says if text not in done.stdout]
    wrong += _form(done.stdout)
    said = _sentences(done.stdout)
    if not wrong and fault.noisy:
        with _busy_neighbours():
            done = clone.compare(fault)
        said += [f"beside busy neighbours: {each}" for each in _sentences(done.stdout)]
        wrong += _form(done.stdout)
        if done.returncode not in fault.noisy:
            wrong.append(f"status {done.returncode} beside busy neighbours")
            printed = f"{done.stdout}\n{done.stderr}"
    if not wrong and fault.also is not None and (problem := fault.also(clone, fault)):
        wrong.append(problem)
    return wrong, printed, said


def _sentences(report: str) -> list[str]:
    return re.findall(r"^\*\*(.*)\*\*$", report, re.MULTILINE) or ["nothing"]


def _form(report: str) -> list[str]:
    try:
        comment.check(report)
    except UsageError as error:
        return [f"it could not be commented: {error}"]
    return []


@contextlib.contextmanager
def _busy_neighbours() -> Iterator[None]:
    """Keep every core busy with a process that only counts."""
    turn = [sys.executable, "-c", "while True: pass"]
    neighbours = [subprocess.Popen(turn) for _ in range(os.cpu_count() or 1)]
    try:
        yield
    finally:
        for each in neighbours:
            each.kill()
            each.wait()
