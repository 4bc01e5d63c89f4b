"""Token containers: what a token takes in memory. No time is taken here."""

from array import array

from benchmarks import stages, workloads
from benchmarks.bench_tokens import SEED
from benchmarks.common import Benchmark, book_bytes

TOKENS = 10_000
REQUESTS = 100


def buffer(tokens, dtype):
    """Return a TokenBuffer; NotImplementedError where kvpool has none."""
    if stages.TokenBuffer is None:
        raise NotImplementedError("this kvpool has no TokenBuffer")
    return stages.TokenBuffer(tokens, dtype)


CONTAINERS = {
    "list": list,
    "array": lambda tokens: array("q", tokens),
    "kvpool": lambda tokens: buffer(tokens, "int64"),
    "kvpool_int32": lambda tokens: buffer(tokens, "int32"),
}


def at_once(container):
    """Return a container of 10,000 tokens, made from the tokenizer's list."""
    return CONTAINERS[container](workloads.token_ids(TOKENS, SEED).tolist())


def appended(container):
    """Return a container of 10,000 tokens, appended one by one."""
    held = CONTAINERS[container](())
    for token in workloads.token_ids(TOKENS, SEED).tolist():
        held.append(token)
    return held


BUILDS = {"at_once": at_once, "appended": appended}


class TokenBytes(Benchmark):
    """What holding a token takes, everything counted: a list's integers as well."""

    version = "2"
    params = (list(BUILDS), list(CONTAINERS))
    param_names = ("built", "container")
    unit = "bytes/token"

    def setup(self, built, container):
        # What a process pays once is paid here, and a kvpool without it reads n/a.
        BUILDS[built](container)

    def track_bytes_per_token(self, built, container):
        """Bytes a token in a container of 10,000, made at once or by appends: 8 is the least, 4 for int32."""
        return book_bytes(lambda: BUILDS[built](container)) / TOKENS


class TokenPeakMemory(Benchmark):
    """The memory of a process that holds the tokens of many requests."""

    version = "1"
    params = (["list", "array", "kvpool"],)
    param_names = ("container",)

    def setup(self, container):
        CONTAINERS[container](())

    def peakmem_requests(self, container):
        """Peak memory of a process that holds 100 requests of 10,000 tokens; the imports are most of it."""
        return [
            CONTAINERS[container](workloads.token_ids(TOKENS, SEED, request).tolist()) for request in range(REQUESTS)
        ]
