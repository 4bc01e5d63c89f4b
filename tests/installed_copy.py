"""Run the package's tests on an installed wheel, beside the oldest numpy that the package allows.

``python -m tests.installed_copy FOLDER [PYTEST ARGUMENT ...]`` builds a wheel with this environment's numpy, as it is
published, installs it into an environment of its own in FOLDER, and runs the tests there without the sources.
"""

import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

from tests.copied import ROOT, copy_into

#: The last release of the oldest numpy: the first has no wheel for every Python.
OLDEST_NUMPY = "2.0.2"
TOOLS = ("torch", "pytest", "hypothesis")
FOUND = """
import kvpool.host, numpy, sys
assert numpy.__version__ == sys.argv[1], numpy.__version__
assert "site-packages" in kvpool.host.__file__, kvpool.host.__file__
"""


def main(folder: Path, arguments: list[str]) -> int:
    """Make the environment once, install the wheel of today into it, and run the tests; return pytest's status."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    python = folder.resolve() / "bin" / "python"

    def call(*command: str | Path, cwd: Path = ROOT) -> None:
        subprocess.run([*map(str, command)], cwd=cwd, env=environment, check=True)

    if not (folder / "ready").exists():
        extra = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]["dev"]
        pins = [pin for pin in extra if pin.partition("==")[0] in TOOLS]
        call(sys.executable, "-m", "venv", "--clear", folder)
        call(python, "-m", "pip", "install", "--quiet", *pins, f"numpy=={OLDEST_NUMPY}")
        (folder / "ready").touch()
    copy = folder / "copy"
    copy_into(copy)
    call(
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "--quiet",
        "--no-deps",
        "--no-build-isolation",
        "-w",
        "wheel",
        ".",
        cwd=copy,
    )
    (wheel,) = (copy / "wheel").glob("*.whl")
    call(python, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--force-reinstall", wheel)
    shutil.rmtree(copy / "kvpool")
    call(python, "-c", FOUND, OLDEST_NUMPY, cwd=copy)
    return subprocess.run([python, "-m", "pytest", "-q", *arguments], cwd=copy, env=environment).returncode


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2:]))
