"""Where things are."""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
MILESTONES = ROOT / "benchmarks" / "milestones.txt"

# Everything that a newcomer's measuring writes stays below this folder, which git ignores.
SCRATCH = ROOT / ".asv"
