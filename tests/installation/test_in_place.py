"""The Makefile's rule builds in place: never stale, and without a trace in git."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

from tests.copied import NEEDED, ROOT, copy_into

#: A constant in a module and one in a header, each with a value that is wrong, and a test that has to see it.
PLANTED = {
    "kvpool/host.py": ("* 1e9 / min(", "* 2e9 / min(", "test_size_in_gb"),
    "kvpool/_vector_loops_body.h": ("ids[i] * 16;", "ids[i] * 17;", "test_slots"),
}
PROBES = """
from kvpool import HostAllocator
def test_size_in_gb():
    assert HostAllocator.from_size_gb(220).num_pages == 34_375
def test_slots():
    assert HostAllocator(4, page_size=16).alloc(64).tolist() == list(range(64))
def test_both_are_compiled():
    import kvpool.host, kvpool._vector
    assert kvpool.host.__file__.endswith(".so") and kvpool._vector.__file__.endswith(".so")
"""


class Copy:
    """A clone as somebody builds it, with the libraries of this one."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        copy_into(folder, (*NEEDED, "Makefile", ".gitignore"))
        self.run("git", "init", "--quiet")
        self.run("git", "add", ".")
        (folder / ".venv").mkdir()
        (folder / ".venv" / "installed").touch()
        # What the rule has built here is as good there, and half a minute less.
        for each in (ROOT / "kvpool").glob("*.so"):
            shutil.copy(each, folder / "kvpool")
        (folder / ".venv" / "ready").touch()
        (folder / "build").mkdir()
        (folder / "build" / "probes.py").write_text(PROBES)

    def run(self, *command: str, check: bool = True) -> str:
        """Return what a command prints."""
        environment = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS"))}
        environment["PYTHONPATH"] = str(self.folder)
        done = subprocess.run(
            command,
            cwd=self.folder,
            env=environment,
            check=False,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        assert done.returncode == 0 or not check, done.stdout
        return done.stdout

    def make(self) -> str:
        return self.run("make", f"RUN={sys.executable}", "tools")

    def failing(self) -> set[str]:
        """Return which of the probes fail."""
        output = self.run(
            sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "build/probes.py", check=False
        )
        assert "3 passed" in output or "FAILED" in output, output
        return {line.split("::")[1].split()[0] for line in output.splitlines() if line.startswith("FAILED")}

    def untracked(self) -> str:
        return self.run("git", "ls-files", "--others", "--exclude-standard") + self.run("git", "diff", "--stat")


def test_whatever_source_changes_what_is_imported_is_built_from_it(tmp_path: Path) -> None:
    copy = Copy(tmp_path / "clone")
    assert "Nothing to be done" in copy.make()
    assert copy.failing() == set()

    original = {name: (copy.folder / name).read_text() for name in PLANTED}
    for name, (right, wrong, _) in PLANTED.items():
        assert original[name].count(right) == 1
        (copy.folder / name).write_text(original[name].replace(right, wrong))
    copy.make()
    assert copy.failing() == {probe for _, _, probe in PLANTED.values()}

    for name, text in original.items():
        (copy.folder / name).write_text(text)
    copy.make()
    assert copy.failing() == set()
    assert copy.untracked() == "", "a build leaves files that git would add"


def test_every_source_of_an_extension_module_is_one_of_the_rule(tmp_path: Path) -> None:
    copy = Copy(tmp_path / "clone")
    listed = set(copy.run("make", "-pn", "help").split("\nSOURCES := ")[1].split("\n")[0].split())
    sources = {each.relative_to(copy.folder).as_posix() for each in (copy.folder / "kvpool").iterdir()}
    built_from = {name for name in sources if name.endswith((".py", ".pyx", ".pxd", ".h"))}
    assert listed >= built_from | {"setup.py"}
