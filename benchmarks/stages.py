"""The stages of a request's life, for each container of token ids: what suite, sweep and budgets alike measure.

A stage is a method of a container, which runs it for a whole batch. The tokens are held as an engine would hold them
in that container, and what takes them from one form to the next is timed where the engine does it. The stages:

    ingest                 the tokenizer's list becomes the request's prompt
    prefix_match           the prompt against two keys of the prefix tree: equal, and different at nine tenths
    prefill_concat         origin and output of a request that is prefilled again
    prefill_perreq_slice   what follows the cached prefix, nine tenths of the prompt
    batch_torch_tensor     all requests' tokens in one int64 tensor on the device
    decode_append          one sampled token to each request, a thousand times
    finish_concat          what is committed when a request ends: all but the last token
    cache_finished_req     that against the key in the prefix tree that equals it
"""

from array import array
from collections.abc import Sequence
from functools import cached_property
from itertools import chain
from typing import Any

import numpy as np
import torch

from benchmarks import workloads

try:
    from kvpool import BatchStager, RequestTokens, TokenBuffer, TokenTable, match_prefix
except ImportError:
    BatchStager = RequestTokens = TokenBuffer = TokenTable = match_prefix = None

STAGES = (
    "ingest",
    "prefix_match",
    "prefill_concat",
    "prefill_perreq_slice",
    "batch_torch_tensor",
    "decode_append",
    "finish_concat",
    "cache_finished_req",
)


# What a stage finds made when it starts.
NEEDED = {
    "ingest": ("prompts",),
    "prefix_match": ("requests", "equal_keys", "differing_keys"),
    "prefill_concat": ("requests",),
    "prefill_perreq_slice": ("filled",),
    "batch_torch_tensor": ("filled", "stager"),
    "decode_append": ("requests", "sampled_arrays", "sampled"),
    "finish_concat": ("requests",),
    "cache_finished_req": ("finished", "finished_keys"),
}


class Request:
    """A request as engines have it: two growing sequences of token ids."""

    __slots__ = ("origin", "output")

    def __init__(self, origin: Any, output: Any) -> None:
        self.origin = origin
        self.output = output


def walk(a: Sequence[int], b: Sequence[int]) -> int:
    """Return the length of the common prefix, token by token."""
    common = 0
    for left, right in zip(a, b):  # noqa: B905  (as engines write it)
        if left != right:
            break
        common += 1
    return common


def doubling(a: Any, b: Any) -> int:
    """Return the length of the common prefix by comparing slices, each twice as long, and then halving the last."""
    limit = min(len(a), len(b))
    start, width = 0, 16
    while start < limit:
        stop = min(start + width, limit)
        if a[start:stop] != b[start:stop]:
            break
        start, width = stop, 2 * width
    else:
        return limit
    while stop - start > 1:
        middle = (start + stop) // 2
        if a[start:middle] == b[start:middle]:
            start = middle
        else:
            stop = middle
    return start


