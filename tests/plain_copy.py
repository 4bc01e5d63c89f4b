"""Run the package's tests, with coverage, on a copy of the package without its extension modules.

``python -m tests.plain_copy FOLDER [PYTEST ARGUMENT ...]`` copies what git does not ignore into FOLDER, where the same
source runs as plain Python, and leaves the data file in FOLDER.
"""

import os
import subprocess
import sys
from pathlib import Path

from tests.copied import copy_into

IMPORTED_FROM = "import kvpool.host; assert kvpool.host.__file__.endswith('host.py'), kvpool.host.__file__"


def main(folder: Path, arguments: list[str]) -> int:
    """Make the copy, see that nothing in it is compiled, and run the tests there; return pytest's exit status."""
    copy_into(folder)
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    subprocess.run([sys.executable, "-c", IMPORTED_FROM], cwd=folder, env=environment, check=True)
    command = [sys.executable, "-m", "coverage", "run", "-m", "pytest", "-q", "-m", "not compiled", *arguments]
    return subprocess.run(command, cwd=folder, env=environment).returncode


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2:]))
