"""Fail unless enough of the package's branches ran: ``python tests/check_branches.py COVERAGE.json``."""

import json
import sys
from pathlib import Path

REQUIRED = 95.0


def main(report: Path) -> None:
    totals = json.loads(report.read_text())["totals"]
    share = 100 * totals["covered_branches"] / totals["num_branches"]
    print(f"branches of kvpool/ covered: {totals['covered_branches']} of {totals['num_branches']}, {share:.1f} %")
    if share < REQUIRED:
        sys.exit(f"at least {REQUIRED:.0f} % are required; 'coverage report --show-missing' names the rest")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
