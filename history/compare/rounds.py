"""Measure two sides in alternation, a round of the suite at a time."""

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

from history.compare import canary
from history.compare.server import Outcome, Server
from history.compare.sides import Side, Sides
from history.compare.suites import Suite
from history.compare.verdict import Measured
from history.records import Case, is_control

# How many figures of the canary a turn begins with, and the seconds between two more.
CANARIES, CANARY_EVERY = 3, 1.0


def measure(
    sides: Sides, suite: Suite, cases: Sequence[Case], most_rounds: int | None, say: Callable[[str], None]
) -> Measured:
    """Run the cases on both sides round by round and return the figure of each round.

    The side that goes first alternates, so that neither profits from a machine that grows slower or faster. Controls
    run where there is no kvpool. A case that has failed is not tried again.
    """
    measured = Measured(suite.benchmarks)
    rounds = {case: min(suite.rounds(case), most_rounds or suite.rounds(case)) for case in cases}
    most = max(rounds.values())
    began = time.monotonic()
    with ExitStack() as stack:
        turns = [stack.enter_context(_Turns(side, sides, suite, measured)) for side in sides.both]
        with ThreadPoolExecutor() as pool:
            list(pool.map(Server.start, [server for each in turns for server in each.servers]))
        for done in range(most):
            left = (time.monotonic() - began) / done * (most - done) if done else None
            say(f"round {done + 1} of {most}" + (f", about {left:.0f} s left" if left else ""))
            # Those with fewer rounds are spread over all of them.
            due = [case for case in cases if (done + 1) * rounds[case] // most > done * rounds[case] // most]
            due = [case for case in due if not measured.has_failed(case)]
            for each in turns if done % 2 else turns[::-1]:
                each.take(due)
    return measured


class _Turns:
    """The turns of one side: its package's process, one without kvpool, and the canary meanwhile."""

    def __init__(self, side: Side, sides: Sides, suite: Suite, measured: Measured):
        self._label = side.label
        self._suite = suite
        self._measured = measured
        self._python = Path(sides.shared.find_executable("python"))
        self._package = Server(str(side), side.environment, suite.folder)
        self._without = Server("no kvpool", sides.without, suite.folder)
        self.servers = self._package, self._without
        self._hung: dict[tuple[str, bool], Case] = {}

    def __enter__(self) -> "_Turns":
        return self

    def __exit__(self, *error: object) -> None:
        for each in self.servers:
            each.end()

    def take(self, cases: Sequence[Case]) -> None:
        """Measure each of the cases once on this side."""
        looked = self._look(CANARIES)
        for case in cases:
            if time.monotonic() - looked >= CANARY_EVERY:
                looked = self._look()
            outcome = self._run(case)
            self._measured.add(self._label, case, outcome.value, outcome.reason)

    def _look(self, times: int = 1) -> float:
        """Measure the canary, and return when that was."""
        for _ in range(times):
            self._measured.add_canary(self._label, canary.seconds(self._python))
        return time.monotonic()

    def _run(self, case: Case) -> Outcome:
        # One that hangs takes a minute: its like are not waited for one after another.
        alike = case.benchmark, is_control(case)
        if alike in self._hung:
            return Outcome(None, f"not tried, as {self._hung[alike]} took too long")
        server = self._without if is_control(case) else self._package
        outcome = server.run(self._suite.benchmarks[case.benchmark], self._suite.index(case))
        if outcome.hung:
            self._hung[alike] = case
        return outcome
