"""Token containers: what each stage of a request's life costs, and the conversions to a tensor.

`batch` is requests x tokens of each prompt; 1,000 tokens are decoded for each request. `container` is what holds the
tokens: `list` and `array` (array('q')) with the code of engines, `kvpool`, and in some stages others that the docstring
names. `floor` is the cheapest way to the same result. A figure is the time of one batch, or where the docstring says so
of one step or call, without that of dropping its result.
"""

import functools
import time

import torch

from benchmarks import stages, token_calls, workloads
from benchmarks.common import Benchmark

SEED = 0
DECODED = 1_000
# Requests, and tokens of a prompt.
BATCHES = {"2x1000": (2, 1_000), "2x10000": (2, 10_000), "2x100000": (2, 100_000), "64x1000": (64, 1_000)}
# Where a short prompt shows nothing that a long one does not.
LONG_BATCHES = ["2x10000", "2x100000", "64x1000"]
CONTAINERS = ["list", "array", "kvpool"]
CONVERTED_TOKENS = [1_000, 10_000, 100_000]
# Calls of which a sample is the mean, unless they take long: 0.1 ms or more.
TURNS = 100


@functools.cache
def batch_tokens(batch):
    """Return the tokens of a batch."""
    return workloads.token_batch(*BATCHES[batch], DECODED, SEED)


class Repeated(Benchmark):
    """Calls that leave nothing behind, several in a sample; each result is dropped before the next, off the clock.

    Kept results would have every call write to memory that the system has just handed out, which costs more than a
    copy; results dropped on the clock would cost what belongs to whoever holds them.
    """

    def repeat_call(self, call, turns=TURNS, calls_each=1):
        """Time a call, as the mean of so many; or one of the calls that it makes, of which the figure then is."""
        # The first call of a process also pays what is done once: it says nothing of how many calls a sample can hold.
        if turns > 1:
            call()
        self.call = call
        self.turns = range(self.rehearse([call] * turns))
        self.calls_each = calls_each
        self.spent = 0.0
        self.timer = lambda: self.spent

    def settle(self):
        """Wait, off the clock, for what a call has only issued."""

    def call_all(self):
        """Make the calls of a sample; the clock that asv reads goes on by what one of them takes."""
        call, clock = self.call, time.perf_counter
        spent = 0.0
        for _ in self.turns:
            start = clock()
            result = call()
            spent += clock() - start
            self.settle()
            del result
        self.spent += spent / len(self.turns) / self.calls_each


class Stage(Repeated):
    """A stage of a request's life."""

    device = "cpu"
    param_names = ("batch", "container")

    def setup(self, batch, container):
        if not hasattr(self, "held"):
            kind = stages.Floor if container == "floor" else stages.CONTAINERS[container]
            self.held = kind(batch_tokens(batch), self.device)
            self.held.prepare(self.stage)
            self.repeat_call(getattr(self.held, self.stage))


class Ingest(Stage):
    """The tokenizer's list becomes the request's prompt."""

    version = "1"
    stage = "ingest"
    params = (list(BATCHES), CONTAINERS)

    def time_batch(self, batch, container):
        """Time to take in the prompts of a batch: a reference for `list`, array('q', list), RequestTokens(list)."""
        self.call_all()


class PrefixMatch(Stage):
    """The prompts of a batch against the keys of a prefix tree."""

    version = "2"
    stage = "prefix_match"
    params = (list(BATCHES), ["list", "array", "array_slices", "kvpool", "floor"])

    def time_batch(self, batch, container):
        """Time to match each prompt with two keys: one equal to it, and one that differs after nine tenths.

        `list` and `array` are walked token by token, `array_slices` compares slices of doubling length, `floor`
        compares bytes. No two share memory.
        """
        self.call_all()


class PrefillConcat(Stage):
    """Origin and output of requests that are prefilled again."""

    version = "1"
    stage = "prefill_concat"
    params = (LONG_BATCHES, CONTAINERS)

    def time_batch(self, batch, container):
        """Time to have the origin and the 1,000 tokens of output of each request as one sequence."""
        self.call_all()


class PrefillPerreqSlice(Stage):
    """What is left to prefill past the cached prefix."""

    version = "1"
    stage = "prefill_perreq_slice"
    params = (LONG_BATCHES, CONTAINERS)

    def time_batch(self, batch, container):
        """Time to have what follows the first nine tenths of the prompt, for each request."""
        self.call_all()


class BatchTorchTensor(Stage):
    """All tokens of a batch in one tensor on the CPU."""

    version = "1"
    stage = "batch_torch_tensor"
    params = (list(BATCHES), [*CONTAINERS, "floor"])

    def time_batch(self, batch, container):
        """Time to flatten origin and output of all requests into one int64 tensor; `floor` concatenates arrays."""
        self.call_all()


class BatchTorchTensorCuda(Stage):
    """All tokens of a batch in one tensor on a CUDA device."""

    version = "1"
    stage = "batch_torch_tensor"
    device = "cuda"
    params = (list(BATCHES), CONTAINERS)

    def setup(self, batch, container):
        if not torch.cuda.is_available():
            raise NotImplementedError("there is no CUDA device")
        super().setup(batch, container)

    def settle(self):
        """Wait, off the clock, for what a call has only issued."""
        torch.cuda.synchronize()

    def time_batch(self, batch, container):
        """Time to issue it, through pinned memory and without waiting: the copies themselves are not in the figure."""
        self.call_all()


