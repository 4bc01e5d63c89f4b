"""One command at a time measures in a clone: two would take each other's time, environment and suite."""

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO

from history import UsageError
from history.paths import SCRATCH
from history.status import say

PATH = SCRATCH / "lock"
PATIENCE = 0.5  # seconds between two looks


@contextmanager
def held(command: str) -> Iterator[None]:
    """Hold the clone's lock while `command` runs; wait for it where another process has it, and say which.

    The system takes the lock back when the process ends, however it ends; what the process forks never has it. Raises
    UsageError where it cannot be had: a folder that cannot be written, a file system that knows no locks.
    """
    try:
        PATH.parent.mkdir(parents=True, exist_ok=True)
        file = PATH.open("a+", encoding="utf-8")
    except OSError as error:
        raise UsageError(f"this clone cannot be locked against another measurement: {error}") from error
    with file:
        _wait_for(file)
        file.truncate(0)
        file.write(f"'{command}' (process {os.getpid()}, since {time.strftime('%H:%M:%S')})")
        file.flush()
        yield


def _wait_for(file: TextIO) -> None:
    told = None
    while not _taken(file):
        file.seek(0)
        holder = file.read() or "another command"
        if holder != told:
            say(f"history: waiting for {holder}, which has this clone")
            told = holder
        time.sleep(PATIENCE)


def _taken(file: TextIO) -> bool:
    try:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):  # systems differ in how they say that another process has it
        return False
    except OSError as error:
        raise UsageError(f"this clone cannot be locked against another measurement: {error}") from error
    return True
