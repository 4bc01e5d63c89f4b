"""The process that the benchmarks of a side are forked from, one for a whole measurement."""

import os
import shutil
import signal
import struct
import subprocess
from contextlib import suppress
from typing import Any, NamedTuple

from asv import util
from asv.runner import ForkServer, run_benchmark
from asv_runner.statistics import compute_stats

from history.compare import NotMeasuredError
from history.compare.reasons import why


class Outcome(NamedTuple):
    """What came of one case in one round."""

    value: float | None  # NaN where it does not apply, None where it failed
    reason: str = ""
    hung: bool = False


class _NoCacheError(Exception):
    """What the cases of a benchmark share is not there."""


class Server:
    """A process with the suite imported beside one kvpool, or beside none; each case is a fork of it.

    It is stopped whenever it is not asked for something, so that nothing it or what it has forked does can disturb
    another one. It is started again where a case took it along.
    """

    def __init__(self, name: str, environment: Any, benchmark_dir: str):
        self._name = name
        self._environment = environment
        self._benchmark_dir = benchmark_dir
        self._process: ForkServer | None = None
        self._caches: dict[str, tuple[str | None, str | None]] = {}  # a folder each, or why there is none

    def run(self, benchmark: dict[str, Any], index: int) -> Outcome:
        """Run one case of a benchmark, by its place among the combinations of parameters."""
        if self._process is None:
            self.start()
        try:
            folder = self._cache(benchmark)
        except _NoCacheError as error:
            return Outcome(None, str(error))
        self._signal(signal.SIGCONT)
        try:
            found = run_benchmark(benchmark, self._process, profile=False, selected_idx=[index], cwd=folder)
        except (util.UserError, RuntimeError, OSError, struct.error) as error:
            if str(error) == "Interrupted.":
                raise KeyboardInterrupt from error
            # It is gone, or about to be.
            with suppress(subprocess.TimeoutExpired):
                self._process.server_proc.wait(timeout=1)
            code = self.end()
            return Outcome(None, f"{why(code, '', 0)}, and took along the process that benchmarks are forked from")
        self._signal(signal.SIGSTOP)
        if found.errcode:
            reason = why(found.errcode, found.stderr, benchmark["timeout"])
            return Outcome(None, reason, found.errcode == util.TIMEOUT_RETCODE)
        value, samples, number = found.result[index], found.samples[index], found.number[index]
        if samples is not None:
            value, _ = compute_stats(samples, number)
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            return Outcome(float(value))
        return Outcome(None, f"it returned {value!r}, which is no number")

    def _cache(self, benchmark: dict[str, Any]) -> str | None:
        """Return the folder with what the benchmark prepares once for all of its cases; None if it prepares nothing."""
        key = benchmark.get("setup_cache_key")
        if key is not None and key not in self._caches:
            seconds = benchmark.get("setup_cache_timeout") or benchmark["timeout"]
            self._caches[key] = self._process.create_setup_cache(benchmark["name"], seconds, "{}")
        folder, output = self._caches.get(key, (None, None))
        if output is not None:
            raise _NoCacheError(f"what its cases share cannot be prepared: {why(1, output, 0)}")
        return folder

    def start(self) -> None:
        """Start the process and have it import the suite; raise NotMeasuredError if it cannot."""
        try:
            self._process = ForkServer(self._environment, self._benchmark_dir)
            success, output = self._process.preimport()
        except (util.UserError, RuntimeError, OSError) as error:
            raise NotMeasuredError(f"no benchmark can be started beside {self._name}: {error}") from error
        if not success:
            code = self.end()
            raise NotMeasuredError(f"the suite cannot be imported beside {self._name}: {why(code, output, 0)}")
        self._signal(signal.SIGSTOP)

    def end(self) -> int:
        """End the process and what it has forked; return its exit status."""
        for folder, _ in self._caches.values():
            shutil.rmtree(folder or "", ignore_errors=True)
        self._caches.clear()
        process, self._process = self._process, None
        if process is None:
            return 0
        process.interrupt()  # which keeps asv from printing what it printed
        code = process.server_proc.poll()
        with suppress(ProcessLookupError):
            os.killpg(process.server_proc.pid, signal.SIGKILL)
        process.close()
        return process.server_proc.returncode if code is None else code

    def _signal(self, number: signal.Signals) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self._process.server_proc.pid, number)
