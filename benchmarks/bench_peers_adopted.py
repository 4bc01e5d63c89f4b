"""The examples of docs/adopting.md beside what they replace, in the same calls: `engine` as it is, `kvpool` as pasted.

Defined only where an engine is installed, as `bench_peers`. On the CPU, and so are the engines' own paths: what SGLang
does on a GPU with its Triton kernels is not measured here. A figure is the time of one call, the mean of several.
"""

from array import array

import numpy as np
import torch

from benchmarks import adopting, peers, workloads
from benchmarks.bench_host import NUM_PAGES, PAGE_SIZE, SEED
from benchmarks.bench_peers import beside_peers, peer
from benchmarks.common import Benchmark

SIDES = ["engine", "kvpool"]
BATCHES = [1, 128]
# Calls in a trace, by the size of the batch.
DECODES = {1: 400, 128: 100}
EXTENDS = {1: 50, 128: 10}
PROMPTS = {1: 8_192, 128: 512}
BLOCKS = {1: 400, 8: 100, 128: 20}
STORES = {1: 100, 128: 5}
RANGES = {1: 200, 64: 200, 256: 50, 6_400: 10}
ROWS = {1: 400, 128: 20}
TABLE_ROWS, TABLE_TOKENS = 128, 4_096
MATCHES = {16: 400, 1_000: 400, 10_000: 100}


def defined(side, example, adapter, replaced):
    """Return the engine's class, or what an example has instead; n/a where the engine or that part of kvpool is not."""
    engine = example.split()[0]
    if side == "engine":
        return peer(engine, replaced)
    try:
        return getattr(adopting.beside_peers(example), adapter)
    except (peers.MissingPeerError, ImportError) as error:
        raise NotImplementedError(str(error)) from error


class AdoptedBenchmark(Benchmark):
    """Something that is prepared once, and brought back to its state before each timed call."""

    rounds = 4
    repeat = (2, 50, 0.03)
    param_names = ("batch", "side")

    def setup(self, size, side):
        if not hasattr(self, "calls"):
            self.prepare(size, side)
        self.rewind()

    def rewind(self):
        """Bring back the state; here it has not changed."""


class DevicePool(AdoptedBenchmark):
    """SGLang's device pool of 34,375 pages of 64 slots, and a batch of requests that it holds."""

    params = (BATCHES, SIDES)

    def hold(self, side, lengths):
        """Build the pool; `lengths` are those of the requests."""
        pool = defined(side, "sglang device", "KvpoolPaged", "PagedTokenToKVPoolAllocator")
        self.pool = pool(NUM_PAGES * PAGE_SIZE, PAGE_SIZE, torch.float16, "cpu", None, need_sort=False)
        zeros = torch.zeros_like(lengths)
        self.lengths = lengths
        self.extension = (zeros, zeros, lengths, lengths, zeros - 1, int(lengths.sum()))

    def rewind(self):
        self.pool.clear()
        self.slots = self.pool.alloc_extend(*self.extension)


@beside_peers
class AdoptedDecode(DevicePool):
    """One more slot for each request of a batch."""

    version = "2"

    def prepare(self, batch, side):
        self.hold(side, torch.from_numpy((1_000 + workloads.draws(batch, SEED) % 8_000).astype(np.int64)))
        self.rewind()
        last, calls = self.slots[torch.cumsum(self.lengths, 0) - 1], []
        for step in range(1, 1 + DECODES[batch]):
            calls.append((self.lengths + step, self.lengths + step, last))
            last = self.pool.alloc_decode(*calls[-1])
        self.rewind()
        self.calls = calls[: self.rehearse([lambda each=each: self.pool.alloc_decode(*each) for each in calls])]

    def time_alloc_decode(self, batch, side):
        """Time to give each request one slot; one in 64 opens a page."""
        alloc_decode = self.pool.alloc_decode
        for arguments in self.calls:
            alloc_decode(*arguments)


@beside_peers
class AdoptedExtend(DevicePool):
    """The slots of new prompts."""

    version = "2"

    def prepare(self, batch, side):
        self.hold(side, torch.full((batch,), PROMPTS[batch]))
        self.calls = range(self.rehearse([lambda: self.pool.alloc_extend(*self.extension)] * EXTENDS[batch]))

    def rewind(self):
        self.slots = None
        self.pool.clear()

    def time_alloc_extend(self, batch, side):
        """Time to give slots to a prompt of 8,192 tokens, or to 128 of 512 tokens."""
        alloc_extend, extension = self.pool.alloc_extend, self.extension
        self.slots = [alloc_extend(*extension) for _ in self.calls]


