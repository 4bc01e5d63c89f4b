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
    """The example beside the engine's own allocator, address for address."""

    PAGE = 4

    @pytest.fixture(params=[False, True], ids=["lifo", "sorted"])
    def pools(self, request):
        example = run("sglang device").KvpoolPaged
        original = peers.peer_class("sglang", "PagedTokenToKVPoolAllocator")
        return [
            each(200, self.PAGE, torch.float16, "cpu", None, need_sort=request.param) for each in (example, original)
        ]

    def extend(self, pool, before, after, last):
        before, after, last = (torch.tensor(each, dtype=torch.int64) for each in (before, after, last))
        return pool.alloc_extend(before, before, after, after, last, int((after - before).sum()))

    def decode(self, pool, lengths, last):
        lengths = torch.tensor(lengths, dtype=torch.int64)
        return pool.alloc_decode(lengths, lengths, torch.tensor(last, dtype=torch.int64))

    def same(self, pools, operation):
        """Do to both what is done to one; return the slots, a list, or None."""
        slots = [operation(pool) for pool in pools]
        slots = [each if each is None else each.tolist() for each in slots]
        assert slots[0] == slots[1]
        assert pools[0].available_size() == pools[1].available_size()
        assert sorted(pools[0].get_all_free_pages().tolist()) == sorted(pools[1].get_all_free_pages().tolist())
        return slots[0]

    def test_batches_grow_and_end_at_the_same_addresses(self, pools):
        draws = iter(workloads.draws(40_000, 2).tolist())
        requests, refused = [], 0
        for _ in range(1_500):
            action = next(draws) % 6
            if action < 2:
                lengths = [1 + next(draws) % 14 for _ in range(1 + next(draws) % 3)]
                zeros = [0] * len(lengths)
                found = self.same(
                    pools, lambda pool, new=lengths, zeros=zeros: self.extend(pool, zeros, new, [-1] * len(new))
                )
                refused += found is None
                for length in lengths if found else ():
                    requests.append(found[:length])
                    del found[:length]
            elif action == 2 and requests:
                grow = [next(draws) % 7 for _ in requests]
                before, last = [len(each) for each in requests], [each[-1] for each in requests]
                after = [length + more for length, more in zip(before, grow, strict=True)]
                found = self.same(
                    pools, lambda pool, before=before, after=after, last=last: self.extend(pool, before, after, last)
                )
                refused += found is None
                for request, more in zip(requests, grow, strict=True) if found else ():
                    request.extend(found[:more])
                    del found[:more]
            elif action == 3 and requests:
                lengths, last = [len(each) + 1 for each in requests], [each[-1] for each in requests]
                found = self.same(pools, lambda pool, lengths=lengths, last=last: self.decode(pool, lengths, last))
                refused += found is None
                for request, slot in zip(requests, found, strict=True) if found else ():
                    request.append(slot)
            elif requests:
                count = 1 + next(draws) % min(3, len(requests))
                ended = [torch.tensor(requests.pop(next(draws) % len(requests))) for _ in range(count)]
                by_segment, grouped = next(draws) % 2, count > 1 or next(draws) % 2

                def end(pool, ended=ended, by_segment=by_segment, grouped=grouped):
                    if grouped:
                        pool.free_group_begin()
                    for index, slots in enumerate(ended):
                        if (index + by_segment) % 2:
                            pool.free_segment(slots, start_pos=0)
                        else:
                            pool.free(slots)
                    if grouped:
                        pool.free_group_end()

                self.same(pools, end)
        assert refused > 20
        rest = torch.tensor([slot for request in requests for slot in request], dtype=torch.int64)
        self.same(pools, lambda pool: pool.free(rest))
        assert pools[0].available_size() == 200
        pools[0].pages.check()

    def test_pages_that_are_freed_in_a_group_are_free_at_its_end(self, pools):
        for pool in pools:
            one, other, third = pool.alloc(8), pool.alloc(4), pool.alloc(8)
            before = pool.available_size()
            pool.free_group_begin()
            pool.free(one)
            pool.free_page_ids(other[::4] // 4)
            pool.free_segment(third[:5], start_pos=4)
            assert pool.available_size() == before
            pool.free_group_end()
            assert pool.available_size() == 200
        assert self.same(pools, lambda pool: pool.alloc(40))

    def test_what_is_cleared_or_resized_is_as_new(self, pools):
        for pool in pools:
            pool.free_group_begin()
            pool.alloc(20)
            pool.clear()
            assert pool.available_size() == 200
            pool.resize(SimpleNamespace(max_total_num_tokens=48))
        assert self.same(pools, lambda pool: pool.alloc(48)) == list(range(4, 52))

    def test_what_does_not_fit_changes_nothing(self, pools):
        assert self.same(pools, lambda pool: self.extend(pool, [0], [1_000], [-1])) is None
        assert self.same(pools, lambda pool: pool.alloc(204)) is None
        assert pools[0].available_size() == 200

    def test_a_page_that_is_freed_twice_is_an_error(self, pools):
        ours = pools[0]
        slots = ours.alloc(8)
        ours.free(slots)
        for again in (ours.free, lambda slots: ours.free_segment(slots, start_pos=0)):
            with pytest.raises(FreeError):
                again(slots)
        with pytest.raises(AssertionError):
            ours.free_segment(slots, start_pos=2)


class TestSglangTokens:
    @pytest.mark.parametrize("is_bigram", [False, True])
    def test_keys_match_as_the_engine_s_own_do(self, is_bigram):
        match_at, key = run("sglang tokens").match_at, peers.peer_class("sglang", "RadixKey")
        draws = iter(workloads.draws(20_000, 11).tolist())
        lengths = set()
        for _ in range(1_000):
            tokens = [next(draws) % 2 for _ in range(next(draws) % 9)]
            offset, agree = next(draws) % 4, next(draws) % (len(tokens) + 1)
            other = [5] * offset + tokens[:agree] + [next(draws) % 2 for _ in range(next(draws) % 6)]
            limits = [None if next(draws) % 2 else next(draws) % 12 for _ in range(2)]
            ours, theirs = (
                key(array("q", each), is_bigram=is_bigram, limit=limit)
                for each, limit in zip((tokens, other), limits, strict=True)
            )
            for page_size in (1, 2, 4):
                try:
                    wanted = ours.match_at(theirs, offset, page_size)
                except IndexError:
                    with pytest.raises(IndexError):
                        match_at(ours, theirs, offset, page_size)
                else:
                    assert match_at(ours, theirs, offset, page_size) == wanted
                    lengths.add(wanted)
        assert lengths >= {0, 1, 2, 4}

    def test_keys_that_cannot_be_compared_are_refused_as_before(self):
        match_at, key = run("sglang tokens").match_at, peers.peer_class("sglang", "RadixKey")
        one = key(array("q", [1, 2]))
        for other in (key(array("q"), extra_key="x"), key(array("q"), cache_salt="x"), key(array("q"), is_bigram=True)):
            with pytest.raises(ValueError, match="require matching"):
                match_at(one, other, 0)
        with pytest.raises(IndexError):
            match_at(one, one, -1)


class TestVllmTokens:
    """The worker's rows, beside an array that is filled as vLLM's is: each row by itself."""

    ROWS, LENGTH = 5, 40

    def test_the_rows_of_a_batch_are_those_of_an_array(self):
        ours = run("vllm tokens").TokenIds(self.ROWS, self.LENGTH)
        theirs, lengths = [[] for _ in range(self.ROWS)], {}
        draws = iter(workloads.draws(20_000, 12).tolist())
        done = set()
        for _ in range(2_000):
            action, unused = next(draws) % 6, [row for row in range(self.ROWS) if row not in lengths]
            row, other = (next(draws) % self.ROWS for _ in range(2))
            if action == 0 and unused:
                prompt, output = ([next(draws) % 1_000 for _ in range(next(draws) % 8)] for _ in range(2))
                ours.add_request(unused[-1], prompt, output)
                theirs[unused[-1]], lengths[unused[-1]] = prompt + output, len(prompt) + len(output)
            elif action == 1:
                rows = [each for each in lengths if lengths[each] < self.LENGTH]
                tokens = [next(draws) % 1_000 for _ in rows]
                ours.append_sampled(rows, tokens)
                for each, token in zip(rows, tokens, strict=True):
                    theirs[each].append(token)
                    lengths[each] += 1
            elif action == 2 and row in lengths and lengths[row] < self.LENGTH - 3:
                drafts = [next(draws) % 1_000 for _ in range(next(draws) % 4)]
                ours.update_spec(row, lengths[row], drafts)
                theirs[row][lengths[row] :] = drafts
            elif action == 3 and row in lengths and other in lengths:
                ours.swap_states(row, other)
                theirs[row], theirs[other] = theirs[other], theirs[row]
                lengths[row], lengths[other] = lengths[other], lengths[row]
            elif action == 4 and unused and row in lengths:
                ours.condense(row, unused[0])
                theirs[unused[0]], theirs[row] = theirs[row], []
                lengths[unused[0]] = lengths.pop(row)
            elif action == 5 and row in lengths:
                ours.remove_request(row)
                theirs[row] = []
                del lengths[row]
            else:
                continue
            done.add(action)
            for each in lengths:
                # Drafts are dropped before the next token is appended.
                if len(theirs[each]) > lengths[each] and action != 2:
                    ours.update_spec(each, lengths[each], [])
                    del theirs[each][lengths[each] :]
                assert ours.table.row(each).tolist() == theirs[each]
                assert ours.token_ids_cpu[each, : len(theirs[each])].tolist() == theirs[each]
                indices = torch.arange(len(theirs[each])) + each * ours.row_stride
                assert ours.flat.index_select(0, indices).tolist() == theirs[each]
        assert done == set(range(6))
        ours.table.check()

    def test_a_row_that_is_in_use_and_a_token_that_does_not_fit_are_refused(self):
        ours = run("vllm tokens").TokenIds(self.ROWS, self.LENGTH)
        ours.add_request(2, [1, 2], [3])
        for wrong, message in (((2, [4]), "in use"), ((3, [2**31]), "does not fit int32"), ((3, [1] * 41), "40")):
            with pytest.raises(ValueError, match=message):
                ours.add_request(*wrong, [])
        assert ours.table.lengths.tolist() == [0, 0, 3, 0, 0]


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
