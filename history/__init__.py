"""What stands around asv: measuring, publishing, comparing, and a test that the comparison cannot be fooled.

Run as ``python -m history COMMAND``. Nothing in ``kvpool`` or ``benchmarks`` imports it.
"""


class UsageError(Exception):
    """A request that cannot be carried out as it was put; its message is one line for the user."""
