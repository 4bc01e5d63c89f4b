"""Compare two commits: measure both now, interleaved, and say one thing that cannot be misread."""


class NotMeasuredError(Exception):
    """The comparison has no answer; the message is the reason."""
