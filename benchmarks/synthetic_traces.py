"""Seeded request traces with the statistics of recorded ones, for where no recording is at hand.

Lengths and gaps are drawn from quantiles of the recordings: Mooncake's conversation trace (12,031 requests, 59
minutes) and a trace of 710 agentic coding sessions. `docs/traces.md` puts the statistics of both beside each other.
The draws are raw output of PCG64, as everywhere in the suite, so that a seed gives the same trace for ever.
"""

import heapq
import math

import numpy as np

from benchmarks import workloads
from benchmarks.traces import MOONCAKE_BLOCK_TOKENS, PrefixTrace, Request, SessionTrace, Turn

# (cumulative share, value) of what is drawn; values in between are interpolated.
Quantiles = tuple[tuple[float, float], ...]

CONVERSATION_SECONDS = 0.294
# Tokens of the first request of a conversation, and of what it is answered.
OPENING_TOKENS: Quantiles = (
    (0, 891), (0.1, 905), (0.2, 1_092), (0.3, 1_756), (0.4, 3_913), (0.5, 5_264), (0.6, 7_418), (0.7, 10_770),
    (0.8, 15_871), (0.9, 25_559), (0.95, 38_493), (0.98, 67_125), (0.99, 89_867), (1, 126_195),
)  # fmt: skip
ANSWER_TOKENS: Quantiles = (
    (0, 1), (0.05, 10), (0.1, 24), (0.2, 100), (0.3, 213), (0.4, 291), (0.5, 350), (0.6, 399), (0.7, 447), (0.8, 504),
    (0.9, 597), (0.95, 698), (0.98, 891), (0.99, 1_118), (0.995, 1_567), (1, 2_000),
)  # fmt: skip
# Share of the requests that are followed up, by how many went before; and after how many other requests.
FOLLOWED = (0.34, 0.46, 0.55, 0.58, 0.61, 0.7)
FOLLOW_UP_REQUESTS: Quantiles = (
    (0, 5), (0.01, 44), (0.05, 100), (0.1, 141), (0.25, 229), (0.5, 422), (0.75, 901), (0.9, 1_660), (0.95, 2_129),
    (0.99, 5_105), (1, 10_514),
)  # fmt: skip
FOLLOW_UP_TOKENS: Quantiles = (
    (0, 1), (0.1, 63), (0.2, 192), (0.3, 313), (0.5, 471), (0.7, 684), (0.8, 1_290), (0.9, 4_599), (0.95, 7_338),
    (0.98, 11_877), (0.99, 16_994), (1, 40_000),
)  # fmt: skip
# A follow-up that shares only a start of the request before (another document, the same instructions).
BRANCHED = 0.15
BRANCH_BLOCKS: Quantiles = ((0, 2), (0.25, 3), (0.5, 6), (0.75, 14), (0.95, 46), (1, 120))
BRANCH_TOKENS: Quantiles = (
    (0, 1_100), (0.05, 5_214), (0.25, 10_425), (0.5, 15_106), (0.75, 20_968), (0.95, 38_897), (1, 90_000)
)  # fmt: skip

AGENTIC_BLOCK_TOKENS = 64
SESSION_TURNS: Quantiles = (
    (0, 3), (0.05, 4), (0.1, 7), (0.2, 14), (0.3, 22), (0.4, 32), (0.5, 46), (0.6, 62), (0.7, 83), (0.8, 109),
    (0.9, 157), (0.95, 233), (0.99, 341), (1, 561),
)  # fmt: skip
SESSION_TOKENS: Quantiles = (
    (0, 6_343), (0.05, 13_048), (0.2, 18_129), (0.4, 20_553), (0.5, 24_454), (0.6, 61_713), (0.7, 89_509),
    (0.8, 125_798), (0.9, 258_903), (0.95, 374_960), (0.98, 536_362), (1, 851_858),
)  # fmt: skip
TURN_SECONDS: Quantiles = (
    (0, 5), (0.1, 8), (0.3, 12), (0.5, 17), (0.7, 30), (0.8, 49), (0.9, 129), (0.95, 308), (0.98, 905), (0.99, 2_320),
    (0.995, 3_557), (1, 20_000),
)  # fmt: skip
TURN_TOKENS: Quantiles = (
    (0, 14), (0.05, 155), (0.1, 194), (0.2, 288), (0.3, 388), (0.4, 507), (0.5, 665), (0.6, 890), (0.7, 1_277),
    (0.8, 1_940), (0.9, 3_615), (0.95, 6_302), (0.98, 10_959), (0.99, 16_412), (0.995, 23_959), (1, 40_000),
)  # fmt: skip
TURN_ANSWER_TOKENS: Quantiles = (
    (0, 1), (0.05, 89), (0.1, 105), (0.3, 149), (0.5, 216), (0.7, 361), (0.8, 514), (0.9, 898), (0.95, 1_554),
    (0.98, 2_793), (0.99, 3_686), (0.995, 5_018), (1, 18_195),
)  # fmt: skip
# A turn that drops the end of its chain: seldom, mostly one block, else nearly all of it.
CUT_BACK = 0.07
CUT_BACK_SHARE: Quantiles = ((0, 0), (0.7, 0), (0.75, 0.5), (0.9, 0.9), (1, 1))


