"""The exit status of a command, decided in one place: 1 is a confirmed regression and nothing else.

Imports nothing but Python's own library, so that it is there when something else is missing.
"""

import os
import signal
import sys
import traceback
from contextlib import suppress
from enum import IntEnum

from history import UsageError

INTERRUPTED = 130


class Status(IntEnum):
    """What a command found."""

    PASSED = 0
    REGRESSED = 1  # a comparison has confirmed a regression
    FAILED = 2  # nothing is known: not measured, or not done


def guarded(run):
    """Return the status that `run()` returns; FAILED if it raises, or if what it printed does not arrive.

    A user's mistake (UsageError) is said in one line; an interruption is INTERRUPTED. So is being told to end: what was
    begun is ended, and leaves nothing running.
    """
    ended = {each: signal.getsignal(each) for each in (signal.SIGTERM, signal.SIGHUP)}
    for each, handler in ended.items():
        if handler is signal.SIG_DFL:
            signal.signal(each, signal.default_int_handler)
    for stream in (sys.stdout, sys.stderr):
        # A report has characters that not every terminal can show.
        with suppress(AttributeError, ValueError, OSError):
            stream.reconfigure(errors="backslashreplace")
    try:
        status = run()
    except UsageError as error:
        status = Status.FAILED
        say(f"history: {error}")
    except KeyboardInterrupt:
        status = INTERRUPTED
        say("history: interrupted; what was measured before is kept")
    except BaseException as error:
        status = Status.FAILED
        if not isinstance(error, BrokenPipeError):
            say(traceback.format_exc().rstrip())
        say(f"history: failed, and nothing is known: {error!r}")
    for each, handler in ended.items():
        signal.signal(each, handler)
    if not _arrives(sys.stdout):
        status = Status.FAILED
        say("history: failed: what was to be printed could not be written")
    _arrives(sys.stderr)
    return status if isinstance(status, Status) or status == INTERRUPTED else Status.FAILED


def say(text):
    """Tell the user something beside the output of the command; what cannot be said is left unsaid."""
    with suppress(Exception):
        print(text, file=sys.stderr, flush=True)


def _arrives(stream):
    """Write out what a stream still holds; if that fails, drop it, as Python would fail once more when it ends."""
    if stream is None:
        return True
    try:
        stream.flush()
    except (OSError, ValueError):
        with suppress(OSError, ValueError):
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, stream.fileno())
            os.close(nowhere)
        return False
    return True
