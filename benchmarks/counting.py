"""Count the instructions of single calls under valgrind's callgrind, so that two counts of the same are equal.

All cases of a table are counted in one process, in which callgrind sees what happens only while a call is made that
was made before. What else could change a count is fixed: the environment, the seed of hashes, addresses, and the
processor, which is what valgrind shows (without AVX-512) and is named to kvpool, numba and torch. `counter.c`, which is
compiled for it, switches the counting and is the process's memory allocator. It lies in the suite and is loaded by
ctypes, without headers of Python or valgrind, so that it serves any commit in any environment.

Counts are comparable where `made_with` says the same. Used as a program, `counting.py OUTPUT [--case NAME ...]` writes
them as JSON, from the environment whose interpreter runs it.
"""

import argparse
import functools
import importlib.util
import json
import os
import platform
import re
import resource
import shlex
import shutil
import signal
import subprocess
import sys
import sysconfig
import tempfile
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
TABLE = "benchmarks.counted_calls"
# Seconds of CPU for a commit, and seconds of waiting for one that does nothing, or on a machine that gives it little.
LIMIT, PATIENCE = 300, 1_200
# Of the C library, which loops it chooses: without the instruction that copies a string at once, which callgrind counts
# as one for each byte.
LIBC = "glibc.cpu.hwcaps=-ERMS,-FSRM,-AVX512F,-AVX512BW,-AVX512VL:glibc.cpu.x86_non_temporal_threshold=16777216"
# Of numba, for which processor it compiles.
HASWELL = "+avx,+avx2,+bmi,+bmi2,+cx16,+f16c,+fma,+lzcnt,+movbe,+popcnt,+sse,+sse2,+sse3,+sse4.1,+sse4.2,+ssse3"


class CannotCountError(Exception):
    """There are no counts; the message is the reason."""


def count(
    table: str = TABLE, only: Iterable[str] = (), shift: int = 0, folder: str | None = None, limit: int = LIMIT
) -> dict[str, Any]:
    """Count the cases of a table (or `only` some), with this interpreter and the kvpool that it imports.

    Returns `made_with` and `cases`: of each by its name `instructions`, and `functions`, how many of them are each
    function's own. In their place a case has `missing` or `failed` with the reason: the first says that this kvpool
    does not have it. Raises CannotCountError where nothing can be counted, and RuntimeError where the process dies of a
    case. With a `shift` all lies at other addresses. `folder` is where another kvpool, and a table of one's own, are
    found.
    """
    made_with()
    folder = folder or _folder_of_kvpool()
    with tempfile.TemporaryDirectory(prefix="kvpool-counts-") as scratch:
        home = Path(scratch)
        counter = _compiled(home)
        program = [sys.executable, "-P", str(HERE / "counted_process.py")]
        program += [folder, table, str(home / "report"), str(shift), *only]
        environment = _environment(home, counter)
        # First without valgrind: what is compiled for later, and what fails, takes a moment there.
        _run(program, environment, home, limit)
        dumps = home / "dumps"
        valgrind = [
            *("valgrind", "--tool=callgrind", "--instr-atstart=no", "--collect-atstart=no", "--vgdb=no"),
            *("--combine-dumps=yes", "--compress-strings=no", "--dump-line=no", f"--callgrind-out-file={dumps}"),
        ]
        _run([*valgrind, *program], environment, home, limit)
        cases = json.loads((home / "report").read_text())
        for name, functions in _read(dumps).items():
            cases[name] = {"instructions": sum(functions.values()), "functions": functions}
    return {"made_with": made_with(), "cases": cases}