def conversation(requests: int = 12_031, seed: int = 0) -> PrefixTrace:
    """Draw requests of chats that start from one shared prompt block and are followed up, some from further back."""
    openings, answers, gaps, lengths, kinds, starts, turns, ticks = (_uniform(requests, seed, 1, i) for i in range(8))
    times = np.cumsum(-np.log1p(-ticks) * CONVERSATION_SECONDS)
    drawn: list[Request] = []
    depth: list[int] = []
    due: list[tuple[float, int]] = []
    next_block = 1
    for each in range(requests):
        if due and due[0][0] <= each:
            before = heapq.heappop(due)[1]
            depth.append(depth[before] + 1)
            if kinds[each] < BRANCHED:
                tokens = round(_drawn(starts[each], BRANCH_TOKENS))
                shared = round(_drawn(lengths[each], BRANCH_BLOCKS))
            else:
                tokens = drawn[before].input_tokens + round(_drawn(lengths[each], FOLLOW_UP_TOKENS))
                # The last block was not full, and what it holds now is another block.
                shared = drawn[before].input_tokens // MOONCAKE_BLOCK_TOKENS
            prefix = drawn[before].blocks
        else:
            depth.append(0)
            tokens = round(_drawn(openings[each], OPENING_TOKENS))
            prefix, shared = [0], 1
        blocks = math.ceil(tokens / MOONCAKE_BLOCK_TOKENS)
        kept = list(prefix[: max(1, min(shared, blocks))])
        fresh = blocks - len(kept)
        answer = round(_drawn(answers[each], ANSWER_TOKENS))
        drawn.append(Request(float(times[each]), tokens, answer, kept + list(range(next_block, next_block + fresh))))
        next_block += fresh
        if turns[each] < FOLLOWED[min(depth[each], len(FOLLOWED) - 1)]:
            heapq.heappush(due, (each + _drawn(gaps[each], FOLLOW_UP_REQUESTS), each))
    return PrefixTrace(f"synthetic conversation, seed {seed}", MOONCAKE_BLOCK_TOKENS, drawn)


def agentic(sessions: int = 120, seed: int = 0) -> SessionTrace:
    """Draw coding sessions: a long prompt that grows by a tool result a turn, and is cut back now and then."""
    counts, openings = (_uniform(sessions, seed, 2, i) for i in range(2))
    drawn = []
    for each in range(sessions):
        turns = round(_drawn(counts[each], SESSION_TURNS))
        gaps, growths, answers, cuts, shares = (_uniform(turns, seed, 3, each, i) for i in range(5))
        tokens = round(_drawn(openings[each], SESSION_TOKENS))
        time, held = 0.0, 0
        session = []
        for turn in range(turns):
            if turn:
                time += _drawn(gaps[turn], TURN_SECONDS)
                tokens += round(_drawn(growths[turn], TURN_TOKENS))
            shared = held
            if turn and cuts[turn] < CUT_BACK:
                kept = 1 - _drawn(shares[turn], CUT_BACK_SHARE)
                shared = max(0, min(held - 1, math.floor(held * kept)))
                if kept < 1:
                    tokens = max(AGENTIC_BLOCK_TOKENS, math.floor(tokens * (1 + kept) / 2))
            held = math.ceil(tokens / AGENTIC_BLOCK_TOKENS)
            shared = min(shared, held)
            answer = round(_drawn(answers[turn], TURN_ANSWER_TOKENS))
            session.append(Turn(time, tokens, answer, shared, held - shared))
        drawn.append(session)
    return SessionTrace(f"synthetic agentic, seed {seed}", AGENTIC_BLOCK_TOKENS, drawn)


KINDS = {"conversation": conversation, "agentic": agentic}


def _uniform(count: int, *seed: int) -> np.ndarray:
    """Return seeded numbers in [0, 1)."""
    return (workloads.draws(count, *seed) >> np.uint64(11)) * 2.0**-53


def _drawn(share: float, quantiles: Quantiles) -> float:
    shares, values = zip(*quantiles, strict=True)
    return float(np.interp(share, shares, values))
