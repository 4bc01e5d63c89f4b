"""The examples of docs/adopting.md, run against the engines where they are installed."""

import itertools
from array import array
from types import SimpleNamespace

import pytest
import torch

from benchmarks import adopting, peers, workloads
from kvpool import FreeError, TakeError, count_runs


def run(name):
    """Run an example; skip it where its engine is not installed."""
    try:
        return adopting.beside_peers(name)
    except peers.MissingPeerError as missing:
        pytest.skip(str(missing))


def test_every_example_compiles_and_every_block_of_code_is_one():
    assert list(adopting.EXAMPLES) == [
        "sglang host",
        "sglang device",
        "sglang tokens",
        "vllm blocks",
        "vllm offload",
        "vllm tokens",
        "lmcache addresses",
    ]
    assert adopting.TEXT.count("```python") == len(adopting.EXAMPLES)
    for name, code in adopting.EXAMPLES.items():
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
    """The example beside vLLM's own pool: the same blocks in the same order, the same events and the same callbacks."""

    BLOCKS = 64

    @pytest.fixture
    def pools(self):
        example = run("vllm blocks").KvpoolBlockPool
        original = peers.peer_class("vllm", "BlockPool")
        return [
            each(self.BLOCKS, enable_caching=True, hash_block_size=4, enable_kv_cache_events=True)
            for each in (example, original)
        ]

    def cache(self, pool, blocks, prefix):
        """Have a pool cache full blocks of a request."""
        tokens = 4 * len(blocks)
        request = SimpleNamespace(
            block_hashes=[f"{prefix}-{index}".encode() for index in range(len(blocks))],
            request_id=str(prefix),
            lora_request=None,
            mm_features=[],
            cache_salt=None,
            prompt_embeds=None,
            session_id=None,
            num_tokens=tokens,
            all_token_ids=list(range(tokens)),
        )
        pool.cache_full_blocks(request, blocks, 0, len(blocks), 4, 0)
        return request.block_hashes

    def state(self, pool):
        """Return what can be seen of a pool, with its events, which are taken."""
        return (
            [block.block_id for block in pool.free_block_queue.get_all_free_blocks()],
            pool.get_num_free_blocks(),
            pool.get_usage(),
            [(block.ref_cnt, block.block_hash) for block in pool.blocks],
            pool.take_events(),
        )

    def do(self, pools, operation):
        """Do to both what is done to one, and compare what they return, as block ids, and their states."""
        found = []
        for pool in pools:
            try:
                result = operation(pool)
            except (ValueError, RuntimeError) as error:
                found.append(type(error))
            else:
                found.append([block.block_id for block in result] if isinstance(result, list) else result)
        assert found[0] == found[1]
        assert self.state(pools[0]) == self.state(pools[1])
        pools[0].free_block_queue.pages.check()
        return found[0]

    @pytest.mark.parametrize("seed", range(4))
    def test_requests_come_hit_and_go_as_on_vllm_s_own(self, pools, seed):
        draws = iter(workloads.draws(8_000, 100 + seed).tolist())
        held, cached, idle, reused = [], [], [], ([], [])

        def blocks(pool, ids):
            return [pool.blocks[each] for each in ids]

        for step in range(1_000):
            action = next(draws) % 8
            if action < 3:
                size = 1 + next(draws) % 12
                taken = self.do(pools, lambda pool, size=size: pool.get_new_blocks(size))
                if taken is not ValueError:
                    held.append(taken)
            elif action == 3 and held:
                ids = held[next(draws) % len(held)]
                if all(pools[0].blocks[each].block_hash is None for each in ids):
                    cached.extend(
                        self.do(
                            pools, lambda pool, ids=ids, step=step: self.cache(pool, blocks(pool, ids), step) and None
                        )
                        or [(step, index) for index in range(len(ids))]
                    )
            elif action == 4 and cached:
                # A hit: a prefix of what is still cached of a request, some of it held, some of it free.
                request, last = cached[next(draws) % len(cached)]

                def hit(pool, request=request, last=last):
                    found = [pool.get_cached_block(f"{request}-{index}".encode(), [0]) for index in range(last + 1)]
                    prefix = [each[0] for each in found[: found.index(None) if None in found else None]]
                    pool.touch(prefix)
                    return prefix

                ids = self.do(pools, hit)
                if ids:
                    held.append(ids)
            elif action == 5 and held:
                ids = held.pop(next(draws) % len(held))[::-1]
                self.do(pools, lambda pool, ids=ids: pool.free_blocks(blocks(pool, ids)))
            elif action == 6 and held:
                ids = held.pop(next(draws) % len(held))
                for pool, seen in zip(pools, reused, strict=True):
                    pool.unpin_blocks(blocks(pool, ids), lambda block, seen=seen: seen.append(block.block_id))
                idle.extend(ids)
            elif action == 7:
                evicted = {next(draws) % self.BLOCKS for _ in range(3)}
                self.do(pools, lambda pool, evicted=evicted: pool.evict_blocks(evicted))
            assert reused[0] == reused[1]
        assert idle
        assert reused[0]
        while held:
            ids = held.pop()
            self.do(pools, lambda pool, ids=ids: pool.free_blocks(blocks(pool, ids)))
        assert self.do(pools, lambda pool: pool.reset_prefix_cache()) is True
        assert len(set(self.do(pools, lambda pool: pool.get_new_blocks(self.BLOCKS - 1)))) == self.BLOCKS - 1

    def test_an_empty_block_that_is_touched_is_not_handed_out_again(self, pools):
        ids = self.do(pools, lambda pool: pool.touch([pool.blocks[5], pool.blocks[6]]) or pool.get_new_blocks(61))
        assert not {0, 5, 6} & set(ids)
        assert self.do(pools, lambda pool: pool.get_new_blocks(1)) is ValueError

    def test_a_block_of_another_pool_goes_back_to_its_own(self, pools):
        others = [type(pool)(9, enable_caching=True, hash_block_size=4) for pool in pools]
        for pool, other in zip(pools, others, strict=True):
            mixed = [*pool.get_new_blocks(2), *other.get_new_blocks(3)]
            pool.free_blocks(mixed)
            assert (pool.get_num_free_blocks(), other.get_num_free_blocks()) == (self.BLOCKS - 1, 8)
        assert self.state(pools[0]) == self.state(pools[1])
        assert self.state(others[0]) == self.state(others[1])

    def test_the_same_block_twice_in_a_hit_is_taken_once(self, pools):
        self.do(pools, lambda pool: pool.touch([pool.blocks[5], pool.blocks[5], pool.null_block]))
        assert pools[0].blocks[5].ref_cnt == 2

    def test_a_block_that_is_freed_twice_is_named_and_changes_nothing(self, pools):
        ours = pools[0]
        (block,) = ours.get_new_blocks(1)
        ours.free_blocks([block])
        before = self.state(ours)
        with pytest.raises(FreeError, match="page 1: "):
            ours.free_block_queue.append(block)
        with pytest.raises(TakeError, match="page 0: "):
            ours.free_block_queue.remove(ours.null_block)
        with pytest.raises(ValueError, match="Cannot get 64 free blocks"):
            ours.get_new_blocks(64)
        assert self.state(ours) == before

    def test_free_blocks_are_walked_in_the_order_of_their_reuse(self, pools):
        for pool in pools:
            queue = pool.free_block_queue
            queue.append_n(queue.popleft_n(40))
            order = [*range(41, 64), *range(1, 41)]
            assert [block.block_id for block in queue.iter_blocks_after(None)] == order
            assert [block.block_id for block in queue.iter_blocks_after(pool.blocks[60])] == order[20:]
            assert queue.popleft().block_id == 41
            queue.popleft_n(62)
            with pytest.raises(ValueError, match="No free blocks"):
                queue.popleft()
            with pytest.raises(AssertionError):
                queue.popleft_n(1)
            assert list(queue.iter_blocks_after(None)) == []


