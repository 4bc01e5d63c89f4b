"""What the benchmarks share: asv's timing attributes, the floor, and exact counts of bytes and operations."""

import gc
import sys
import time
import tracemalloc
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch.utils._python_dispatch import TorchDispatchMode


class Benchmark:
    """The timing attributes of every benchmark: many small rounds, of a few short samples each.

    A figure is what one call costs: a sample is a trace of calls, and `share_out` has asv's clock divide it.

    Sub-classes set `version` by hand, and raise NotImplementedError in `setup` for what the installed kvpool does not
    have or a pool cannot give, so that asv shows n/a.
    """

    rounds = 15
    repeat = (2, 20, 0.006)
    sample_time = 0.001
    warmup_time = 0.003
    # Seconds of CPU that one sample may take. Only a straightforward implementation, hundreds of times slower than the
    # floor, takes longer.
    sample_limit = 0.01
    # Seconds, as `timer` reads them before it divides.
    clock = staticmethod(time.perf_counter)

    def share_out(self, calls: int) -> None:
        """Have asv's clock go by what one call takes, where the timed function makes so many."""
        clock = self.clock
        self.timer = lambda: clock() / calls

    def rehearse(self, trace: Sequence[Callable[[], object]], calls_each: int = 1) -> int:
        """Run a trace once, outside the clock; return how much of it the timed function is to run.

        That is all of it, unless it takes longer than `sample_limit`: then only its beginning is timed. The figure is
        that of one call, of which each of the trace makes `calls_each`.

        Raises NotImplementedError when a call returns None: the request does not fit, and a refusal is not timed.
        """
        done = 0
        start = time.process_time()
        while done < len(trace) and time.process_time() - start < self.sample_limit:
            if trace[done]() is None:
                raise NotImplementedError("the request does not fit")
            done += 1
        self.share_out(done * calls_each)
        if done < len(trace):
            self.repeat = (1, 1, 0)
            self.warmup_time = 0
        return done


def floor(slots: int) -> torch.Tensor:
    """Return as many slots in the cheapest way there is; what an allocator takes beyond this is its own."""
    return torch.from_numpy(np.arange(slots))


class AtenCounter(TorchDispatchMode):
    """Counts the ATen operations dispatched while it is entered."""

    def __init__(self) -> None:
        super().__init__()
        self.operations = 0

    def __torch_dispatch__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        self.operations += 1
        return func(*args, **(kwargs or {}))


# Its first use takes more than a second: here it is paid once, before asv forks.
with AtenCounter():
    torch.empty(0)


def shown_bytes(results: Iterable[object]) -> int:
    """Return the bytes that tensors and ndarrays show: each distinct storage or base, counted whole.

    What a storage is a part of does not show: `retained_bytes` sees it.
    """
    return sum(_memory(results).values())


def retained_bytes(make: Callable[[], list[Any]]) -> int:
    """Return the bytes that become free when the results that `make` returns are dropped: what they kept alive.

    That is numpy's memory, Python's, which kvpool's results are of, and Python's objects, by tracemalloc; and of
    tensors, the storages that are torch's own. The list itself is not counted. Memory of C's malloc that none of them
    manages is counted only as far as it shows. `make` is called twice, and has to return the like of the same.
    """
    owned, shown = _storage_bytes(make())
    gc.collect()
    gc.disable()
    tracemalloc.start()
    try:
        results = make()
        nothing = [None] * len(results)
        # Twice, so that the number is as much in what it counts as it is below.
        before = tracemalloc.get_traced_memory()[0]
        before = tracemalloc.get_traced_memory()[0]
        results[:] = nothing
        freed = before - tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
        gc.enable()
    return max(freed + owned, shown)


def _storage_bytes(results: list[Any]) -> tuple[int, int]:
    """Return the bytes of the storages that are torch's own, and of all storages, each counted once."""
    tensors = [each for each in _reachable(results) if isinstance(each, torch.Tensor)]
    # A storage that torch did not allocate cannot be resized.
    own = [tensor for tensor in tensors if tensor.untyped_storage().resizable()]
    return shown_bytes(own), shown_bytes(tensors)


def book_bytes(build: Callable[[], object]) -> int:
    """Return the bytes that what `build` returns holds: numpy's memory, tensors' storages, and Python's own objects.

    numpy's is what it has allocated and not freed meanwhile, whoever refers to it; the others are what can be reached.
    All of that repeats exactly, which what tracemalloc counts of Python itself does not.
    """
    gc.collect()
    tracemalloc.start()
    try:
        books = build()
        gc.collect()
        traces = tracemalloc.take_snapshot().filter_traces([tracemalloc.DomainFilter(True, np.lib.tracemalloc_domain)])
    finally:
        tracemalloc.stop()
    reachable = list(_reachable(books))
    tensors = [each for each in reachable if isinstance(each, torch.Tensor)]
    others = [each for each in reachable if not isinstance(each, (torch.Tensor, np.ndarray))]
    storages = sum(size for key, size in _memory(tensors).items() if key[0] == "storage")
    return sum(trace.size for trace in traces.traces) + storages + sum(map(sys.getsizeof, others))


def _memory(results: Iterable[object]) -> dict[tuple[str, int], int]:
    sizes = {}
    for result in results:
        if isinstance(result, torch.Tensor):
            storage = result.untyped_storage()
            sizes["storage", storage.data_ptr()] = storage.nbytes()
        elif isinstance(result, np.ndarray):
            while isinstance(result.base, np.ndarray):
                result = result.base
            sizes["array", result.__array_interface__["data"][0]] = result.nbytes
    return sizes


def _reachable(root: object) -> Iterator[object]:
    """Yield each object that `root` refers to, itself included, without what belongs to classes and modules."""
    seen: set[int] = set()
    waiting = [root]
    while waiting:
        each = waiting.pop()
        if id(each) in seen or isinstance(each, (type, type(gc), type(floor))):
            continue
        seen.add(id(each))
        yield each
        waiting.extend(gc.get_referents(each))