@functools.cache
def made_with() -> str:
    """Return what counts depend on beside the code: they are comparable where this is equal.

    Raises CannotCountError where nothing can be counted.
    """
    if platform.system() != "Linux" or platform.machine() != "x86_64":
        raise CannotCountError("instructions are counted on Linux and x86-64 only")
    if not shutil.which("valgrind"):
        raise CannotCountError("there is no valgrind")
    library, version = platform.libc_ver()
    parts = [
        f"valgrind {_version('valgrind')}",
        f"{library} {version}",
        f"Python {platform.python_version()}",
        f"{'clang' if 'clang' in _says(*_compiler()) else 'gcc'} {_version(*_compiler())}",
        _cpu(),
    ]
    return ", ".join(parts)


def _says(*command: str) -> str:
    try:
        return subprocess.run([*command, "--version"], capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError) as error:
        raise CannotCountError(f"{command[0]} does not run: {error}") from error


def _version(*command: str) -> str:
    found = re.search(r"\d+(\.\d+)+", _says(*command))
    return found[0] if found else "unknown"


@functools.cache
def _cpu() -> str:
    """Return the kind of CPU that kvpool's loops are to be for."""
    return "avx2" if re.search(r"^flags\b.*\bavx2\b", Path("/proc/cpuinfo").read_text(), re.MULTILINE) else "baseline"


@functools.cache
def _compiler() -> tuple[str, ...]:
    """Return the command of the C compiler, which is the one that kvpool is built by."""
    for command in (os.environ.get("CC"), "cc", "gcc", "clang", sysconfig.get_config_var("CC")):
        words = shlex.split(command or "")
        if words and shutil.which(words[0]):
            return tuple(words)
    raise CannotCountError("there is no C compiler")


def _folder_of_kvpool() -> str:
    """Return where this interpreter finds kvpool."""
    found = importlib.util.find_spec("kvpool")
    if found is None or not found.submodule_search_locations:
        raise CannotCountError("there is no kvpool")
    return str(Path(found.submodule_search_locations[0]).parent)


def _compiled(home: Path) -> Path:
    counter = home / "counter.so"
    command = [*_compiler(), "-O2", "-fno-builtin", "-shared", "-fPIC", "-o", str(counter), str(HERE / "counter.c")]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise CannotCountError(f"counter.c cannot be compiled: {done.stderr.strip() or done.stdout.strip()}")
    return counter


@functools.cache
def _same_addresses() -> tuple[str, ...]:
    """Return what goes before a command to have its memory where it was the last time."""
    command = ("setarch", "--addr-no-randomize")
    try:
        subprocess.run([*command, "true"], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        # A container may forbid it; valgrind itself then decides about most addresses.
        return ()
    return command


def _environment(home: Path, counter: Path) -> dict[str, str]:
    """Return all variables that the counted process has."""
    kept = {name: os.environ[name] for name in ("PATH", "LD_LIBRARY_PATH") if name in os.environ}
    threads = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS"), "1")
    return {
        **kept,
        **threads,
        "HOME": str(home),
        "LC_ALL": "C.UTF-8",
        "PYTHONHASHSEED": "0",
        "PYTHONMALLOC": "malloc",
        "LD_PRELOAD": str(counter),
        "GLIBC_TUNABLES": LIBC,
        "KVPOOL_CPU": _cpu(),
        "ATEN_CPU_CAPABILITY": "avx2" if _cpu() == "avx2" else "default",
        "NUMBA_CPU_NAME": "haswell" if _cpu() == "avx2" else "x86-64",
        "NUMBA_CPU_FEATURES": HASWELL if _cpu() == "avx2" else "",
        "NUMBA_DISABLE_INTEL_SVML": "1",
        "NUMBA_CACHE_DIR": str(home / "numba"),
    }


def _run(command: list[str], environment: dict[str, str], home: Path, limit: int) -> None:
    """Run the process for so many seconds of CPU at most; raise what became of it.

    What others do on the machine does not change what it is given, nor therefore whether there are counts.
    """
    try:
        done = subprocess.run(
            [*_same_addresses(), *command],
            env=environment,
            cwd=home,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CPU, (limit, limit + 1)),
        )
    except subprocess.TimeoutExpired:
        raise CannotCountError(f"the counted process did not end in {PATIENCE // 60} minutes") from None
    if done.returncode == -signal.SIGXCPU:
        raise CannotCountError(f"a commit takes more than {LIMIT // 60} minutes{_where(home / 'report')}")
    if done.returncode:
        raise RuntimeError(_end_of(done, home / "report"))


