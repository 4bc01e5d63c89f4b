"""The compiled loops under kvpool, over flat numpy arrays; each public kernel is one atomic step under the GIL.

numba's cache knows this file alone, so everything that a kernel calls is defined here. With NUMBA_DISABLE_JIT=1 the
same source runs as plain Python.

**Run index** (int64). A set of free pages that answers "where is a run of n" without a walk over all pages: a bit per
page, and a tree of summaries over chunks of 512 pages. It occupies a stretch of an int64 array from a given `base`:

    base + CHUNKS                chunks of 512 pages; bits of pages beyond the last one are 0
    base + LEAVES                leaves of the tree: the power of two that holds the chunks
    base + FREE                  pages in the set
    base + INDEX_HEADER          8 words a chunk, the bit of a free page is 1, lowest page in the lowest bit
      then                       flags a chunk: SUMMARY where its summary may be too high, LENGTHS where its lengths are
                                 out of date
      then                       the lengths of the runs inside a chunk, those at its ends apart: bit n - 1 for a run of
                                 n pages, bit 63 for longer ones
      then                       3 entries a tree node: leading, longest and trailing free run in pages; node 1 is the
                                 root, node i has children 2i and 2i + 1, chunk c is node LEAVES + c

A summary is never too low, and exact unless its chunk is flagged. Removing a page only flags its chunk; adding one
raises the summaries that its run outgrows. A search trusts a summary that says no, and recomputes the flagged ones
that say yes, so that it pays for few of the chunks that have changed since the last. The lengths are for the search of
the smallest run alone, which passes over all chunks.

**Host pool.** `index` (int64): STEPS, HEAD, WINDOW, then a run index at HOST_BASE. `queue` (int32): a ticket a page,
then a ring of two entries a page. The FIFO order is what lies in the ring's window (WINDOW entries from HEAD, around
the end). An entry is live when its page's ticket is the entry's own position; a page that leaves the middle loses its
ticket and its entry goes stale. Stale entries never outnumber live ones, so the window fits and each is passed once.

**Lane pool.** `index` (int64): STEPS, LANES, STRIDE, scratch for a demand and a cursor a lane, then 2 * LANES run
indexes of STRIDE entries: the free set of each lane, then the released sets. Within a lane pages count from 0:
physical page minus one.

**Token table.** `cells` (int32 or int64), a row a request. A row begins with ROW_LENGTH, its tokens (~length while a
call that has named the row is under way), and ROW_LIMIT, the tokens that it may hold (0 where it is not in use), in one
cache line; the tokens themselves begin at TABLE_HEADER.
"""

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
from llvmlite import ir
from numba import config, njit, types
from numba.extending import intrinsic

Int64Array = npt.NDArray[np.int64]
Int32Array = npt.NDArray[np.int32]

WORD_PAGES = 64
CHUNK_WORDS = 8
CHUNK_PAGES = WORD_PAGES * CHUNK_WORDS

CHUNKS, LEAVES, FREE, INDEX_HEADER = range(4)

STEPS, HEAD, WINDOW, HOST_BASE = range(4)
LANES, STRIDE, LANE_SCRATCH = 1, 2, 3

TAKEN = -1
SUMMARY, LENGTHS = 1, 2
CHANGED = SUMMARY | LENGTHS

ONE = np.int64(1)
ALL_ONES = np.int64(-1)


def kernel(*signatures: Any, counted: bool = True) -> Callable[[Any], Any]:
    """Compile for these signatures at import, from numba's cache where that can be written.

    A kernel that neither makes nor returns an array is not `counted`: it needs none of numba's reference counting,
    which costs 30 ns for each array of a call.
    """

    def compiled(function: Any) -> Any:
        try:
            return njit(list(signatures), cache=True, _nrt=counted)(function)
        except RuntimeError as error:
            if "cannot cache" not in str(error):
                raise
            message = f"{error}; the kernels of kvpool are compiled anew in each process: set NUMBA_CACHE_DIR"
            warnings.warn(message, RuntimeWarning, stacklevel=2)
            return njit(list(signatures), _nrt=counted)(function)

    return compiled


if config.DISABLE_JIT:

    def _trailing_zeros(word: int) -> int:
        bits = int(word) & 0xFFFF_FFFF_FFFF_FFFF
        return (bits & -bits).bit_length() - 1 if bits else 64

    def _leading_zeros(word: int) -> int:
        return 64 - (int(word) & 0xFFFF_FFFF_FFFF_FFFF).bit_length()

