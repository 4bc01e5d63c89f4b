"""Run the package's tests, with coverage, on a copy of the package without its extension modules.

``python tests/plain_copy.py FOLDER [PYTEST ARGUMENT ...]`` copies what git does not ignore into FOLDER, where the same
source runs as plain Python, and leaves the data file in FOLDER.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
COPIED = ("kvpool", "tests", "benchmarks", "docs")
IMPORTED_FROM = "import kvpool.host; assert kvpool.host.__file__.endswith('host.py'), kvpool.host.__file__"


def main(folder: Path, arguments: list[str]) -> int:
    """Make the copy, see that nothing in it is compiled, and run the tests there; return pytest's exit status."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", *COPIED],
        cwd=ROOT,
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    ).stdout
    shutil.rmtree(folder, ignore_errors=True)
    for name in filter(None, [*listed.split("\0"), "pyproject.toml", "README.md"]):
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, folder / name)
    compiled = list(folder.rglob("*.so")) + list(folder.rglob("*.pyd"))
    assert not compiled, f"the copy has extension modules: {compiled}"
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    subprocess.run([sys.executable, "-c", IMPORTED_FROM], cwd=folder, env=environment, check=True)
    command = [sys.executable, "-m", "coverage", "run", "-m", "pytest", "-q", "-m", "not compiled", *arguments]
    return subprocess.run(command, cwd=folder, env=environment).returncode


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2:]))
