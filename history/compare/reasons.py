"""Why a process failed, in a few words."""

import signal

from asv.runner import JSON_ERROR_RETCODE
from asv.util import TIMEOUT_RETCODE

from history.asv_calls import explanation


def why(code: int, output: str, seconds: float) -> str:
    r"""Return why a process failed: by how it ended, or else by what it printed.

    >>> why(-11, "", 60), why(7, "", 60), why(1, "Traceback ...\nValueError: no", 60)
    ('it was killed by SIGSEGV', 'it ended its process with status 7', 'ValueError: no')
    """
    # What asv itself adds to the output.
    said = "\n".join(line for line in output.splitlines() if not line.startswith(("asv: ", "For parameters: ")))
    if code == TIMEOUT_RETCODE:
        return f"it took longer than {seconds:g} s"
    if code == JSON_ERROR_RETCODE:
        return "it ended its process before there was a result"
    if code < 0:
        return f"it was killed by {_name(-code)}"
    if code > 1 or (code == 1 and not said.strip()):
        return f"it ended its process with status {code}"
    return explanation(said)


def _name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