@beside_peers
class AdoptedFree(DevicePool):
    """Requests that end, one after the other; the last page of each is used in part."""

    version = "2"

    def prepare(self, batch, side):
        self.hold(side, torch.full((batch,), PROMPTS[batch] - 1))
        self.calls = range(batch)
        self.share_out(batch)

    def rewind(self):
        super().rewind()
        self.requests = self.slots.split(self.lengths.tolist())

    def time_free(self, batch, side):
        """Time to free a request: of 8,191 slots, or one of 128 of 511."""
        free = self.pool.free
        for slots in self.requests:
            free(slots)

    def time_free_segment(self, batch, side):
        """Time to free the same by free_segment, as the prefix tree does."""
        free_segment = self.pool.free_segment
        for slots in self.requests:
            free_segment(slots, start_pos=0)


@beside_peers
class AdoptedBlocks(AdoptedBenchmark):
    """vLLM's pool of 34,375 blocks with prefix caching, which has been used."""

    version = "2"
    params = (list(BLOCKS), SIDES)

    def prepare(self, blocks, side):
        pool = defined(side, "vllm blocks", "KvpoolBlockPool", "BlockPool")
        self.pool = pool(NUM_PAGES + 1, enable_caching=True, hash_block_size=PAGE_SIZE)
        used = self.pool.get_new_blocks(NUM_PAGES)
        order = workloads.shuffled(NUM_PAGES, SEED).tolist()
        self.pool.free_blocks([used[each] for each in order])
        # In the middle of the queue, and cached: what is freed goes to its end.
        self.prefix = [used[each] for each in order[10_000 : 10_000 + blocks]]
        for block in self.prefix:
            block.set_block_hash(b"%d" % block.block_id)
        self.calls = range(BLOCKS[blocks])
        self.share_out(BLOCKS[blocks])

    def time_get_and_free(self, blocks, side):
        """Time to get so many empty blocks and to free them."""
        get_new_blocks, free_blocks = self.pool.get_new_blocks, self.pool.free_blocks
        for _ in self.calls:
            free_blocks(get_new_blocks(blocks))

    def time_hit_and_free(self, blocks, side):
        """Time to take a cached prefix of so many blocks out of the queue and to free it."""
        touch, free_blocks, prefix = self.pool.touch, self.pool.free_blocks, self.prefix
        for _ in self.calls:
            touch(prefix)
            free_blocks(prefix)


@beside_peers
class AdoptedOffload(AdoptedBenchmark):
    """vLLM's offload tier on the CPU, 34,375 chunks that are all in use: each store evicts as many as it brings."""

    version = "2"
    params = (BATCHES, SIDES)

    def prepare(self, batch, side):
        manager = defined(side, "vllm offload", "KvpoolOffloadingManager", "CPUOffloadingManager")
        self.manager = manager(NUM_PAGES)
        self.context = peer("vllm", "ReqContext")
        keys = [b"%016d" % each for each in range(NUM_PAGES + STORES[batch] * batch)]
        self.first, rest = keys[:NUM_PAGES], keys[NUM_PAGES:]
        self.batches = [rest[start : start + batch] for start in range(0, len(rest), batch)]
        self.calls = range(STORES[batch])
        self.share_out(STORES[batch])

    def rewind(self):
        self.manager.reset_cache()
        self.store([self.first])

    def store(self, batches):
        """Store batches of chunks, each for a request of its own."""
        for keys in batches:
            context = self.context(req_id="0")
            self.manager.prepare_store(keys, context)
            self.manager.complete_store(keys, context)

    def time_store(self, batch, side):
        """Time to store 1 / 128 chunks in the place of others."""
        self.store(self.batches)


