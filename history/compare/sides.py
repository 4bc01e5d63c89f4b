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
from history.commits import Commit
from history.compare import NotMeasuredError
from history.compare.reasons import why
from history.paths import ROOT, SCRATCH

GENERATED = (":!html", ":!results")
_NEW_ENVIRONMENT = ("-m", "venv", "--clear", "--without-pip")
_NO_KVPOOL = 'raise ImportError("controls run where there is no kvpool")\n'


class Side(NamedTuple):
    """One of the two commits, ready to be measured."""

    label: str  # BASE or HEAD
    commit: Commit
    environment: Any  # an asv environment

    def __str__(self) -> str:
        """Return the side as a sentence names it."""
        return f"{self.label} ({self.commit.hash[:8]})"

    @property
    def source(self) -> Path:
        """The folder that has the commit's files."""
        return Path(self.environment._path) / "source"


class Sides(NamedTuple):
    """Both sides, and the environments that they have in common."""

    both: tuple[Side, Side]  # BASE and HEAD
    shared: Any  # has the libraries
    without: Any  # has them too, and can import no kvpool


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
    side = Side(label, commit, _own_environment(shared, commit.hash[:12]))
    home = Path(side.environment._path)
    if not (home / "ready").exists():
        _install(shared, side, home)
        (home / "ready").touch()
    _share(shared, side.environment, str(side), home)
    where = _call(side.environment, f"{side}: kvpool cannot be imported", ["-c", _IMPORT], home)
    if not Path(where.strip()).is_relative_to(home):
        raise NotMeasuredError(f"{side} has no package kvpool")
    return side


def without_kvpool(shared: Any) -> Any:
    """Return an environment that has the libraries and can import no kvpool, not even the one that asv measures."""
    own = _own_environment(shared, "without")
    home = Path(own._path)
    failure = "the environment without kvpool cannot be made"
    if not (home / "ready").exists():
        _call(shared, failure, [*_NEW_ENVIRONMENT, str(home)], ROOT)
        package = _packages(own, failure, home) / "kvpool"
        package.mkdir()
        (package / "__init__.py").write_text(_NO_KVPOOL, encoding="utf-8")
        (home / "ready").touch()
    _share(shared, own, failure, home)
    return own


# The import also compiles the kernels, into the side's own folder.
_IMPORT = "import kvpool; print((kvpool.__file__ or kvpool.__path__[0]))"


def _own_environment(shared: Any, name: str) -> Any:
    # Another compiler's build is another side.
    built = [shared.dir_name, *(os.environ.get(name, "") for name in variables.BUILD)]
    key = hashlib.sha256("\0".join(built).encode()).hexdigest()[:8]
    home = SCRATCH / "compare" / f"{name}-{key}"
    own = copy.copy(shared)
    own._path = str(home)
    return own


def _install(shared: Any, side: Side, home: Path) -> None:
    source = home / "source"
    failure = f"{side} cannot be built"
    _call(shared, failure, [*_NEW_ENVIRONMENT, str(home)], ROOT)
    own = _packages(side.environment, failure, home)
    source.mkdir()
    _extract(side.commit.hash, source)
    install = ["-m", "pip", "install", "--no-deps", "--no-index", "--no-build-isolation", "--target", str(own)]
    _call(shared, failure, [*install, str(source)], home)


def _share(shared: Any, own: Any, failure: str, home: Path) -> None:
    """Let an environment find the libraries, after its own package: anew each time, as they may have moved."""
    path = _packages(own, failure, home) / "shared.pth"
    path.write_text(f"{_packages(shared, failure, home)}\n", encoding="utf-8")


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
        return why(error.retcode, error.stderr or error.stdout or "", Config().install_timeout)
    return str(error)