else:  # pragma: no cover  (compiled; the branch above stands in for it where coverage is measured)

    @intrinsic
    def _trailing_zeros(typing_context: Any, word: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            return builder.cttz(arguments[0], ir.Constant(ir.IntType(1), 0))

        return types.int64(types.int64), codegen

    @intrinsic
    def _leading_zeros(typing_context: Any, word: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            return builder.ctlz(arguments[0], ir.Constant(ir.IntType(1), 0))

        return types.int64(types.int64), codegen


# ---------------------------------------------------------------------------------------------------- run index


def index_length(num_pages: int) -> int:
    """Return how many int64 entries the run index of `num_pages` pages occupies."""
    chunks = -(-num_pages // CHUNK_PAGES)
    leaves = 1 << (chunks - 1).bit_length()
    return INDEX_HEADER + chunks * (CHUNK_WORDS + 2) + 2 * leaves * 3


@njit
def _words(base: int) -> int:
    return base + INDEX_HEADER


@njit
def _flags(index: Int64Array, base: int) -> int:
    return base + INDEX_HEADER + index[base + CHUNKS] * CHUNK_WORDS


@njit
def _tree(index: Int64Array, base: int) -> int:
    return base + INDEX_HEADER + index[base + CHUNKS] * (CHUNK_WORDS + 2)


@njit
def _build(index: Int64Array, base: int, num_pages: int) -> None:
    """Lay out an empty run index."""
    chunks = (num_pages + CHUNK_PAGES - 1) // CHUNK_PAGES
    leaves = 1
    while leaves < chunks:
        leaves *= 2
    index[base : base + INDEX_HEADER + chunks * (CHUNK_WORDS + 2) + 2 * leaves * 3] = 0
    index[base + CHUNKS] = chunks
    index[base + LEAVES] = leaves


@njit
def _is_free(index: Int64Array, base: int, page: int) -> bool:
    return (index[_words(base) + (page >> 6)] >> (page & 63)) & 1 == 1


@njit
def _remove(index: Int64Array, base: int, page: int) -> None:
    index[_words(base) + (page >> 6)] &= ~(ONE << (page & 63))
    index[_flags(index, base) + (page >> 9)] = CHANGED


@njit
def _write_range(index: Int64Array, base: int, start: int, stop: int, free: bool) -> None:
    """Set the bits of the pages from `start` to `stop`, word by word."""
    page = start
    while page < stop:
        bit = page & 63
        bits = min(stop - page, 64 - bit)
        mask = (ALL_ONES if bits == 64 else ~(ALL_ONES << bits)) << bit
        word = _words(base) + (page >> 6)
        index[word] = index[word] | mask if free else index[word] & ~mask
        page += bits


@njit
def _remove_range(index: Int64Array, base: int, start: int, stop: int) -> None:
    _write_range(index, base, start, stop, False)
    for chunk in range(start >> 9, ((stop - 1) >> 9) + 1):
        index[_flags(index, base) + chunk] = CHANGED


@njit
def _add_page(index: Int64Array, base: int, page: int) -> None:
    """Add one page; where neither neighbour is in the set its run outgrows no summary that knows of any."""
    bit = page & 63
    word = _words(base) + (page >> 6)
    bits = index[word]
    leaf = _tree(index, base) + 3 * (index[base + LEAVES] + (page >> 9))
    if 0 < bit < 63 and bits & (5 << (bit - 1)) == 0 and index[leaf + 1] > 0:
        index[word] = bits | (ONE << bit)
        index[_flags(index, base) + (page >> 9)] |= LENGTHS
    else:
        _add_range(index, base, page, page + 1)


@njit
def _add_range(index: Int64Array, base: int, start: int, stop: int) -> None:
    """Add the pages from `start` to `stop`, none of them in the set, and raise the summaries of their chunks."""
    words = _words(base)
    _write_range(index, base, start, stop, True)
    for chunk in range(start >> 9, ((stop - 1) >> 9) + 1):
        first = chunk * CHUNK_PAGES
        low = max(start, first)
        high = min(stop, first + CHUNK_PAGES)
        # The free run around [low, high), within its chunk.
        while low > first:
            bit = (low - 1) & 63
            ones = min(bit + 1, _leading_zeros(~(index[words + ((low - 1) >> 6)] << (63 - bit))))
            low -= ones
            if ones <= bit:
                break
        high = _next_taken(index, words, high, first + CHUNK_PAGES)
        leaf = _tree(index, base) + 3 * (index[base + LEAVES] + chunk)
        index[_flags(index, base) + chunk] |= LENGTHS
        run = high - low
        raised = False
        if low == first and run > index[leaf]:
            index[leaf] = run
            raised = True
        if run > index[leaf + 1]:
            index[leaf + 1] = run
            raised = True
        if high == first + CHUNK_PAGES and run > index[leaf + 2]:
            index[leaf + 2] = run
            raised = True
        if raised:
            _climb(index, base, chunk)


@njit
def _forget(index: Int64Array, base: int, chunk: int) -> None:
    """Say of a chunk whose bits have changed at will that it may hold any run."""
    leaf = _tree(index, base) + 3 * (index[base + LEAVES] + chunk)
    index[_flags(index, base) + chunk] = CHANGED
    if index[leaf] < CHUNK_PAGES:
        index[leaf : leaf + 3] = CHUNK_PAGES
        _climb(index, base, chunk)


@njit
def _set_summary(index: Int64Array, node: int, leading: int, longest: int, trailing: int) -> bool:
    """Write a summary; say whether it changed."""
    if index[node] == leading and index[node + 1] == longest and index[node + 2] == trailing:
        return False
    index[node] = leading
    index[node + 1] = longest
    index[node + 2] = trailing
    return True


@njit
def _climb(index: Int64Array, base: int, chunk: int) -> None:
    """Recompute the summaries above a chunk, up to the first that does not change."""
    tree = _tree(index, base)
    node = index[base + LEAVES] + chunk
    half = CHUNK_PAGES
    while node > 1:
        node >>= 1
        index[STEPS] += 1
        left = tree + 6 * node
        right = left + 3
        leading = index[left] if index[left] < half else half + index[right]
        trailing = index[right + 2] if index[right + 2] < half else half + index[left + 2]
        longest = max(index[left + 1], index[right + 1], index[left + 2] + index[right])
        if not _set_summary(index, tree + 3 * node, leading, longest, trailing):
            break
        half *= 2


@njit
def _summarize(index: Int64Array, base: int, chunk: int) -> bool:
    """Make the summary of a flagged chunk exact, and those above it; say whether it changed."""
    index[_flags(index, base) + chunk] &= LENGTHS
    index[STEPS] += 1
    word = _words(base) + chunk * CHUNK_WORDS
    leading = -1
    longest = 0
    run = 0
    for position in range(word, word + CHUNK_WORDS):
        bits = index[position]
        if bits == ALL_ONES:
            run += WORD_PAGES
            continue
        run += _trailing_zeros(~bits)
        if leading < 0:
            leading = run
        longest = max(longest, run)
        if bits != 0:
            # Where `longest + 1` ones end, found by doubling; a longer run leaves a longer trace.
            length = 1
            while length <= longest and bits != 0:
                step = min(length, longest + 1 - length)
                bits &= bits << step
                length += step
            while bits != 0:
                longest += 1
                bits &= bits << 1
        run = _leading_zeros(~index[position])
    longest = max(longest, run)
    if leading < 0:
        leading = run
    leaf = _tree(index, base) + 3 * (index[base + LEAVES] + chunk)
    if _set_summary(index, leaf, leading, longest, run):
        _climb(index, base, chunk)
        return True
    return False


@njit
def _lowered(index: Int64Array, base: int, start: int, stop: int) -> bool:
    """Make the summaries of the chunks from page `start` to `stop` exact; say whether any changed."""
    changed = False
    flags = _flags(index, base)
    for chunk in range(start >> 9, ((stop - 1) >> 9) + 1):
        if index[flags + chunk] & SUMMARY and _summarize(index, base, chunk):
            changed = True
    return changed


@njit
def _next_free(index: Int64Array, words: int, page: int, stop: int) -> int:
    """Return the first free page from `page` on, or `stop`."""
    while page < stop:
        bits = index[words + (page >> 6)] & (ALL_ONES << (page & 63))
        if bits != 0:
            return min(stop, (page & ~63) + _trailing_zeros(bits))
        page = (page & ~63) + 64
    return stop


@njit
def _next_taken(index: Int64Array, words: int, page: int, stop: int) -> int:
    """Return the first page from `page` on that is not free, or `stop`."""
    while page < stop:
        bits = ~index[words + (page >> 6)] & (ALL_ONES << (page & 63))
        if bits != 0:
            return min(stop, (page & ~63) + _trailing_zeros(bits))
        page = (page & ~63) + 64
    return stop


@njit
def _lowest_run(index: Int64Array, base: int, length: int) -> int:
    """Return where the lowest-addressed free run of at least `length` pages starts, or -1.

    Goes down the tree by what the summaries allow; where one turns out to have been too high, starts again.
    """
    words = _words(base)
    tree = _tree(index, base)
    leaves = index[base + LEAVES]
    while index[tree + 3 + 1] >= length:
        node = 1
        first = 0
        half = leaves * CHUNK_PAGES // 2
        start = -1
        while node < leaves and start < 0:
            left = tree + 6 * node
            index[STEPS] += 1
            if index[left + 1] >= length:
                node = 2 * node
            elif index[left + 2] + index[left + 3] >= length:
                start = first + half - index[left + 2]
            else:
                node = 2 * node + 1
                first += half
            half //= 2
        if start >= 0:
            if not _lowered(index, base, start, start + length):
                return start
        elif not _lowered(index, base, first, first + CHUNK_PAGES):
            stop = first + CHUNK_PAGES
            page = _next_free(index, words, first, stop)
            end = _next_taken(index, words, page, stop)
            while end - page < length:
                page = _next_free(index, words, end, stop)
                end = _next_taken(index, words, page, stop)
            return page
    return -1


@njit
def _exact_run(index: Int64Array, base: int, run: int, chunk: int) -> int:
    """Return the length of a run that begins at the end of `chunk`, once that chunk's summary is exact."""
    if run > 0 and index[_flags(index, base) + chunk] & SUMMARY:
        trailing = _tree(index, base) + 3 * (index[base + LEAVES] + chunk) + 2
        run -= index[trailing]
        _summarize(index, base, chunk)
        run += index[trailing]
    return run


@njit
def _shortest(index: Int64Array, base: int, chunk: int, length: int) -> int:
    """Return the length of the shortest run of at least `length` pages inside a chunk whose summary is exact.

    64 stands for longer ones, and for none.
    """
    flags = _flags(index, base) + chunk
    lengths = flags + index[base + CHUNKS]
    if index[flags] & LENGTHS:
        index[flags] &= SUMMARY
        index[STEPS] += CHUNK_WORDS
        leaf = _tree(index, base) + 3 * (index[base + LEAVES] + chunk)
        words = _words(base)
        stop = (chunk + 1) * CHUNK_PAGES - index[leaf + 2]
        page = _next_free(index, words, chunk * CHUNK_PAGES + index[leaf], stop)
        found = np.int64(0)
        while page < stop:
            end = _next_taken(index, words, page, stop)
            found |= ONE << (min(end - page, 64) - 1)
            page = _next_free(index, words, end, stop)
        index[lengths] = found
    fitting = index[lengths] & (ALL_ONES << (min(length, 64) - 1))
    return min(_trailing_zeros(fitting) + 1, 64)


@njit
def _smallest_run(index: Int64Array, base: int, length: int) -> int:
    """Return where the smallest free run of at least `length` pages starts (the lowest on a tie), or -1.

    Passes over all summaries and looks into the chunks that have a smaller one than was found so far, until one of
    exactly `length` is found.
    """
    words = _words(base)
    flags = _flags(index, base)
    leaf = _tree(index, base) + 3 * index[base + LEAVES]
    chunks = index[base + CHUNKS]
    smallest = chunks * CHUNK_PAGES + 1
    start = -1
    # The run that reaches the end of the chunk before, and the chunk that it begins in.
    run = 0
    begins = 0
    for chunk in range(chunks):
        first = chunk * CHUNK_PAGES
        full = index[leaf] == CHUNK_PAGES
        if full or index[leaf + 1] >= length or run + index[leaf] >= length:
            if index[flags + chunk] & SUMMARY:
                _summarize(index, base, chunk)
                full = index[leaf] == CHUNK_PAGES
            if run + index[leaf] >= length:
                run = _exact_run(index, base, run, begins)
        if full:
            begins = begins if run > 0 else chunk
            run += CHUNK_PAGES
        else:
            if length <= run + index[leaf] < smallest:
                smallest = run + index[leaf]
                start = first - run
            if index[leaf + 1] >= length and _shortest(index, base, chunk, length) < smallest:
                stop = first + CHUNK_PAGES - index[leaf + 2]
                page = _next_free(index, words, first + index[leaf], stop)
                while page < stop and smallest > length:
                    end = _next_taken(index, words, page, stop)
                    if length <= end - page < smallest:
                        smallest = end - page
                        start = page
                    page = _next_free(index, words, end, stop)
            if smallest == length:
                break
            run = index[leaf + 2]
            begins = chunk
        leaf += 3
    index[STEPS] += chunk
    if smallest > length:
        run = _exact_run(index, base, run, begins)
        if length <= run < smallest:
            start = chunks * CHUNK_PAGES - run
    return start


@njit
def _expand(slots: Int64Array, num_pages: int, page_size: int) -> None:
    """Turn the page ids that lie in the last `num_pages` elements into the slots of those pages, in place.

    A block is written only over ids that have been read: block i ends at or before id i + 1.
    """
    ids = slots.size - num_pages
    if page_size == 64:
        for i in range(num_pages):
            first = slots[ids + i] * 64
            for offset in range(64):
                slots[i * 64 + offset] = first + offset
    elif page_size == 16:
        for i in range(num_pages):
            first = slots[ids + i] * 16
            for offset in range(16):
                slots[i * 16 + offset] = first + offset
    elif page_size > 1:
        for i in range(num_pages):
            first = slots[ids + i] * page_size
            for offset in range(page_size):
                slots[i * page_size + offset] = first + offset


@njit
def _page_of(slots: Int64Array, i: int, page_size: int) -> int:
    """Return the page whose slots are block i, ascending from its first; -1 where the block is no such page."""
    block = slots[i * page_size : (i + 1) * page_size]
    first = block[0]
    wrong = 0
    if page_size == 64:
        for offset in range(64):
            wrong |= block[offset] ^ (first + offset)
        return -1 if wrong != 0 or first < 0 or first & 63 != 0 else first >> 6
    for offset in range(page_size):
        wrong |= block[offset] ^ (first + offset)
    page = first // page_size
    return -1 if wrong != 0 or first < 0 or page * page_size != first else page


# ---------------------------------------------------------------------------------------------------- host pool


def host_arrays(num_pages: int) -> tuple[Int64Array, Int32Array]:
    """Return the arrays of a host pool; `host_restore` fills them."""
    return np.zeros(HOST_BASE + index_length(num_pages), np.int64), np.empty(3 * num_pages, np.int32)


@kernel("void(int64[::1], int32[::1], int32[::1])")
def host_restore(index: Int64Array, queue: Int32Array, order: Int32Array) -> None:
    """Make the pages of `order` free in that order, and all others taken."""
    num_pages = queue.size // 3
    tickets = queue[:num_pages]
    ring = queue[num_pages:]
    _build(index, HOST_BASE, num_pages)
    tickets[:] = TAKEN
    words = _words(HOST_BASE)
    for i in range(order.size):
        page = np.int64(order[i])
        ring[i] = page
        tickets[page] = i
        index[words + (page >> 6)] |= ONE << (page & 63)
    index[HEAD] = 0
    index[WINDOW] = order.size
    index[HOST_BASE + FREE] = order.size
    for chunk in range(index[HOST_BASE + CHUNKS]):
        index[_flags(index, HOST_BASE) + chunk] = CHANGED
        _summarize(index, HOST_BASE, chunk)


@njit
def _pop_live(index: Int64Array, queue: Int32Array, pages: Int64Array, ascending: bool) -> int:
    """Move the first live entries out of the window into `pages`; return how many.

    All that `pages` holds, or, where `ascending` is asked for, only up to and with the first that does not continue
    the run. The pages keep their tickets.
    """
    num_pages = queue.size // 3
    tickets = queue[:num_pages]
    ring = queue[num_pages:]
    position = index[HEAD]
    passed = 0
    found = 0
    while found < pages.size:
        page = np.int64(ring[position])
        if tickets[page] == position:
            pages[found] = page
            found += 1
            if ascending and found > 1 and page != pages[found - 2] + 1:
                position = position + 1 if position + 1 < ring.size else 0
                passed += 1
                break
        position = position + 1 if position + 1 < ring.size else 0
        passed += 1
    index[HEAD] = position
    index[WINDOW] -= passed
    index[STEPS] += passed
    return found


@njit
def _push_back(index: Int64Array, queue: Int32Array, pages: Int64Array) -> None:
    """Put entries that were moved out back before the window, where the stale ones among them leave no gap."""
    num_pages = queue.size // 3
    ring = queue[num_pages:]
    position = index[HEAD]
    for i in range(pages.size - 1, -1, -1):
        position = position - 1 if position > 0 else ring.size - 1
        ring[position] = pages[i]
        queue[pages[i]] = position
    index[HEAD] = position
    index[WINDOW] += pages.size
    index[STEPS] += pages.size


@njit
def _compact(index: Int64Array, queue: Int32Array) -> None:
    """Drop the stale entries of the window."""
    num_pages = queue.size // 3
    tickets = queue[:num_pages]
    ring = queue[num_pages:]
    read = index[HEAD]
    write = read
    kept = 0
    for _ in range(index[WINDOW]):
        page = ring[read]
        if tickets[page] == read:
            ring[write] = page
            tickets[page] = write
            write = write + 1 if write + 1 < ring.size else 0
            kept += 1
        read = read + 1 if read + 1 < ring.size else 0
    index[STEPS] += index[WINDOW]
    index[WINDOW] = kept


@njit
def _take_run(index: Int64Array, queue: Int32Array, start: int, pages: Int64Array) -> None:
    """Take consecutive pages from the middle of the order into `pages`."""
    for i in range(pages.size):
        pages[i] = start + i
        queue[start + i] = TAKEN
    _remove_range(index, HOST_BASE, start, start + pages.size)


@njit
def _take_fewest_runs(index: Int64Array, queue: Int32Array, pages: Int64Array) -> None:
    """Take the smallest run that holds all, or the largest ones whole and the rest from the smallest that holds it."""
    root = _tree(index, HOST_BASE) + 3
    taken = 0
    pieces = 0
    while taken < pages.size:
        needed = pages.size - taken
        length = min(needed, index[root + 1])
        find_smallest = index[root + 1] > needed
        start = _smallest_run(index, HOST_BASE, needed) if find_smallest else _lowest_run(index, HOST_BASE, length)
        # No start: the root's summary was too high and is lower now.
        if start >= 0:
            _take_run(index, queue, start, pages[taken : taken + length])
            taken += length
            pieces += 1
    if pieces > 1:
        pages.sort()


@njit
def _take_popped(index: Int64Array, queue: Int32Array, pages: Int64Array) -> None:
    """Take pages whose entries have been moved out of the window."""
    for i in range(pages.size):
        queue[pages[i]] = TAKEN
        _remove(index, HOST_BASE, pages[i])


@njit
def _settle(index: Int64Array, queue: Int32Array, slots: Int64Array, num_pages: int, page_size: int) -> None:
    """Count pages that have been taken, keep the stale entries few, and make the slots."""
    index[HOST_BASE + FREE] -= num_pages
    if index[WINDOW] > 2 * index[HOST_BASE + FREE]:
        _compact(index, queue)
    _expand(slots, num_pages, page_size)


@kernel("boolean(int64[::1], int32[::1], int64[::1], int64)", counted=False)
def host_take_fifo(index: Int64Array, queue: Int32Array, slots: Int64Array, page_size: int) -> bool:
    """Fill `slots` with the first pages in FIFO order; False, and nothing has changed, where they do not fit."""
    num_pages = slots.size // page_size
    if num_pages > index[HOST_BASE + FREE]:
        return False
    pages = slots[slots.size - num_pages :]
    _pop_live(index, queue, pages, False)
    _take_popped(index, queue, pages)
    _settle(index, queue, slots, num_pages, page_size)
    return True


@kernel("boolean(int64[::1], int32[::1], int64[::1], int64)", counted=False)
def host_take_contiguous(index: Int64Array, queue: Int32Array, slots: Int64Array, page_size: int) -> bool:
    """As `host_take_fifo`, but with one run where there is one: that of the first pages, or the lowest."""
    num_pages = slots.size // page_size
    if num_pages > index[HOST_BASE + FREE]:
        return False
    pages = slots[slots.size - num_pages :]
    popped = _pop_live(index, queue, pages, True)
    start = -1
    if popped < num_pages or pages[popped - 1] - pages[0] != popped - 1:
        _push_back(index, queue, pages[:popped])
        start = _lowest_run(index, HOST_BASE, num_pages)
        if start < 0:
            _pop_live(index, queue, pages, False)
    if start >= 0:
        _take_run(index, queue, start, pages)
    else:
        _take_popped(index, queue, pages)
    _settle(index, queue, slots, num_pages, page_size)
    return True


@kernel("boolean(int64[::1], int32[::1], int64[::1], int64)")
def host_take_fewest_runs(index: Int64Array, queue: Int32Array, slots: Int64Array, page_size: int) -> bool:
    """As `host_take_fifo`, but with the pages that lie in the fewest runs, ascending."""
    num_pages = slots.size // page_size
    if num_pages > index[HOST_BASE + FREE]:
        return False
    _take_fewest_runs(index, queue, slots[slots.size - num_pages :])
    _settle(index, queue, slots, num_pages, page_size)
    return True


@kernel("boolean(int64[::1], int32[::1], int64[::1], int64)", counted=False)
def host_give(index: Int64Array, queue: Int32Array, slots: Int64Array, page_size: int) -> bool:
    """Free pages in the order given; False, and nothing has changed, unless all are whole, taken and named once."""
    num_pages = queue.size // 3
    ring = queue[num_pages:]
    given = slots.size // page_size
    if given * page_size != slots.size:
        return False
    first = index[HEAD] + index[WINDOW]
    if first >= ring.size:
        first -= ring.size
    position = first
    accepted = 0
    while accepted < given:
        page = _page_of(slots, accepted, page_size)
        if page < 0 or page >= num_pages or queue[page] != TAKEN:
            break
        ring[position] = page
        queue[page] = position
        position = position + 1 if position + 1 < ring.size else 0
        accepted += 1
    if accepted < given:
        for i in range(accepted):
            queue[ring[(first + i) % ring.size]] = TAKEN
        return False
    start = 0
    while start < given:
        page = np.int64(ring[first])
        stop = start
        while stop < given and ring[first] == page + stop - start:
            stop += 1
            first = first + 1 if first + 1 < ring.size else 0
        if stop - start == 1:
            _add_page(index, HOST_BASE, page)
        else:
            _add_range(index, HOST_BASE, page, page + stop - start)
        start = stop
    index[WINDOW] += given
    index[HOST_BASE + FREE] += given
    index[STEPS] += given
    return True


@kernel("int32[::1](int64[::1], int32[::1])")
def host_order(index: Int64Array, queue: Int32Array) -> Int32Array:
    """Return the free pages in FIFO order."""
    num_pages = queue.size // 3
    ring = queue[num_pages:]
    order = np.empty(index[HOST_BASE + FREE], np.int32)
    position = index[HEAD]
    found = 0
    while found < order.size:
        page = ring[position]
        if queue[page] == position:
            order[found] = page
            found += 1
        position = position + 1 if position + 1 < ring.size else 0
    return order


@kernel("int64(int64[::1])")
def host_largest_run(index: Int64Array) -> int:
    """Return the length of the longest free run."""
    longest = _tree(index, HOST_BASE) + 3 + 1
    while index[longest] > 0 and _lowest_run(index, HOST_BASE, index[longest]) < 0:
        pass
    return index[longest]


@kernel("Tuple((int64[::1], int32[::1]))(int64[::1], int32[::1])")
def host_copy(index: Int64Array, queue: Int32Array) -> tuple[Int64Array, Int32Array]:
    """Return copies of the arrays, taken in one atomic step."""
    return index.copy(), queue.copy()


# ---------------------------------------------------------------------------------------------------- lane pool


def lane_array(physical_pages: int, cp_size: int) -> Int64Array:
    """Return the array of a lane pool with every page free."""
    stride = index_length(physical_pages)
    index = np.zeros(LANE_SCRATCH + 2 * cp_size + 2 * cp_size * stride, np.int64)
    index[LANES] = cp_size
    index[STRIDE] = stride
    lane_clear(index, physical_pages)
    return index


@njit
def _free_set(index: Int64Array, lane: int) -> int:
    return LANE_SCRATCH + 2 * index[LANES] + lane * index[STRIDE]


@njit
def _released_set(index: Int64Array, lane: int) -> int:
    return _free_set(index, lane + index[LANES])


@kernel("void(int64[::1], int64)")
def lane_clear(index: Int64Array, physical_pages: int) -> None:
    """Make every page free and none released."""
    for lane in range(index[LANES]):
        base = _free_set(index, lane)
        _build(index, base, physical_pages)
        _add_range(index, base, 0, physical_pages)
        index[base + FREE] = physical_pages
        _build(index, _released_set(index, lane), physical_pages)


@njit
def _count_demand(index: Int64Array, owners: Int64Array) -> bool:
    """Count the pages asked of each lane into the scratch; False where an owner is no rank."""
    lanes = index[LANES]
    index[LANE_SCRATCH : LANE_SCRATCH + lanes] = 0
    for i in range(owners.size):
        if owners[i] < 0 or owners[i] >= lanes:
            return False
        index[LANE_SCRATCH + owners[i]] += 1
    return True


@njit
def _collect_lowest(index: Int64Array, base: int, pages: Int64Array) -> int:
    """Write the lowest pages of a set into `pages`; return how many there were, at most what it holds."""
    words = _words(base)
    stop = index[base + CHUNKS] * CHUNK_PAGES
    found = min(pages.size, index[base + FREE])
    if found == 0:
        return 0
    page = _lowest_run(index, base, 1)
    for i in range(found):
        page = _next_free(index, words, page, stop)
        pages[i] = page
        page += 1
    return found


@njit
def _choose_in_lane(index: Int64Array, lane: int, contiguous: bool, pages: Int64Array) -> None:
    """Write the pages that serve a lane's demand into `pages`, which the lane can fill."""
    base = _free_set(index, lane)
    if contiguous:
        start = _lowest_run(index, base, pages.size)
        if start >= 0:
            for i in range(pages.size):
                pages[i] = start + i
            return
    found = _collect_lowest(index, base, pages)
    _collect_lowest(index, _released_set(index, lane), pages[found:])


@njit
def _take_from_lane(index: Int64Array, lane: int, pages: Int64Array) -> None:
    for i in range(pages.size):
        base = _free_set(index, lane)
        if not _is_free(index, base, pages[i]):
            base = _released_set(index, lane)
        _remove(index, base, pages[i])
        index[base + FREE] -= 1


@kernel("int64(int64[::1], int64[::1], int64[::1], int64, boolean, boolean)")
def lane_take(
    index: Int64Array, owners: Int64Array, slots: Int64Array, page_size: int, contiguous: bool, commit: bool
) -> int:
    """Fill `slots` with a page for each owner, in request order, and take them where `commit`.

    1; 0, and nothing has changed, where a lane is too short; -1 where an owner is no rank.
    """
    if not _count_demand(index, owners):
        return -1
    lanes = index[LANES]
    cursors = LANE_SCRATCH + lanes
    for lane in range(lanes):
        available = index[_free_set(index, lane) + FREE] + index[_released_set(index, lane) + FREE]
        if index[LANE_SCRATCH + lane] > available:
            return 0
    chosen = np.empty(owners.size, np.int64)
    first = np.int64(0)
    for lane in range(lanes):
        demand = index[LANE_SCRATCH + lane]
        index[cursors + lane] = first
        if demand > 0:
            pages = chosen[first : first + demand]
            _choose_in_lane(index, lane, contiguous, pages)
            if commit:
                _take_from_lane(index, lane, pages)
        first += demand
    ids = slots.size - owners.size
    for i in range(owners.size):
        owner = owners[i]
        slots[ids + i] = chosen[index[cursors + owner]] * lanes + owner + 1
        index[cursors + owner] += 1
    index[STEPS] += owners.size
    _expand(slots, owners.size, page_size)
    return 1


@kernel("boolean(int64[::1], int64[::1], int64, int64)")
def lane_give(index: Int64Array, slots: Int64Array, page_size: int, physical_pages: int) -> bool:
    """Release pages; False, and nothing has changed, unless all are whole, taken and named once."""
    lanes = index[LANES]
    given = slots.size // page_size
    accepted = 0
    if given * page_size == slots.size:
        while accepted < given:
            logical = _page_of(slots, accepted, page_size) - 1
            if logical < 0 or logical >= physical_pages * lanes:
                break
            page = logical // lanes
            lane = logical - page * lanes
            base = _released_set(index, lane)
            if _is_free(index, base, page) or _is_free(index, _free_set(index, lane), page):
                break
            index[_words(base) + (page >> 6)] |= ONE << (page & 63)
            _forget(index, base, page >> 9)
            index[base + FREE] += 1
            accepted += 1
    if accepted * page_size == slots.size:
        index[STEPS] += given
        return True
    for i in range(accepted):
        logical = slots[i * page_size] // page_size - 1
        base = _released_set(index, logical % lanes)
        _remove(index, base, logical // lanes)
        index[base + FREE] -= 1
    return False


@kernel("void(int64[::1])")
def lane_merge(index: Int64Array) -> None:
    """Make the released pages of every lane free."""
    for lane in range(index[LANES]):
        free = _free_set(index, lane)
        released = _released_set(index, lane)
        if index[released + FREE] == 0:
            continue
        for word in range(index[free + CHUNKS] * CHUNK_WORDS):
            if index[_words(released) + word] != 0:
                index[_words(free) + word] |= index[_words(released) + word]
                index[_words(released) + word] = 0
                _forget(index, free, word // CHUNK_WORDS)
                _forget(index, released, word // CHUNK_WORDS)
        index[free + FREE] += index[released + FREE]
        index[released + FREE] = 0


@kernel("boolean(int64[::1], int64[::1], int64[::1])")
def lane_counts(index: Int64Array, owners: Int64Array, counts: Int64Array) -> bool:
    """Write the pages that each lane is asked for, then those it has; False where an owner is no rank."""
    if not _count_demand(index, owners):
        return False
    lanes = index[LANES]
    for lane in range(lanes):
        counts[lane] = index[LANE_SCRATCH + lane]
        counts[lanes + lane] = index[_free_set(index, lane) + FREE] + index[_released_set(index, lane) + FREE]
    return True


@kernel("int64[::1](int64[::1], boolean)")
def lane_pages(index: Int64Array, released: bool) -> Int64Array:
    """Return the logical ids of the free or of the released pages, lane by lane, ascending."""
    lanes = index[LANES]
    total = 0
    for lane in range(lanes):
        total += index[(_released_set(index, lane) if released else _free_set(index, lane)) + FREE]
    pages = np.empty(total, np.int64)
    first = 0
    for lane in range(lanes):
        base = _released_set(index, lane) if released else _free_set(index, lane)
        found = _collect_lowest(index, base, pages[first:])
        for i in range(first, first + found):
            pages[i] = pages[i] * lanes + lane + 1
        first += found
    return pages


@kernel("int64(int64[::1], boolean, int64[::1])")
def lane_assign(index: Int64Array, released: bool, page_ids: Int64Array) -> int:
    """Replace the free or the released set by valid, distinct pages; return 0.

    A page that lies in the other set is returned instead, and nothing has changed.
    """
    lanes = index[LANES]
    for i in range(page_ids.size):
        lane = (page_ids[i] - 1) % lanes
        other = _free_set(index, lane) if released else _released_set(index, lane)
        if _is_free(index, other, (page_ids[i] - 1) // lanes):
            return page_ids[i]
    for lane in range(lanes):
        base = _released_set(index, lane) if released else _free_set(index, lane)
        words = _words(base)
        index[words : words + index[base + CHUNKS] * CHUNK_WORDS] = 0
        index[base + FREE] = 0
        for chunk in range(index[base + CHUNKS]):
            _forget(index, base, chunk)
    for i in range(page_ids.size):
        lane = (page_ids[i] - 1) % lanes
        page = (page_ids[i] - 1) // lanes
        base = _released_set(index, lane) if released else _free_set(index, lane)
        index[_words(base) + (page >> 6)] |= ONE << (page & 63)
        index[base + FREE] += 1
    return 0


@kernel("boolean[::1](int64[::1], int64[::1])")
def lane_is_available(index: Int64Array, page_ids: Int64Array) -> npt.NDArray[np.bool_]:
    """Tell of each of some valid pages whether it is free or released."""
    lanes = index[LANES]
    found = np.empty(page_ids.size, np.bool_)
    for i in range(page_ids.size):
        lane = (page_ids[i] - 1) % lanes
        page = (page_ids[i] - 1) // lanes
        found[i] = _is_free(index, _free_set(index, lane), page) or _is_free(index, _released_set(index, lane), page)
    return found


@kernel("int64[:,::1](int64[::1])")
def lane_words(index: Int64Array) -> Int64Array:
    """Return a copy of the page bits: a row a lane for the free sets, then one for the released sets."""
    count = index[_free_set(index, 0) + CHUNKS] * CHUNK_WORDS
    words = np.empty((2 * index[LANES], count), np.int64)
    for row in range(2 * index[LANES]):
        first = _words(_free_set(index, row))
        words[row] = index[first : first + count]
    return words


@kernel("void(int64[::1], int64[:,::1])")
def lane_set_words(index: Int64Array, words: Int64Array) -> None:
    """Replace the page bits by those of `lane_words`."""
    for row in range(words.shape[0]):
        base = _free_set(index, row)
        free = 0
        for word in range(words.shape[1]):
            bits = words[row, word]
            if index[_words(base) + word] != bits:
                index[_words(base) + word] = bits
                _forget(index, base, word // CHUNK_WORDS)
            while bits != 0:
                bits &= ~(ONE << _trailing_zeros(bits))
                free += 1
        index[base + FREE] = free


@kernel("int64[::1](int64[::1])")
def lane_copy(index: Int64Array) -> Int64Array:
    """Return a copy of the array, taken in one atomic step."""
    return index.copy()


# ---------------------------------------------------------------------------------------------------------------------
# Token containers
# ---------------------------------------------------------------------------------------------------------------------

# Tokens compared at once: few at first, as sequences often part early, twice as many each time that they agree.
SMALLEST_BLOCK = 32
LARGEST_BLOCK = 4096
I32, I64 = types.int32, types.int64


def _read_only(dtype: types.Type) -> types.Array:
    """Return the type of a contiguous array that a kernel only reads; numba takes a writable one for it as well."""
    return types.Array(dtype, 1, "C", readonly=True)


@njit
def _agree(a: npt.NDArray[Any], b: npt.NDArray[Any], start: int, stop: int) -> bool:
    """Tell whether two arrays hold the same from `start` to `stop`; without a branch, so that it is vectorised."""
    left, right = a[start:stop], b[start:stop]
    differing = 0
    for i in range(stop - start):
        differing |= left[i] ^ right[i]
    return differing == 0


@njit
def _words_in_common(a: npt.NDArray[Any], b: npt.NDArray[Any], length: int) -> int:
    """Return how many of their first `length` elements two arrays have in common, less at most SMALLEST_BLOCK - 1."""
    start = 0
    block = SMALLEST_BLOCK
    while start + block <= length and _agree(a, b, start, start + block):
        start += block
        block = min(2 * block, LARGEST_BLOCK)
    # The difference, or the end, is less than a block away; each half that agrees is passed.
    while block > SMALLEST_BLOCK:
        block //= 2
        if start + block <= length and _agree(a, b, start, start + block):
            start += block
    return start


@kernel(
    *(types.int64(_read_only(a), _read_only(b), types.int64) for a, b in ((I64, I64), (I32, I64), (I64, I32))),
    counted=False,
)
def common_prefix(a: npt.NDArray[Any], b: npt.NDArray[Any], shorter: int) -> int:
    """Return how many of their first `shorter` tokens two arrays have in common, one of them int64 or both."""
    start = _words_in_common(a, b, shorter)
    while start < shorter and a[start] == b[start]:
        start += 1
    return start


@kernel(types.int64(_read_only(I32), _read_only(I32), types.int64), counted=False)
def common_prefix_int32(a: npt.NDArray[Any], b: npt.NDArray[Any], shorter: int) -> int:
    """Return how many of their first `shorter` tokens two int32 arrays have in common; two at a time are compared."""
    pairs = shorter // 2
    start = 2 * _words_in_common(a[: 2 * pairs].view(np.int64), b[: 2 * pairs].view(np.int64), pairs)
    while start < shorter and a[start] == b[start]:
        start += 1
    return start


ROW_LENGTH, ROW_LIMIT, TABLE_HEADER = 0, 1, 16


def _append_to_rows(cells: npt.NDArray[Any], rows: npt.NDArray[Any], tokens: npt.NDArray[Any]) -> bool:
    """Append `tokens[i]` to row `rows[i]` of a token table for every i, or nothing: then return False.

    That is when a row is not in use, full or named twice, when a token does not fit, and when the two differ in length.
    """
    if rows.shape[0] != tokens.shape[0]:
        return False
    sign_bit = 8 * cells.itemsize - 1
    for i in range(rows.shape[0]):
        row, token = rows[i], tokens[i]
        # What a token has from the cells' sign bit upwards must be all zeros or all ones.
        if 0 <= row < cells.shape[0] and -1 <= token >> sign_bit <= 0:
            length = cells[row, ROW_LENGTH]
            if 0 <= length < cells[row, ROW_LIMIT]:
                cells[row, TABLE_HEADER + length] = token
                cells[row, ROW_LENGTH] = ~length
                continue
        for named in rows[:i]:
            cells[named, ROW_LENGTH] = ~cells[named, ROW_LENGTH]
        return False
    for row in rows:
        cells[row, ROW_LENGTH] = -cells[row, ROW_LENGTH]
    return True


def _append_kernel(dtype: types.Type) -> Any:
    # One signature a dispatcher: choosing between several costs a tenth of a call for few rows.
    signature = types.boolean(types.Array(dtype, 2, "C"), _read_only(I64), _read_only(I64))
    return kernel(signature, counted=False)(_append_to_rows)


append_to_int32_rows, append_to_int64_rows = _append_kernel(I32), _append_kernel(I64)