@beside_peers
class AdoptedRanges(AdoptedBenchmark):
    """LMCache's addresses: a heap of 64 ranges of so many pages of 4,096 bytes, every other one in use."""

    version = "2"
    params = (list(RANGES), SIDES)
    param_names = ("pages", "side")

    def prepare(self, pages, side):
        manager = defined(side, "lmcache addresses", "KvpoolAddressManager", "AddressManager")
        self.bytes = 4_096 * pages
        self.manager = manager(64 * self.bytes)
        for address, size in self.manager.batched_allocate(self.bytes, 64)[::2]:
            self.manager.free(address, size)
        self.calls = range(self.rehearse([self.allocate_and_free] * RANGES[pages]))

    def allocate_and_free(self):
        """Allocate a range and free it."""
        self.manager.free(*self.manager.allocate(self.bytes))
        return self.bytes

    def time_allocate_and_free(self, pages, side):
        """Time to allocate a range of so many pages and to free it."""
        for _ in self.calls:
            self.allocate_and_free()


class Rows(AdoptedBenchmark):
    """The token ids of a batch in vLLM's worker; `engine` fills rows of an array, as its InputBatch does."""

    params = (BATCHES, SIDES)

    def prepare(self, batch, side):
        self.prompts = [workloads.token_ids(1_000, SEED, row).tolist() for row in range(batch)]
        self.calls = range(ROWS[batch])
        if side == "engine":
            self.ids = torch.zeros((TABLE_ROWS, TABLE_TOKENS), dtype=torch.int32).numpy()
            self.lengths = np.zeros(TABLE_ROWS, np.int32)
            self.add, self.append = self.fill_row, self.fill_ends
        else:
            self.table = defined(side, "vllm tokens", "TokenIds", None)(TABLE_ROWS, TABLE_TOKENS)
            self.add, self.append = self.table.add_request, self.table.append_sampled

    def rewind(self):
        if hasattr(self, "table"):
            for row in np.flatnonzero(self.table.table.lengths).tolist():
                self.table.remove_request(row)

    def fill_row(self, row, prompt, output):
        """Write a request's tokens over a row."""
        total = len(prompt) + len(output)
        self.ids[row, : len(prompt)] = prompt
        self.ids[row, len(prompt) : total] = output
        self.lengths[row] = total

    def fill_ends(self, rows, sampled):
        """Write what was sampled, a list of one token a request, behind the tokens of each."""
        for row, tokens in zip(rows, sampled, strict=True):
            start = self.lengths[row]
            self.ids[row, start : start + len(tokens)] = tokens
            self.lengths[row] += len(tokens)


@beside_peers
class AdoptedAdd(Rows):
    """New requests, each with its prompt as a list."""

    version = "2"

    def prepare(self, batch, side):
        super().prepare(batch, side)
        self.share_out(batch)

    def time_add_requests(self, batch, side):
        """Time to give a request of 1,000 tokens its row, one of 1 / 128."""
        add = self.add
        for row, prompt in enumerate(self.prompts):
            add(row, prompt, [])


@beside_peers
class AdoptedAppend(Rows):
    """A token for each request of a batch."""

    version = "2"

    def prepare(self, batch, side):
        super().prepare(batch, side)
        tokens = workloads.token_ids(batch, SEED, batch).tolist()
        self.batch = (list(range(batch)), [[each] for each in tokens] if side == "engine" else tokens)
        self.share_out(ROWS[batch])

    def rewind(self):
        super().rewind()
        for row, prompt in enumerate(self.prompts):
            self.add(row, prompt, [])

    def time_append(self, batch, side):
        """Time to append a token to each of 1 / 128 requests."""
        append, arguments = self.append, self.batch
        for _ in self.calls:
            append(*arguments)


@beside_peers
class AdoptedMatch(AdoptedBenchmark):
    """Keys of SGLang's prefix tree, arrays of equal tokens that share no memory."""

    version = "2"
    params = (list(MATCHES), SIDES)
    param_names = ("tokens", "side")

    def prepare(self, tokens, side):
        key = peer("sglang", "RadixKey")
        self.keys = [key(array("q", range(1_000, 1_000 + tokens))) for _ in range(2)]
        self.match_at = key.match_at if side == "engine" else defined(side, "sglang tokens", "match_at", None)
        self.calls = range(MATCHES[tokens])
        self.share_out(MATCHES[tokens])

    def time_match(self, tokens, side):
        """Time to find that all tokens match."""
        match_at, (one, other) = self.match_at, self.keys
        for _ in self.calls:
            match_at(one, other, 0)
