"""What is published: a source distribution that builds, and a wheel that does not."""

import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from tests.copied import NEEDED, ROOT, copy_into

PACKAGE = {each.name for each in (ROOT / "kvpool").iterdir() if each.suffix in (".py", ".pyx", ".pxd", ".h", ".pyi")}
#: What is in the repository, and no part of the package.
BESIDE = ("benchmarks", "history", "oracle.py", "results", "sweeps", "tests")


@pytest.fixture(scope="module")
def distributions(tmp_path_factory: pytest.TempPathFactory) -> tuple[set[str], set[str]]:
    """Build a source distribution from a copy and a wheel from that; return the names of what is in each."""
    folder = tmp_path_factory.mktemp("distributions")
    copy_into(folder / "clone", (*NEEDED, *BESIDE))

    def run(*command: str, cwd: Path) -> None:
        done = subprocess.run([sys.executable, *command], cwd=cwd, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr

    run("setup.py", "--quiet", "sdist", "--dist-dir", str(folder), cwd=folder / "clone")
    (source,) = folder.glob("kvpool-*.tar.gz")
    run("-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "--no-index", str(source), cwd=folder)
    (wheel,) = folder.glob("kvpool-*.whl")
    with tarfile.open(source) as archive:
        in_source = {name.partition("/")[2] for name in archive.getnames()}
    return in_source, set(zipfile.ZipFile(wheel).namelist())


def test_a_source_distribution_has_all_that_a_build_reads(distributions: tuple[set[str], set[str]]) -> None:
    source, _ = distributions
    assert {f"kvpool/{name}" for name in PACKAGE | {"py.typed"}} <= source
    assert {"setup.py", "pyproject.toml", "README.md", "LICENSE"} <= source
    assert not [name for name in source if name.endswith((".c", ".so", ".pyc"))]
    assert not [name for name in source if name.startswith(BESIDE)]


def test_a_wheel_has_the_binaries_and_what_describes_them(distributions: tuple[set[str], set[str]]) -> None:
    _, wheel = distributions
    stubs = {name for name in PACKAGE if name.endswith(".pyi")}
    assert {f"kvpool/{name}" for name in stubs | {"py.typed", "__init__.py"}} <= wheel
    extensions = {name.split(".")[0] for name in wheel if name.endswith(".so")}
    assert {f"kvpool/{Path(name).stem}" for name in stubs} <= extensions
    assert not [name for name in wheel if name.endswith((".c", ".h", ".pyx")) or not name.startswith("kvpool")]
