"""`python -m benchmarks COMMAND …`: what is run by hand, of `sweeps`; `--help` after a command shows its options.

asv imports this module too, where there are no sweeps: a command's own is imported when it is executed.
"""

import importlib
import importlib.util
import sys

# Command: its module, whose main(arguments) returns the exit status, and what it does.
COMMANDS = {
    "allocators": ("sweeps.allocators", "time the allocators over a grid of sizes"),
    "tokens": ("sweeps.tokens", "time the token containers over the life of a request"),
    "peers": ("sweeps.peers", "say which engines can be measured here"),
    "replay": ("sweeps.replay", "replay a request trace against the host tier"),
    "budgets": ("sweeps.budgets", "print the design's budgets beside what is measured"),
}


def main(arguments: list[str]) -> int:
    """Run a command; return the exit status."""
    if arguments[:1] in (["-h"], ["--help"]):
        print("usage: python -m benchmarks COMMAND ...")
        print("\n".join(f"  {command:12}{what}" for command, (_, what) in COMMANDS.items()))
        return 0
    command = arguments[0] if arguments else ""
    if command not in COMMANDS:
        print(f"python -m benchmarks: unknown command {command!r}: write one of {', '.join(COMMANDS)}", file=sys.stderr)
        return 2
    if importlib.util.find_spec("sweeps") is None:
        print(f"python -m benchmarks: {command} needs sweeps/: run it where the repository is", file=sys.stderr)
        return 2
    module, _ = COMMANDS[command]
    return importlib.import_module(module).main(arguments[1:])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
