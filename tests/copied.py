"""A copy of the working tree: what git tracks or would track, and nothing that was built."""

import shutil
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[1]
#: What the package's tests and its build need.
NEEDED = ("kvpool", "oracle.py", "tests", "docs", "setup.py", "pyproject.toml", "README.md", "LICENSE", "MANIFEST.in")


def copy_into(folder: Path, names: tuple[str, ...] = NEEDED) -> None:
    """Copy files and folders of the working tree into `folder`, which is removed first."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", *names],
        cwd=ROOT,
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    ).stdout
    shutil.rmtree(folder, ignore_errors=True)
    for name in filter(None, listed.split("\0")):
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, folder / name)
    compiled = list(folder.rglob("*.so")) + list(folder.rglob("*.pyd"))
    assert not compiled, f"the copy has extension modules: {compiled}"
