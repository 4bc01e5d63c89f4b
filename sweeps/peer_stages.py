"""The stages of a request's life with what SGLang and vLLM hold token ids in.

`sglang`: array('q') for origin and output, as its requests have them, matched by its own RadixKey. `vllm`: its own
Request, which copies the prompt, keeps all tokens in one list as they come, and matches by hashes of whole blocks: the
prompt is hashed and each hash looked up among those of the key. A sweep runs these beside those of `stages`.
"""

from functools import cached_property
from typing import Any

import numpy as np
import torch

from benchmarks import peers, stages, workloads

VLLM_BLOCK_TOKENS = 16


def _class(engine: str, name: str) -> Any:
    try:
        return peers.peer_class(engine, name)
    except peers.MissingPeerError as missing:
        raise NotImplementedError(str(missing)) from missing


class Sglang(stages.Arrays):
    """Token ids in array('q'), compared by RadixKey.match."""

    def __init__(self, batch: workloads.TokenBatch, device: str) -> None:
        """Hold the tokens of a batch; NotImplementedError where SGLang is not there."""
        super().__init__(batch, device)
        self.radix_key = _class("sglang", "RadixKey")
        self.flatten = _class("sglang", "flatten_arrays_to_int64_tensor")

    @cached_property
    def equal_keys(self) -> list[Any]:
        """For each prompt a key of the tree that equals it."""
        return [self.radix_key(self.key(tokens)) for tokens in self.batch.prompts]

    @cached_property
    def differing_keys(self) -> list[Any]:
        """For each prompt a key of the tree that differs after nine tenths."""
        return [self.radix_key(self.key(workloads.differing_at_nine_tenths(tokens))) for tokens in self.batch.prompts]

    @cached_property
    def finished_keys(self) -> list[Any]:
        """For each request a key of the tree that equals what is committed of it."""
        return [self.radix_key(key) for key in super().finished_keys]

    def prefix_match(self) -> list[int]:
        """Make a key of each request and match it."""
        key = self.radix_key
        lengths = [
            key(request.origin).match(other) for request, other in zip(self.requests, self.equal_keys, strict=True)
        ]
        lengths += [
            key(request.origin).match(other) for request, other in zip(self.requests, self.differing_keys, strict=True)
        ]
        return lengths

    def batch_torch_tensor(self) -> torch.Tensor:
        """Call what flattens arrays."""
        return self.flatten(self.filled, self.device, self.device.type == "cuda")

    def cache_finished_req(self) -> list[int]:
        """Make a key of what is committed and match it."""
        key = self.radix_key
        return [key(tokens).match(other) for tokens, other in zip(self.finished, self.finished_keys, strict=True)]


class Vllm(stages.Lists):
    """Token ids in vLLM's Request."""

    def __init__(self, batch: workloads.TokenBatch, device: str) -> None:
        """Hold the tokens of a batch; NotImplementedError where vLLM is not there."""
        super().__init__(batch, device)
        self.request_class = _class("vllm", "Request")
        self.sampling = _class("vllm", "SamplingParams")(max_tokens=batch.decoded.shape[1])
        sha256 = _class("vllm", "sha256")
        _class("vllm", "init_none_hash")(sha256)
        self.block_hashes = _class("vllm", "get_request_block_hasher")(VLLM_BLOCK_TOKENS, sha256)

    def of(self, tokens: list[int]) -> Any:
        """Return a request of these tokens."""
        return self.request_class("0", tokens, self.sampling, None)

    def key(self, tokens: Any) -> Any:
        """Return tokens as the prefix cache holds them: the hash of each block with all before it."""
        request = self.of(super().key(tokens))
        return frozenset(self.block_hashes(request))

    def request(self, origin: np.ndarray, output: np.ndarray) -> Any:
        """Return a request with its output."""
        request = self.of(origin.tolist())
        request.append_output_token_ids(output.tolist())
        return request

    @cached_property
    def filled(self) -> list[Any]:
        """The lists of all tokens."""
        return [request.all_token_ids for request in self.requests]

    @cached_property
    def fresh(self) -> list[Any]:
        """The requests without their output."""
        return [self.of(prompt) for prompt in self.prompts]

    def rewind(self) -> None:
        """Bring the requests that `decode_append` appends to back to no output."""
        self.decoding = [self.of(prompt) for prompt in self.prompts]

    def prepare(self, stage: str) -> None:
        """Have what a stage takes, in the form in which it takes it."""
        super().prepare(stage)
        for name in {"prefix_match": ("fresh",), "decode_append": ("prompts",)}.get(stage, ()):
            getattr(self, name)

    def ingest(self) -> Any:
        """Make a Request."""
        return [self.of(prompt) for prompt in self.prompts]

    def prefix_match(self) -> list[int]:
        """Hash the blocks of each prompt, and look them up."""
        lengths = [self.matched(request, key) for request, key in zip(self.fresh, self.equal_keys, strict=True)]
        lengths += [self.matched(request, key) for request, key in zip(self.fresh, self.differing_keys, strict=True)]
        return lengths

    def matched(self, request: Any, key: frozenset[bytes]) -> int:
        """Return how many tokens of a request are in whole blocks that the key has."""
        found = 0
        for block_hash in self.block_hashes(request):
            if block_hash not in key:
                break
            found += VLLM_BLOCK_TOKENS
        return found

    def prefill_concat(self) -> Any:
        """Take the list of all tokens, which is kept as they come."""
        return [request.all_token_ids for request in self.requests]

    def decode_append(self) -> Any:
        """Make a list of the sampled tensor and append to each request, at every step."""
        requests = self.decoding
        for sampled in self.sampled:
            for request, token in zip(requests, sampled.tolist()):  # noqa: B905  (as engines write it)
                request.append_output_token_ids(token)
        return requests

    def finish_concat(self) -> Any:
        """Cut the list of all tokens."""
        length = self.committed
        return [request.all_token_ids[:length] for request in self.requests]

    def cache_finished_req(self) -> list[int]:
        """Hash what is committed, and look it up."""
        return [
            self.matched(self.of(tokens), key) for tokens, key in zip(self.finished, self.finished_keys, strict=True)
        ]


CONTAINERS: dict[str, type[stages.Lists]] = {"sglang": Sglang, "vllm": Vllm}