def _where(report: Path) -> str:
    cases = json.loads(report.read_text()) if report.is_file() else {}
    return next((f", {name!r} {each['died']}" for name, each in cases.items() if "died" in each), "")


def _end_of(done: subprocess.CompletedProcess[str], report: Path) -> str:
    """Return the sentence about a process that did not end well."""
    if done.returncode < 0:
        how = f"was killed by {signal.Signals(-done.returncode).name}"
    else:
        how = f"ended with status {done.returncode}"
    lines = [line for line in done.stderr.splitlines() if not line.startswith("==")]
    return f"the counted process {how}{_where(report)}: {lines[-1] if lines else 'no message'}"


def _read(dumps: Path) -> dict[str, dict[str, int]]:
    """Return for each case how many instructions were each function's own."""
    cases: dict[str, dict[str, int]] = {}
    functions: dict[str, int] = {}
    library = name = ""
    called = False
    for line in dumps.read_text().splitlines():
        if line.startswith("part:"):
            functions = {}
        elif line.startswith("desc: Trigger: Client Request: "):
            functions = cases.setdefault(line.split(": ", 3)[3], defaultdict(int))
        elif line.startswith("ob="):
            library = Path(line[3:]).name
        elif line.startswith("fn="):
            name = readable(line[3:], library)
        elif line.startswith("calls="):
            called = True
        elif line[:1] in "0123456789+-*" and line[1:]:
            # The line after a call is what all below it took, which is counted there.
            if not called:
                functions[name] += int(line.split()[1])
            called = False
    return cases


def readable(symbol: str, library: str) -> str:
    """Return a function's name as its source has it, the same for any place in its file.

    >>> readable("__pyx_pw_6kvpool_4host_13HostAllocator_17alloc", "host.so")
    'kvpool.host.HostAllocator.alloc'
    >>> readable("__pyx_f_6kvpool_10_run_index_8RunIndex_take.isra.0'2", "x.so"), readable("0x493b", "libc.so.6")
    ('kvpool._run_index.RunIndex.take', 'unnamed in libc.so.6')
    """
    if re.fullmatch(r"0x[0-9a-f]+('\d+)?", symbol):
        return f"unnamed in {library}"
    symbol = re.sub(r"('\d+|\.(constprop|isra|part|cold|lto_priv)(\.\d+)?)+$", "", symbol)
    mangled = re.match(r"__pyx_(?:pw|pf|f|tp_\w+?|getprop|setprop|specialmethod)_(?=\d)", symbol)
    if not mangled:
        return symbol
    rest, names = symbol[mangled.end() :], []
    while found := re.match(r"(\d+)", rest):
        length, start = int(found[1]), found.end()
        if rest[start + length : start + length + 1] != "_":
            break
        names.append(rest[start : start + length])
        rest = rest[start + length + 1 :]
    return ".".join([*names, re.sub(r"^\d+", "", rest)])


def main() -> int:
    """Count, and write what was counted."""
    parser = argparse.ArgumentParser(description="Count the instructions of kvpool's calls.")
    parser.add_argument("output", type=Path)
    parser.add_argument("--case", action="append", default=[], metavar="NAME", help="only this one")
    parser.add_argument("--shift", type=int, default=0, help="have all lie at other addresses")
    arguments = parser.parse_args()
    try:
        found = count(only=arguments.case, shift=arguments.shift)
    except CannotCountError as error:
        found = {"reason": str(error)}
    except RuntimeError as error:
        found = {"failed": str(error)}
    arguments.output.write_text(json.dumps(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
