"""The examples of docs/adopting.md, run against the engines where they are installed."""

import re
from array import array
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from benchmarks import peers, workloads
from kvpool import FreeError, count_runs

TEXT = (Path(__file__).parent.parent / "docs" / "adopting.md").read_text()
EXAMPLES = dict(re.findall(r"<!-- example: (.*?) -->\n```python\n(.*?)```", TEXT, re.DOTALL))


def run(name):
    """Run an example; skip it where its engine is not installed."""
    engine = name.split()[0]
    try:
        for each in peers.SOURCES[engine].classes:
            peers.peer_class(engine, each)
    except peers.MissingPeerError as missing:
        pytest.skip(str(missing))
    names: dict[str, object] = {}
    exec(compile(EXAMPLES[name], f"docs/adopting.md ({name})", "exec"), names)
    return SimpleNamespace(**names)


def test_every_example_compiles_and_every_block_of_code_is_one():
    assert list(EXAMPLES) == ["sglang host", "sglang device", "sglang tokens", "vllm blocks", "vllm tokens"]
    assert TEXT.count("```python") == len(EXAMPLES)
    for name, code in EXAMPLES.items():
        compile(code, name, "exec")


class TestSglangHost:
    @pytest.fixture
    def pools(self, monkeypatch):
        example = run("sglang host").KvpoolHost
        original = peers.peer_class("sglang", "HostKVCache")
        theirs = peers.sglang(64, 8)
        # The adapter builds whatever the engine's class is.
        monkeypatch.setattr(peers, "peer_class", lambda engine, name: example)
        ours = peers.sglang(64, 8)
        assert issubclass(example, original)
        return ours, theirs

    def test_it_serves_what_the_engine_s_own_serves(self, pools):
        draws = iter(workloads.draws(2_000, 1).tolist())
        live = ([], [])
        for _ in range(500):
            if live[0] and next(draws) % 2:
                victim = next(draws) % len(live[0])
                freed = [pool.free(held.pop(victim)) for pool, held in zip(pools, live, strict=True)]
                assert freed[0] == freed[1]
            else:
                results = [
                    pool.alloc(next_size * 8) for pool, next_size in zip(pools, [1 + next(draws) % 9] * 2, strict=True)
                ]
                assert (results[0] is None) == (results[1] is None)
                if results[0] is not None:
                    assert len(results[0]) == len(results[1])
                    for held, result in zip(live, results, strict=True):
                        held.append(result)
            assert pools[0].alloc.__self__.available_size() == pools[1].alloc.__self__.available_size()
        everything = torch.cat(live[0])
        assert len(everything.unique()) == len(everything)

    def test_it_is_cleared_and_refuses_a_second_free(self, pools):
        ours = pools[0].alloc.__self__
        slots = ours.alloc(16)
        assert count_runs(slots, 8) == 1
        ours.free(slots)
        with pytest.raises(FreeError):
            ours.free(slots)
        ours.alloc(24)
        ours.clear()
        assert ours.available_size() == 64 * 8


class TestSglangDevice:
    PAGE = 4

    @pytest.fixture
    def pools(self):
        example = run("sglang device").KvpoolPaged
        original = peers.peer_class("sglang", "PagedTokenToKVPoolAllocator")
        return [each(200, self.PAGE, torch.float16, "cpu", None, need_sort=True) for each in (example, original)]

    def test_a_batch_grows_at_the_same_addresses(self, pools):
        draws = iter(workloads.draws(4_000, 2).tolist())
        for pool in pools:
            pool.tables = [torch.empty(0, dtype=torch.int64) for _ in range(3)]
        for _ in range(40):
            grow = [1 + next(draws) % 6 for _ in range(3)]
            results = []
            for pool in pools:
                before = torch.tensor([len(table) for table in pool.tables])
                after = before + torch.tensor(grow)
                last = torch.tensor([table[-1] if len(table) else -1 for table in pool.tables])
                slots = pool.alloc_extend(before, before, after, after, last, sum(grow))
                results.append(slots)
                if slots is not None:
                    pool.tables = [torch.cat(pair) for pair in zip(pool.tables, slots.split(grow), strict=True)]
            assert (results[0] is None) == (results[1] is None)
            assert results[0] is None or results[0].tolist() == results[1].tolist()
            decoded = []
            for pool in pools:
                lengths = torch.tensor([len(table) + 1 for table in pool.tables])
                slots = pool.alloc_decode(lengths, lengths, torch.tensor([table[-1] for table in pool.tables]))
                decoded.append(slots)
                if slots is not None:
                    pool.tables = [torch.cat(pair) for pair in zip(pool.tables, slots.split(1), strict=True)]
            assert (decoded[0] is None) == (decoded[1] is None)
            assert decoded[0] is None or decoded[0].tolist() == decoded[1].tolist()
            # A request ends, freed by one method or the other, and a new one of one token takes its place.
            ended, by_segment = next(draws) % 3, next(draws) % 2
            one = torch.tensor([1])
            for pool in pools:
                if by_segment:
                    pool.free_segment(pool.tables[ended], start_pos=0)
                else:
                    pool.free(pool.tables[ended])
                pool.merge_and_sort_free()
                pool.tables[ended] = pool.alloc_extend(one - 1, one - 1, one, one, one - 2, 1)
            free = [sorted(pool.get_all_free_pages().tolist()) for pool in pools]
            assert free[0] == free[1]
            assert pools[0].available_size() == pools[1].available_size()

    def test_a_group_of_frees_is_one(self, pools):
        ours = pools[0]
        one, other = ours.alloc(8), ours.alloc(4)
        before = ours.available_size()
        ours.free_group_begin()
        ours.free(one)
        ours.free(other)
        assert ours.available_size() == before
        ours.free_group_end()
        assert ours.available_size() == 200

    def test_what_does_not_fit_changes_nothing(self, pools):
        ours = pools[0]
        zero, many = torch.tensor([0]), torch.tensor([1_000])
        assert ours.alloc_extend(zero, zero, many, many, torch.tensor([-1]), 1_000) is None
        assert ours.alloc(204) is None
        assert ours.available_size() == 200


