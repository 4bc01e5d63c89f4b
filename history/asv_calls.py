"""Call asv in this process: its configuration, its runs, and its errors as ours.

In the process and not by the shell, because only there can a run be given a machine file that is not the
user's own.
"""

import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from asv import environment, util
from asv.commands.publish import Publish
from asv.commands.run import Run
from asv.config import Config
from asv.console import log
from asv.plugin_manager import plugin_manager

from history import UsageError
from history.machine import write_machine_file
from history.paths import ROOT, SCRATCH


def configuration(results: Path | None = None, html: Path | None = None, file: str = "asv.conf.json") -> Config:
    """Return an asv configuration of the repository, with other places for results and site where given."""
    conf = Config.load(str(ROOT / file))
    if results is not None:
        conf.results_dir = str(results)
    if html is not None:
        conf.html_dir = str(html)
    for plugin in conf.plugins:
        plugin_manager.import_plugin(plugin)
    return conf


@contextmanager
def plain_errors() -> Iterator[None]:
    """Turn what asv raises for a user into UsageError."""
    try:
        yield
    except util.UserError as error:
        if str(error) == "Interrupted.":
            raise KeyboardInterrupt from error
        raise UsageError(f"asv: {error}") from error
    except util.ProcessError as error:
        raise UsageError(f"asv: {' '.join(error.args[:4])} … failed: {explanation(error.stderr)}") from error
    except environment.EnvironmentUnavailable as error:
        raise UsageError(f"asv has no environment to measure in: {error}") from error


# How Python and pip say what went wrong, but for pip's names of kinds of error: "error: metadata-generation-failed".
_SAYS_WHY = re.compile(r"(error: (?!\S+$)|\w*(Error|Exception|Exit)\b)")


def explanation(output: str | None) -> str:
    r"""Return the line of a failed program's output that says why: the last that names an error, or else the last.

    >>> explanation("Traceback ...\nImportError: no module\nhint: see above")
    'ImportError: no module'
    """
    lines = [line.strip() for line in (output or "").splitlines() if line.strip()]
    for line in reversed(lines):
        if _SAYS_WHY.match(line):
            return line
    return lines[-1] if lines else "no message"


def check_suite(folder: Path) -> None:
    """Raise UsageError where the suite's folder has a link to nothing, which asv would take for a file."""
    for path in sorted(folder.rglob("*")):
        if path.is_symlink() and not path.exists():
            raise UsageError(
                f"{folder.name}/{path.relative_to(folder)} is a link to what is not there: {path.readlink()}"
            )


def talk() -> None:
    """Let asv print its progress."""
    if not log._logger.handlers:
        log.enable()


def run(conf: Config, hashes: list[str], bench: list[str] | None = None, only_missing: bool = False) -> int:
    """Measure the commits under this machine's name into the configuration's results; return asv's status.

    With `only_missing`, benchmarks that have succeeded before are left out.
    """
    check_suite(Path(conf.benchmark_dir))
    machine, machine_file = write_machine_file(SCRATCH)
    talk()
    with plain_errors():
        status = Run.run(
            conf,
            range_spec=hashes,
            bench=bench,
            machine=machine,
            _machine_file=str(machine_file),
            pull=False,
            skip_successful=only_missing,
        )
    log.flush()
    return status or 0


def publish(conf: Config) -> None:
    """Publish the configuration's results into its html folder."""
    talk()
    with plain_errors():
        Publish.run(conf, pull=False)
    log.flush()


def environment_name(conf: Config) -> str:
    """Return the name of the environment that the configuration measures in."""
    return _environment(conf).name


def environment_python(conf: Config) -> Path:
    """Return the interpreter of the environment that the configuration measures in; it may not be there yet."""
    return Path(_environment(conf)._path) / "bin" / "python"


def installed(conf: Config) -> dict[str, str]:
    """Return the version of each library in the environment that the configuration measures in, by its small name."""
    program = "import importlib.metadata as m; print(*(f'{d.name.lower()}=={d.version}' for d in m.distributions()))"
    command = [str(environment_python(conf)), "-c", program]
    try:
        found = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout
    except (OSError, subprocess.SubprocessError) as error:
        raise UsageError(f"asv's environment does not run: {error}; remove {conf.env_dir}/ to make it anew") from error
    return dict(each.split("==", 1) for each in found.split())


def _environment(conf: Config) -> environment.Environment:
    with plain_errors():
        found = list(environment.get_environments(conf, None))
    if not found:
        raise UsageError("asv has no environment to measure in: see environment_type in its configuration")
    return found[0]
