"""Give each of two commits an environment of its own over the libraries that both share.

asv itself measures one commit after another in one environment, reinstalling it in between. To alternate between two
commits every few seconds, and to never meet a compiled kernel of the other one, each side here is a small virtual
environment that holds its commit's package alone and finds everything else in asv's environment.
"""

import copy
import hashlib
import os
import subprocess
from pathlib import Path
from typing import Any, NamedTuple

from asv import environment, util
from asv.config import Config

from history import variables
from history.asv_calls import explanation
from history.commits import Commit
from history.compare import NotMeasuredError
from history.paths import ROOT, SCRATCH

GENERATED = (":!html", ":!results")


class Side(NamedTuple):
    """One of the two commits, ready to be measured."""

    label: str  # BASE or HEAD
    commit: Commit
    environment: Any  # an asv environment

    def __str__(self) -> str:
        """Return the side as a sentence names it."""
        return f"{self.label} ({self.commit.hash[:8]})"


def shared_environment(conf: Config) -> Any:
    """Return asv's environment with the libraries of the measurements, made if it is not there yet."""
    try:
        found = list(environment.get_environments(conf, None))
        if not found:
            raise NotMeasuredError("asv has no environment to measure in")
        if not found[0].check_presence():
            print("Making asv's environment, once: about a minute.", flush=True)
        found[0].create()
    except (util.UserError, util.ProcessError, environment.EnvironmentUnavailable, OSError) as error:
        raise NotMeasuredError(f"asv's environment cannot be made: {_reason(error)}") from error
    return found[0]


def prepare(shared: Any, label: str, commit: Commit) -> Side:
    """Return the side that measures `commit`, its package installed and imported once."""
    side = Side(label, commit, _own_environment(shared, commit.hash))
    home = Path(side.environment._path)
    if not (home / "ready").exists():
        _install(shared, side, home)
        (home / "ready").touch()
    # Written anew each time: the environment that both share may have moved with the repository.
    (_packages(side.environment, str(side), home) / "shared.pth").write_text(
        f"{_packages(shared, str(side), home)}\n", encoding="utf-8"
    )
    where = _call(side.environment, f"{side}: kvpool cannot be imported", ["-c", _IMPORT], home)
    if not Path(where.strip()).is_relative_to(home):
        raise NotMeasuredError(f"{side} has no package kvpool")
    return side


# The import also compiles the kernels, into the side's own folder.
_IMPORT = "import kvpool; print((kvpool.__file__ or kvpool.__path__[0]))"


def _own_environment(shared: Any, commit: str) -> Any:
    # Another compiler's build is another side.
    built = [shared.dir_name, *(os.environ.get(name, "") for name in variables.BUILD)]
    key = hashlib.sha256("\0".join(built).encode()).hexdigest()[:8]
    home = SCRATCH / "compare" / f"{commit[:12]}-{key}"
    own = copy.copy(shared)
    own._path = str(home)
    return own


def _install(shared: Any, side: Side, home: Path) -> None:
    source = home / "source"
    failure = f"{side} cannot be built"
    _call(shared, failure, ["-m", "venv", "--clear", "--without-pip", str(home)], ROOT)
    own = _packages(side.environment, failure, home)
    source.mkdir()
    _extract(side.commit.hash, source)
    install = ["-m", "pip", "install", "--no-deps", "--no-index", "--no-build-isolation", "--target", str(own)]
    _call(shared, failure, [*install, str(source)], home)


def _packages(env: Any, failure: str, home: Path) -> Path:
    command = ["-c", "import sysconfig; print(sysconfig.get_path('purelib'))"]
    return Path(_call(env, failure, command, home).strip())


def _extract(commit: str, folder: Path) -> None:
    """Write the files of `commit` into `folder`, without what is generated."""
    command = ["git", "archive", commit, "--", ".", *GENERATED]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE) as archive:
        subprocess.run(["tar", "-x", "-C", str(folder)], stdin=archive.stdout, check=True)
    if archive.returncode:
        raise NotMeasuredError(f"git cannot read the files of {commit[:8]}")


def _call(env: Any, failure: str, arguments: list[str], folder: Path) -> str:
    try:
        return env.run_executable("python", arguments, cwd=str(folder), display_error=False, dots=False)
    except (util.ProcessError, OSError) as error:
        raise NotMeasuredError(f"{failure}: {_reason(error)}") from error


def _reason(error: Exception) -> str:
    if isinstance(error, util.ProcessError):
        return explanation(error.stderr or error.stdout)
    return str(error)