class TestTokens:
    def test_sglang(self):
        found = run("sglang tokens")
        assert found.fill_ids.tolist() == [*range(100), 7]
        key = peers.peer_class("sglang", "RadixKey")
        assert found.matched == key(array("q", found.fill_ids)).match(key(array("q", range(80))), page_size=16) == 80
        assert found.to_cache.tolist() == list(range(100))

    def test_vllm(self):
        example = run("vllm tokens").Tokens([1, 2, 3])
        sampling = peers.peer_class("vllm", "SamplingParams")(max_tokens=8)
        theirs = peers.peer_class("vllm", "Request")("0", [1, 2, 3], sampling, None)
        for tokens in (4, [5, 6]):
            for each in (example, theirs):
                each.append_output_token_ids(tokens)
        assert list(example.output_token_ids) == list(theirs.output_token_ids) == [4, 5, 6]
        assert list(example.all_token_ids) == list(theirs.all_token_ids) == [1, 2, 3, 4, 5, 6]
        with pytest.raises(ValueError, match="read-only"):
            example.all_token_ids[0] = 9


class TestVllmBlocks:
    @pytest.fixture
    def pools(self):
        example = run("vllm blocks").KvpoolBlockPool
        original = peers.peer_class("vllm", "BlockPool")
        return [each(33, enable_caching=True, hash_block_size=4) for each in (example, original)]

    def cache(self, pool, blocks, tokens):
        """Have a pool cache full blocks of a request."""
        request = SimpleNamespace(
            block_hashes=[bytes([*str(tokens[: index + 1]).encode()]) for index in range(len(blocks))],
            request_id="0", lora_request=None,
        )  # fmt: skip
        pool.cache_full_blocks(request, blocks, 0, len(blocks), 4, 0)
        return request.block_hashes

    def test_blocks_are_counted_and_none_is_given_twice(self, pools):
        for pool in pools:
            assert pool.get_num_free_blocks() == 32
            first, second = pool.get_new_blocks(20), pool.get_new_blocks(12)
            ids = [block.block_id for block in first + second]
            assert sorted(ids) == list(range(1, 33))
            assert all(block.ref_cnt == 1 for block in first + second)
            with pytest.raises(ValueError, match="Cannot get 1 free blocks"):
                pool.get_new_blocks(1)
            pool.free_blocks(first)
            assert pool.get_num_free_blocks() == 20

    def test_a_cached_block_is_found_again_until_it_is_evicted(self, pools):
        for pool in pools:
            blocks = pool.get_new_blocks(4)
            hashes = self.cache(pool, blocks, list("abcd"))
            pool.free_blocks(reversed(blocks))
            assert pool.get_num_free_blocks() == 32
            hit = pool.get_cached_block(hashes[0], [0])
            assert hit == [blocks[0]]
            pool.touch(hit)
            assert pool.get_num_free_blocks() == 31
            # Empty blocks go first, then cached ones, the end of the chain first.
            taken = pool.get_new_blocks(29)
            assert pool.get_cached_block(hashes[3], [0]) is None
            assert pool.get_cached_block(hashes[2], [0]) == [blocks[2]]
            pool.free_blocks(taken)
            pool.free_blocks(hit)
            assert pool.get_num_free_blocks() == 32
            assert pool.reset_prefix_cache()
            assert pool.get_cached_block(hashes[2], [0]) is None
            assert len({block.block_id for block in pool.get_new_blocks(32)}) == 32

    def test_what_is_empty_is_handed_out_in_few_runs(self, pools):
        runs = []
        for pool in pools:
            held = [pool.get_new_blocks(1)[0] for _ in range(32)]
            pool.free_blocks([block for block in held if block.block_id % 4])
            ids = [block.block_id for block in pool.get_new_blocks(3)]
            runs.append(1 + int(np.count_nonzero(np.diff(ids) != 1)))
        assert runs[0] == 1