class TestVllmOffload:
    @pytest.fixture
    def managers(self):
        example = run("vllm offload").KvpoolOffloadingManager
        original = peers.peer_class("vllm", "CPUOffloadingManager")
        return [each(16) for each in (example, original)]

    def test_it_stores_and_evicts_what_vllm_s_own_does_and_in_fewer_runs(self, managers):
        context = [peers.peer_class("vllm", "ReqContext")(req_id="0") for _ in managers]
        draws = iter(workloads.draws(4_000, 7).tolist())
        runs = [0, 0]
        for _ in range(300):
            keys = [b"%d" % (next(draws) % 40) + bytes(4) for _ in range(1 + next(draws) % 6)]
            keys = list(dict.fromkeys(keys))
            fails = next(draws) % 4 == 0
            found = []
            for index, (manager, each) in enumerate(zip(managers, context, strict=True)):
                output = manager.prepare_store(keys, each)
                if output is not None:
                    found.append((output.keys_to_store, output.evicted_keys))
                    ids = sorted(output.store_spec.chunk_ids.tolist())
                    runs[index] += len(ids) and count_runs(ids, 1)
                    manager.complete_store(output.keys_to_store, each, success=not fails)
                found.append([manager.lookup(key, each) for key in keys])
                found.append(manager._get_num_free_chunks())
            assert found[: len(found) // 2] == found[len(found) // 2 :]
        managers[0].chunks.check()
        assert runs[0] < runs[1]
        for manager in managers:
            manager.reset_cache()
            assert manager._get_num_free_chunks() == 16

    def test_a_chunk_is_not_freed_twice(self, managers):
        ours = managers[0]
        (chunk,) = ours._allocate_chunks([b"0"])
        ours._free_chunk(chunk)
        with pytest.raises(FreeError):
            ours._free_chunk(chunk)


class TestLmcacheAddresses:
    @pytest.fixture
    def managers(self):
        example = run("lmcache addresses").KvpoolAddressManager
        original = peers.peer_class("lmcache", "AddressManager")
        return [each(64 * 4096 + 100) for each in (example, original)]

    def test_ranges_are_disjoint_and_as_long_as_lmcache_s_own(self, managers):
        draws = iter(workloads.draws(6_000, 9).tolist())
        live = ([], [])
        for _ in range(1_000):
            size, batch, victim = 1 + next(draws) % 12_000, next(draws) % 4, next(draws)
            if victim % 2 and live[0]:
                freed = [held.pop(victim % len(held)) for held in live]
                assert freed[0][1] == freed[1][1]
                for manager, each in zip(managers, freed, strict=True):
                    manager.free(*each)
            else:
                found = []
                for manager in managers:
                    try:
                        found.append(manager.batched_allocate(size, batch) if batch else [manager.allocate(size)])
                    except RuntimeError:
                        found.append(None)
                # The two fit into different ranges, so that one may have room where the other has not.
                if None not in found:
                    for held, each in zip(live, found, strict=True):
                        held.extend(each)
                for manager, each in zip(managers, found, strict=True):
                    if None in found and each is not None:
                        for address in each:
                            manager.free(*address)
            totals = [(each.total_allocated_size, each.get_free_size(), each.get_heap_size()) for each in managers]
            assert totals[0] == totals[1]
            ranges = sorted(live[0])
            assert all(start + size <= other for (start, size), (other, _) in itertools.pairwise(ranges))
            assert all(start % 4096 == 0 and start + size <= 64 * 4096 for start, size in ranges)
            assert managers[0].check_consistency()

    def test_what_was_never_allocated_is_not_freed(self, managers):
        ours = managers[0]
        address, size = ours.allocate(5_000)
        with pytest.raises(FreeError):
            ours.free(address, 2 * size)
        ours.free(address, size)
        with pytest.raises(FreeError):
            ours.free(address, size)
        assert ours.get_free_size() == ours.get_heap_size()

    def test_it_grows_and_says_what_it_cannot_do(self, managers):
        for manager in managers:
            with pytest.raises(RuntimeError, match="no memory is available"):
                manager.allocate(65 * 4096)
            manager.sbrk(4096 + 1)
            assert manager.get_heap_size() == 66 * 4096 + 100
            assert manager.allocate(66 * 4096) == (0, 66 * 4096)
            with pytest.raises(ValueError, match="greater than 0"):
                manager.allocate(0)
            with pytest.raises(RuntimeError, match="non-negative"):
                manager.batched_allocate(1, -1)