class Lists:
    """Token ids in lists, as engines hold them today."""

    def __init__(self, batch: workloads.TokenBatch, device: str) -> None:
        """Take the tokens of a batch, and the device of `batch_torch_tensor`."""
        self.batch = batch
        self.device = torch.device(device)
        self.cached = batch.prompts.shape[1] * 9 // 10
        self.committed = batch.prompts.shape[1] + batch.decoded.shape[1] - 1

    def prepare(self, stage: str) -> None:
        """Have what a stage takes, in the form in which it takes it."""
        for name in NEEDED[stage]:
            getattr(self, name)
        if stage == "decode_append":
            self.rewind()

    def rewind(self) -> None:
        """Bring the requests that `decode_append` appends to back to no output."""
        self.decoding = [Request(request.origin, self.key(())) for request in self.requests]

    @cached_property
    def prompts(self) -> list[list[int]]:
        """The tokenizer's lists."""
        return self.batch.prompts.tolist()

    @cached_property
    def requests(self) -> list[Any]:
        """The requests with their output."""
        return [self.request(*tokens) for tokens in zip(self.batch.prompts, self.batch.decoded, strict=True)]

    @cached_property
    def equal_keys(self) -> list[Any]:
        """For each prompt a key that equals it."""
        return [self.key(tokens) for tokens in self.batch.prompts]

    @cached_property
    def differing_keys(self) -> list[Any]:
        """For each prompt a key that differs after nine tenths."""
        return [self.key(workloads.differing_at_nine_tenths(tokens)) for tokens in self.batch.prompts]

    @cached_property
    def finished_keys(self) -> list[Any]:
        """For each request a key that equals what is committed of it."""
        whole = np.concatenate((self.batch.prompts, self.batch.decoded), axis=1)
        return [self.key(tokens) for tokens in whole[:, : self.committed]]

    @cached_property
    def filled(self) -> list[Any]:
        """What `prefill_concat` returns."""
        return self.prefill_concat()

    @cached_property
    def finished(self) -> list[Any]:
        """What `finish_concat` returns."""
        return self.finish_concat()

    @cached_property
    def stager(self) -> Any:
        """What `batch_torch_tensor` puts the batch together with, if anything."""
        return None

    @cached_property
    def sampled_arrays(self) -> list[np.ndarray]:
        """What a sampler leaves in a host buffer at each step, as ndarrays."""
        return list(np.ascontiguousarray(self.batch.decoded.T))

    @cached_property
    def sampled(self) -> list[torch.Tensor]:
        """The same, as tensors."""
        return [torch.from_numpy(ids) for ids in self.sampled_arrays]

    def key(self, tokens: Any) -> Any:
        """Return tokens as the prefix tree holds them."""
        return np.asarray(tokens, np.int64).tolist()

    def request(self, origin: np.ndarray, output: np.ndarray) -> Any:
        """Return a request with its output."""
        return Request(self.key(origin), self.key(output))

    def ingest(self) -> Any:
        """Keep a reference."""
        return [prompt for prompt in self.prompts]  # noqa: C416

    def prefix_match(self) -> list[int]:
        """Walk both sequences, token by token."""
        lengths = [walk(request.origin, key) for request, key in zip(self.requests, self.equal_keys, strict=True)]
        lengths += [walk(request.origin, key) for request, key in zip(self.requests, self.differing_keys, strict=True)]
        return lengths

    def prefill_concat(self) -> Any:
        """Concatenate."""
        return [request.origin + request.output for request in self.requests]

    def prefill_perreq_slice(self) -> Any:
        """Copy a slice."""
        start = self.cached
        return [tokens[start:] for tokens in self.filled]

    def batch_torch_tensor(self) -> torch.Tensor:
        """Flatten into one list and have torch convert it, token by token; pinned and not waited for on CUDA."""
        flat = list(chain.from_iterable(self.filled))
        if self.device.type == "cpu":
            return torch.tensor(flat, dtype=torch.int64)
        return torch.tensor(flat, dtype=torch.int64, pin_memory=True).to(self.device, non_blocking=True)

    def decode_append(self) -> Any:
        """Make a list of the sampled tensor and append to each request, at every step."""
        requests = self.decoding
        for sampled in self.sampled:
            for request, token in zip(requests, sampled.tolist()):  # noqa: B905  (as engines write it)
                request.output.append(token)
        return requests

    def finish_concat(self) -> Any:
        """Concatenate and cut."""
        length = self.committed
        return [(request.origin + request.output)[:length] for request in self.requests]

    def cache_finished_req(self) -> list[int]:
        """Walk both sequences, token by token."""
        return [walk(tokens, key) for tokens, key in zip(self.finished, self.finished_keys, strict=True)]


class Arrays(Lists):
    """Token ids in array('q'), with the same code as for lists."""

    def key(self, tokens: Any) -> Any:
        """Return tokens as the prefix tree holds them."""
        return array("q", np.asarray(tokens, np.int64).tobytes())

    def ingest(self) -> Any:
        """Copy the list into an array."""
        return [array("q", prompt) for prompt in self.prompts]


class ArraySlices(Arrays):
    """Token ids in array('q'), compared by slices of doubling length."""

    def prefix_match(self) -> list[int]:
        """Compare slices of doubling length."""
        lengths = [doubling(request.origin, key) for request, key in zip(self.requests, self.equal_keys, strict=True)]
        lengths += [
            doubling(request.origin, key) for request, key in zip(self.requests, self.differing_keys, strict=True)
        ]
        return lengths

    def cache_finished_req(self) -> list[int]:
        """Compare slices of doubling length."""
        return [doubling(tokens, key) for tokens, key in zip(self.finished, self.finished_keys, strict=True)]


