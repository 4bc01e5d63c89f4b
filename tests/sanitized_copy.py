"""Run the package's tests under AddressSanitizer and UndefinedBehaviorSanitizer, on a copy built for them.

``python -m tests.sanitized_copy FOLDER [PYTEST ARGUMENT ...]`` copies what git does not ignore into FOLDER and builds
the extension modules there. The first finding ends the process: it is printed with file and line. Needs gcc.
"""

import os
import subprocess
import sys
from pathlib import Path

from tests.copied import copy_into

# Python compiles with -fwrapv, under which an overflow is none.
SANITIZERS = "-fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer -fno-wrapv -g"
#: The interpreter is built without them, so their run-time library comes first; libstdc++ beside it, or
#: AddressSanitizer finds no __cxa_throw to stand in for and ends the process at torch's first exception.
PRELOADED = ("libasan.so", "libubsan.so", "libstdc++.so")
BUILT = """
import ctypes, kvpool.host
assert kvpool.host.__file__.endswith(".so"), kvpool.host.__file__
ctypes.CDLL(kvpool.host.__file__).__asan_init
"""


def main(folder: Path, arguments: list[str]) -> int:
    """Make the copy, build it, see that it is built with the sanitizers, and run the tests; return pytest's status."""
    copy_into(folder)
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    compiler = environment.setdefault("CC", "gcc")
    build = [sys.executable, "setup.py", "--quiet", "build_ext", "--inplace", "--parallel", str(os.cpu_count())]
    subprocess.run(build, cwd=folder, env={**environment, "CFLAGS": SANITIZERS}, check=True)
    libraries = [
        subprocess.run(
            [*compiler.split(), f"-print-file-name={name}"], check=True, stdout=subprocess.PIPE, text=True
        ).stdout.strip()
        for name in PRELOADED
    ]
    # Not to stderr, which pytest captures and takes along when a finding ends the process.
    findings = folder.resolve() / "finding"
    environment |= {
        "LD_PRELOAD": ":".join(libraries),
        # Leaks are counted by tests: an interpreter keeps much until its end. Tests ask for more memory than there is.
        "ASAN_OPTIONS": f"detect_leaks=0:allocator_may_return_null=1:log_path={findings}",
        "UBSAN_OPTIONS": f"print_stacktrace=1:log_path={findings}",
        # Each object is memory of its own, so that what is used after its end is found.
        "PYTHONMALLOC": "malloc",
    }
    subprocess.run([sys.executable, "-c", BUILT], cwd=folder, env=environment, check=True)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments]
    status = subprocess.run(command, cwd=folder, env=environment).returncode
    texts = [each.read_text() for each in sorted(folder.glob("finding.*"))]
    # A refusal of too much memory is logged as a warning, and is none.
    found = [text for text in texts if "ERROR: " in text or "runtime error: " in text]
    print(*found, sep="\n")
    return status or int(bool(found))


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2:]))