class DecodeAppend(Stage):
    """The tokens that a batch decodes, a step at a time."""

    version = "2"
    stage = "decode_append"
    params = (list(BATCHES), ["list", "array", "kvpool_single", "kvpool"])

    def setup(self, batch, container):
        if not hasattr(self, "held"):
            self.held = stages.CONTAINERS[container](batch_tokens(batch), self.device)
            self.held.prepare(self.stage)
            self.repeat_call(self.held.decode_append, turns=1, calls_each=DECODED)
        self.held.rewind()

    def time_batch(self, batch, container):
        """Time of a step, the mean of 1,000, which appends one sampled token to every request of the batch.

        All but `kvpool` make a list of the sampled tensor and append to one request after the other. `kvpool` appends
        to a TokenTable, in one call a step.
        """
        self.call_all()


class FinishConcat(Stage):
    """What is committed when requests end."""

    version = "1"
    stage = "finish_concat"
    params = (LONG_BATCHES, CONTAINERS)

    def time_batch(self, batch, container):
        """Time to have all but the last of the origin and the 1,000 tokens of output of each request."""
        self.call_all()


class CacheFinishedReq(Stage):
    """Finished requests against the prefix tree."""

    version = "2"
    stage = "cache_finished_req"
    params = (list(BATCHES), CONTAINERS)

    def time_batch(self, batch, container):
        """Time to match what is committed of each request with a key that equals it and shares no memory with it."""
        self.call_all()


class PrefixMatchFrom(Repeated):
    """Two sequences of which nine tenths are known to agree, as they do to the end."""

    version = "2"
    params = ([10_000, 100_000], list(token_calls.MATCHES))
    param_names = ("tokens", "container")

    def setup(self, tokens, container):
        if not hasattr(self, "call"):
            self.repeat_call(token_calls.MATCHES[container](tokens).matched, 5, token_calls.REPEATS)

    def time_match(self, tokens, container):
        """Time to match what is not known yet; `floor` compares the bytes of it."""
        self.call_all()


class Listing(Repeated):
    """A part of a request as a list of Python ints, for what engines do with lists."""

    version = "2"
    params = ([16, 1_000], list(token_calls.PARTS))
    param_names = ("tokens", "container")

    def setup(self, tokens, container):
        if not hasattr(self, "call"):
            self.repeat_call(token_calls.PARTS[container](tokens).listed, 5, token_calls.REPEATS)

    def time_list(self, tokens, container):
        """Time of a list of so many tokens; `list` is a slice of one, whose ints exist already."""
        self.call_all()


class Drafts(Repeated):
    """Speculative decoding of a request of 10,000 tokens: five are drafted at each step, two of them accepted."""

    version = "2"
    params = (list(token_calls.DRAFTS),)
    param_names = ("container",)

    def setup(self, container):
        if not hasattr(self, "call"):
            self.repeat_call(token_calls.DRAFTS[container]().steps, 5, token_calls.STEPS)

    def time_steps(self, container):
        """Time of a step, which appends the draft and takes back what was not accepted.

        With `kvpool_viewed` there is a view of all tokens at that time, so that each step copies them.
        """
        self.call_all()


class TableRows(Repeated):
    """The rows of a table: 256 in use, of 1,000 tokens each, and one that is free."""

    version = "2"
    params = (list(token_calls.ROW_CALLS), list(token_calls.ROWS_IN))
    param_names = ("method", "container")

    def setup(self, method, container):
        if not hasattr(self, "call"):
            self.repeat_call(getattr(token_calls.ROWS_IN[container](), method), 5, token_calls.ROWS)

    def time_rows(self, method, container):
        """Time of a call, the mean of one for each row; `add` also removes what was there before.

        `floor` does the same to an ndarray and a list of lengths, and checks nothing.
        """
        self.call_all()


class Roads(Repeated):
    """From token ids in host memory to a tensor on the CPU."""

    version = "1"
    device = "cpu"
    params = (CONVERTED_TOKENS, list(stages.CONVERSIONS))
    param_names = ("tokens", "road")

    def setup(self, tokens, road):
        if not hasattr(self, "call"):
            held_in, convert = stages.CONVERSIONS[road]
            held = held_in(workloads.token_ids(tokens, SEED).tolist())
            self.repeat_call(functools.partial(convert, held, torch.device(self.device)))

    def time_tensor(self, tokens, road):
        """Time of one conversion: from a list, from an array token by token, from an array's buffer without a copy."""
        self.call_all()


class RoadsCuda(Roads):
    """From token ids in host memory to a tensor on a CUDA device."""

    version = "1"
    device = "cuda"

    def setup(self, tokens, road):
        if not torch.cuda.is_available():
            raise NotImplementedError("there is no CUDA device")
        super().setup(tokens, road)

    def settle(self):
        """Wait, off the clock, for what a call has only issued."""
        torch.cuda.synchronize()

    def time_tensor(self, tokens, road):
        """Time of one conversion; from a buffer the copy is issued without waiting for it."""
        self.call_all()
