"""The command line: ``python -m history COMMAND``.

Whatever can fail is imported and run below `guarded`, so that it cannot leave with the status of a regression.
"""

import sys

from history.status import guarded


def main(argv=None):
    """Run one command and return its exit status."""

    def run():
        from history import command_line

        return command_line.run(argv)

    return guarded(run)


if __name__ == "__main__":
    sys.exit(main())
