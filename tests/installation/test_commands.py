"""asv's own commands install commits of every kind after one another, and nothing of one meets the next."""

import copy
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path
from typing import Any

import pytest
from asv.repo import get_repo

from history import asv_calls, commits, peers
from history.paths import SCRATCH

#: What pip adds to an installation, and takes along with it.
WRITTEN_BY_PIP = (".pyc", ".dist-info/INSTALLER", ".dist-info/REQUESTED", ".dist-info/direct_url.json")
LAST_OF_NUMBA = "0f2a7949bdd5bf87ea3915b19d274e6067ba1f6a"


def first_commit() -> str:
    return commits.git("rev-list", "--max-parents=0", "HEAD")


class Installation:
    """An environment of asv that is a small one of its own over the libraries of this one."""

    def __init__(self, folder: Path) -> None:
        self.conf = asv_calls.configuration()
        self.conf.env_dir = str(folder / "env")
        self.repo = get_repo(self.conf)
        self.environment: Any = copy.copy(asv_calls._environment(self.conf))
        home = Path(self.environment._path)
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(home)], check=True)
        self.packages = Path(sysconfig.get_path("platlib", vars={"base": str(home), "platbase": str(home)}))
        (self.packages / "libraries.pth").write_text(sysconfig.get_path("platlib"))
        self.before = self.files()

    def files(self) -> set[str]:
        """Return what is in site-packages, without what pip writes of its own."""
        found = (each.relative_to(self.packages).as_posix() for each in self.packages.rglob("*") if each.is_file())
        return {name for name in found if not name.endswith(WRITTEN_BY_PIP)}

    def install(self, commit: str) -> set[str]:
        """Install a commit as asv does, and return the files that its wheel lists."""
        self.environment.install_project(self.conf, self.repo, commit)
        (wheel,) = Path(self.environment._cache.get_cache_dir(commit)).glob("*.whl")
        return {name for name in zipfile.ZipFile(wheel).namelist() if not name.endswith("/")}

    def uninstall(self) -> None:
        self.environment._uninstall_project()

    def left(self) -> list[str]:
        return sorted(each.name for each in self.packages.glob("kvpool*"))


@pytest.fixture(scope="module")
def installation(tmp_path_factory: pytest.TempPathFactory) -> Installation:
    return Installation(tmp_path_factory.mktemp("asv"))


def test_commits_of_every_kind_replace_one_another_without_a_trace(installation: Installation) -> None:
    first, last = first_commit(), commits.resolve("HEAD")
    for commit in (first, LAST_OF_NUMBA, last, first, last, LAST_OF_NUMBA, first):
        listed = installation.install(commit)
        assert installation.files() - installation.before == listed, commit
        # What a first import of the numba kernels leaves beside the source.
        cached = installation.packages / "kvpool" / "__pycache__" / "kernels.nbc"
        cached.parent.mkdir(exist_ok=True)
        cached.touch()
        installation.uninstall()
        assert installation.left() == [], commit
        assert installation.files() == installation.before


def test_the_environment_beside_peers_is_the_suite_s_with_the_peers_in_it() -> None:
    suite, beside = asv_calls.configuration().__dict__, peers.configuration().__dict__
    own = {"install_command", "env_dir", "results_dir", "html_dir"}
    assert {key: value for key, value in suite.items() if key not in own} == {
        key: value for key, value in beside.items() if key not in own
    }
    assert beside["install_command"][1:] == suite["install_command"]
    assert beside["install_command"][0].endswith(" -r history/peers.txt")
    assert all(f"{SCRATCH}/peers/" in beside[key] for key in own - {"install_command"})


def test_what_is_installed_beside_is_pinned_and_leaves_the_suite_s_pins_alone() -> None:
    lines = [line for line in peers.PINS.read_text().splitlines() if line[:1] not in ("", "#")]
    names = [line.split("==")[0] for line in lines]
    assert all(len(line.split("==")) == 2 for line in lines)
    assert set(peers.ENGINES) <= set(names)
    assert len(set(names)) == len(names)
    assert not {name.removeprefix("pip+") for name in asv_calls.configuration().matrix["req"]} & set(names)