class KvpoolSingle(Lists):
    """Token ids in RequestTokens, decoded tokens appended to one request at a time."""

    def __init__(self, batch: workloads.TokenBatch, device: str) -> None:
        """Hold the tokens of a batch; NotImplementedError where kvpool has no such containers."""
        missing = [
            name
            for name in ("BatchStager", "RequestTokens", "TokenBuffer", "TokenTable", "match_prefix")
            if globals()[name] is None
        ]
        if missing:
            raise NotImplementedError(f"this kvpool has no {missing[0]}")
        super().__init__(batch, device)

    @cached_property
    def stager(self) -> Any:
        """A stager for batches of this size."""
        return BatchStager(sum(map(len, self.filled)), self.device)

    def rewind(self) -> None:
        """Bring the requests that `decode_append` appends to back to no output."""
        self.decoding = [RequestTokens(request.origin) for request in self.requests]

    def key(self, tokens: Any) -> Any:
        """Return tokens as the prefix tree holds them."""
        return TokenBuffer(tokens)

    def request(self, origin: np.ndarray, output: np.ndarray) -> Any:
        """Return a request with its output."""
        request = RequestTokens(origin)
        request.extend(output)
        return request

    def ingest(self) -> Any:
        """Copy the list into a RequestTokens."""
        return [RequestTokens(prompt) for prompt in self.prompts]

    def prefix_match(self) -> list[int]:
        """Call match_prefix."""
        lengths = [
            match_prefix(request.origin, key) for request, key in zip(self.requests, self.equal_keys, strict=True)
        ]
        lengths += [
            match_prefix(request.origin, key) for request, key in zip(self.requests, self.differing_keys, strict=True)
        ]
        return lengths

    def prefill_concat(self) -> Any:
        """Take a view."""
        return [request.fill_ids for request in self.requests]

    def batch_torch_tensor(self) -> torch.Tensor:
        """Stage the batch."""
        return self.stager.stage(self.filled)

    def decode_append(self) -> Any:
        """Make a list of the sampled tensor and append to each request, at every step."""
        requests = self.decoding
        for sampled in self.sampled:
            for request, token in zip(requests, sampled.tolist()):  # noqa: B905
                request.append(token)
        return requests

    def finish_concat(self) -> Any:
        """Take a view."""
        length = self.committed
        return [request.committed(length) for request in self.requests]

    def cache_finished_req(self) -> list[int]:
        """Call match_prefix."""
        return [match_prefix(tokens, key) for tokens, key in zip(self.finished, self.finished_keys, strict=True)]


class Kvpool(KvpoolSingle):
    """Token ids in RequestTokens, decoded tokens appended through a TokenTable, one call for the whole batch."""

    def rewind(self) -> None:
        """Make a table with an empty row for each request."""
        requests, steps = self.batch.decoded.shape
        self.table = TokenTable(requests, steps)
        self.rows = np.array([self.table.add(()) for _ in range(requests)])

    def decode_append(self) -> Any:
        """Append what was sampled to the table, at every step."""
        table, rows = self.table, self.rows
        for sampled in self.sampled_arrays:
            table.append(rows, sampled)
        return table


class Floor(Lists):
    """The cheapest way to the same result: comparing bytes, and concatenating arrays."""

    def key(self, tokens: Any) -> Any:
        """Return tokens as bytes."""
        return np.asarray(tokens, np.int64).tobytes()

    @cached_property
    def stager(self) -> list[np.ndarray]:
        """The tokens of each request as an ndarray."""
        return [np.frombuffer(tokens, np.int64) for tokens in self.filled]

    def prefix_match(self) -> list[bool]:
        """Compare bytes."""
        same = [request.origin == key for request, key in zip(self.requests, self.equal_keys, strict=True)]
        same += [request.origin == key for request, key in zip(self.requests, self.differing_keys, strict=True)]
        return same

    def batch_torch_tensor(self) -> torch.Tensor:
        """Concatenate arrays."""
        return torch.from_numpy(np.concatenate(self.stager))


CONTAINERS: dict[str, type[Lists]] = {
    "list": Lists,
    "array": Arrays,
    "array_slices": ArraySlices,
    "kvpool": Kvpool,
    "kvpool_single": KvpoolSingle,
}


def from_list(tokens: Any, device: torch.device) -> torch.Tensor:
    """Return a tensor made from a list, token by token."""
    return torch.tensor(tokens, dtype=torch.int64, device=device)


def from_array(tokens: Any, device: torch.device) -> torch.Tensor:
    """Return a tensor made from an array, token by token."""
    return torch.tensor(list(tokens), dtype=torch.int64, device=device)


def from_buffer(tokens: Any, device: torch.device) -> torch.Tensor:
    """Return a tensor over the buffer of an array, on the CPU without a copy."""
    return torch.frombuffer(tokens, dtype=torch.int64).to(device, non_blocking=True)


# The conversions from token ids in host memory to a tensor on the device: in what the tokens are, and what is called.
CONVERSIONS = {
    "list": (list, from_list),
    "array": (lambda tokens: array("q", tokens), from_array),
    "buffer": (lambda tokens: array("q", tokens), from_buffer),
}
