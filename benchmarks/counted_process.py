"""The process whose calls are counted, as `counting` starts it; without valgrind it does the same and counts nothing.

Its arguments: the folder that kvpool is in, the module with the cases, the file for the report of what became of each,
a seed to shift addresses by, and the names of the cases, if not all.
"""

import ctypes
import gc
import importlib.machinery
import json
import os
import random
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

# So often is a call made before it is counted: where Python has adapted to what it does, that is done by then.
WARM, WARM_COUNTED = 32, 3


def shift_addresses(seed: int) -> list[bytes]:
    """Have what is made from now on lie at other addresses; return what has to be kept for that."""
    sizes = random.Random(seed)
    return [bytes(sizes.randrange(1_000)) for _ in range(seed and 5_000)]


def plain(call: Any) -> object:
    """Make a call."""
    return call.function(*call.arguments)


def turn(make: Callable[[], Any], call: Any, run: Callable[[Any], object] = plain) -> Any:
    """Make a call, drop its result, and return a call of the same in the same state."""
    result = run(call)
    del result
    if call.rewind is None:
        return make()
    call.rewind()
    return call


class Report:
    """What became of each case, in a file that is up to date when the process dies."""

    def __init__(self, path: Path):
        self.path = path
        self.outcomes: dict[str, dict[str, str]] = {}

    def say(self, name: str, **outcome: str) -> None:
        """Write down what is known of a case."""
        self.outcomes[name] = outcome
        self.path.write_text(json.dumps(self.outcomes))


class Finder:
    """Finds these modules in these folders, and nothing else that lies there."""

    def __init__(self, folders: dict[str, str]):
        self.folders = folders

    def find_spec(self, name: str, path: object, target: object = None) -> Any:
        """Return where a module is; None for others."""
        folder = self.folders.get(name)
        return folder and importlib.machinery.PathFinder.find_spec(name, [folder])


def main(folder: str, table: str, report: str, shift: str, *only: str) -> None:
    """Make each call of a table so often that it repeats, and have it counted once."""
    sys.meta_path.insert(0, Finder({table: folder, "kvpool": folder, "benchmarks": str(Path(__file__).parents[1])}))
    # What is preloaded is everywhere in the process.
    counter = ctypes.PyDLL(None)
    counter.count_call.restype = ctypes.py_object
    counter.count_call.argtypes = [ctypes.c_void_p, ctypes.py_object, ctypes.py_object, ctypes.c_char_p]
    py_object_call = ctypes.cast(ctypes.pythonapi.PyObject_Call, ctypes.c_void_p)
    kept = [shift_addresses(int(shift))]
    cases = importlib.import_module(table).CASES
    if only:
        cases = {name: cases[name] for name in only}
    kept.append(shift_addresses(int(shift)))
    gc.collect()
    gc.disable()

    outcomes = Report(Path(report))
    ready = {}
    for name, make in cases.items():
        outcomes.say(name, died="while it was prepared")
        try:
            first, second = make(), make()
            for _ in range(WARM):
                first = turn(make, first)
            ready[name] = first, second
            outcomes.say(name)
        except NotImplementedError as error:
            outcomes.say(name, missing=str(error))
        except Exception as error:
            outcomes.say(name, failed=f"{type(error).__name__}: {error}")
    counter.start_counting()
    for name, (first, second) in ready.items():
        outcomes.say(name, died="while it was counted")
        make = cases[name]
        label = name.encode()
        for _ in range(WARM_COUNTED):
            first, second = turn(make, first), turn(make, second)
        # The one before it leaves caches as one call leaves them for the next.
        result = plain(first)
        del result
        result = counter.count_call(py_object_call, second.function, second.arguments, label)
        del result
        outcomes.say(name)
    # Nothing is to be had from taking all this down.
    os._exit(0)


if __name__ == "__main__":
    main(*sys.argv[1:])
