"""The device tier (L1) of one rank: one pool of pages, at the addresses that an engine's own has."""

from functools import partial as partial_of
from itertools import pairwise

import cython
import numpy as np
import torch

from kvpool import _signatures
from kvpool._arguments import (
    INT64_MAX,
    as_int64,
    check_integers,
    count,
    faults_of,
    flag,
    joined_rows,
    page_ids_as_int64,
    pages_for,
    pages_in_any_order,
    positive_int,
    rows_of_integers,
)
from kvpool._books import check_free_pages
from kvpool._pinned import device_copier
from kvpool._signatures import ClassSignature
from kvpool.snapshots import PagedSnapshot

if not cython.compiled:
    from kvpool._free_pages import FreePages
    from kvpool._outstanding import Outstanding
    from kvpool._plain import (
        expand,
        free_scratch,
        ids_in,
        new_ids,
        new_scratch,
        new_slots,
        packed,
        pages_of,
        part,
        small_int,
        tensor_of,
        view_of,
    )
    from kvpool._sort import sort_pages

    FREE, HELD, TAKEN = 1, 2, 0
    FIFO, LIFO, SORTED = 0, 1, 2
    PREFIX, LENGTH, LAST, FIELDS = 0, 1, 2, 3
    MOST_SLOTS = 2**60

_MAX_PAGES = 2**30 - 1
_ORDERS = {"fifo": 0, "lifo": 1, "sorted": 2}


@cython.no_gc_clear
@cython.cclass
class PagedAllocator:
    """A pool of `num_pages` pages of `page_size` token slots, with ids from 1 on; page 0 is padding, never handed out.

    Allocation, whole pages:  `alloc`, `alloc_pages`
    Allocation, for requests: `alloc_extend`, `alloc_decode`
    Giving back:              `free`, `free_rows`, `return_pages`, `free_group_begin`, `free_group_end`
    What is free:             `available_size`, `free_pages`
    The whole state:          `snapshot`, `restore`, `clear`, `check`

    `order` is that of an allocator of SGLang's (0.5.23), at whose addresses pages are handed out, call for call:

    - "fifo": pages join behind the free ones, in the order of the call. `TokenToKVPoolAllocator`.
    - "lifo": they join in front, those of one `free` ascending, those of one `return_pages` in its order.
      `PagedTokenToKVPoolAllocator`.
    - "sorted": the lowest free page first. Pages that are given back are released; where a request might need more than
      the free ones, all released ones become free, also if it does not fit even then. Both, with `need_sort`.

    `num_pages`, `page_size` and `size` (slots of the whole pool without the padding page) say what was built. The books
    live on the CPU; slots are returned on `device` (CPU or CUDA), by one host-to-device copy that nothing waits for.
    Results are fresh and own exactly their own elements. A request that does not fit returns None. Every method is
    atomic, whatever interrupts it, and a call that raises has changed nothing; only its result can be lost, where a
    signal handler raises after the call is done and before its result is bound. Costs are given for n slots or pages of
    a call, r requests and N pages of the pool; what happened to a pool before makes no call dearer.

    >>> pool = PagedAllocator(num_pages=8, page_size=4)
    >>> pool.alloc_extend([0, 0], [6, 3], [-1, -1])
    tensor([ 4,  5,  6,  7,  8,  9, 12, 13, 14])
    >>> pool.alloc_decode([7, 4], [9, 14])
    tensor([10, 15])
    >>> pool.free([4, 5, 6, 7, 8, 9, 10], partial=True)
    7
    >>> pool.free_pages
    tensor([4, 5, 6, 7, 8, 1, 2])
    """

    __signature__ = ClassSignature(_signatures.paged_allocator)

    def __cinit__(self):
        # Whoever forgets to call __init__ has a pool of no pages.
        self.page_size = 1
        self.order = "fifo"
        self.device = torch.device("cpu")
        self.pages = FreePages(0, FIFO)

    def __init__(self, num_pages, page_size, *, device="cpu", order="fifo"):
        pages = positive_int(num_pages, "num_pages")
        slots = positive_int(page_size, "page_size")
        if pages > _MAX_PAGES:
            raise ValueError(f"num_pages must be at most {_MAX_PAGES}, but is {pages}")
        if (pages + 1) * slots > INT64_MAX:
            raise ValueError(f"{pages} pages of {slots} slots are more slots than int64 counts")
        target = torch.device(device)
        copier = device_copier(target)
        if not isinstance(order, str) or order not in _ORDERS:
            raise ValueError(f'order must be "fifo", "lifo" or "sorted", not {order!r}')
        ordered: cython.int = _ORDERS[order]
        books = FreePages(pages, ordered)
        books.give_all()
        # A plain string, also of an enumeration's.
        named = list(_ORDERS)[ordered]
        if getattr(self, "num_pages", 0):
            # A call may be under way that has read the geometry, or how often the state has changed.
            if self.num_pages != pages or self.page_size != slots or self.ordered != ordered:
                raise ValueError(
                    f"the pool is built, of {self.num_pages} pages of {self.page_size} slots in {self.order} order, "
                    "and stays so"
                )
            books.changes = self.pages.changes + 1
        self.num_pages = pages
        self.page_size = slots
        self.size = pages * slots
        self.order = named
        self.ordered = ordered
        self.device = target
        self.copier = copier
        self.pages = books
        self.group = None
        self.first = None
        self.last = None

    @property
    def free_pages(self):
        """The ids of the free pages, the next to be handed out first: a fresh CPU int64 tensor. O(N).

        In "sorted" order the released ones are the last, ascending as they will be once they are free.
        """
        self._settle(True)
        while True:
            length: cython.longlong = self.pages.length
            ids = new_slots(length)
            result = tensor_of(ids, length)
            # Making the result may have run a finaliser that called the pool.
            if self.pages.length == length:
                self.pages.copy_to(ids)
                return result

    def available_size(self):
        """Return how many slots are free or released. O(1)."""
        self._settle(True)
        return self.pages.length * self.page_size

    def alloc(self, need_size):
        """Return the slots of the next pages, `need_size` slots in all; None if they do not fit. O(n).

        Raises ValueError for a size that is negative or not whole pages, TypeError for one that is no integer.
        """
        size: cython.longlong = small_int(need_size)
        pages: cython.longlong = size // self.page_size
        if size < 0 or pages * self.page_size != size:
            pages = pages_for(need_size, self.page_size)
        if not self._room(pages, pages):
            return None
        if self.copier is not None:
            return self._send_pages(pages)
        slots = new_slots(pages * self.page_size)
        result = tensor_of(slots, pages * self.page_size)
        if not self.pages.take(part(slots, pages * (self.page_size - 1)), pages, pages):
            return None
        expand(slots, pages, self.page_size)
        return result

    def alloc_pages(self, num_pages):
        """Return the ids of the next `num_pages` pages, a fresh int64 ndarray; None if they do not fit. O(n).

        Raises ValueError for a negative number, TypeError for one that is no integer.
        """
        wanted: cython.longlong = small_int(num_pages)
        if wanted < 0:
            wanted = min(count(num_pages, "num_pages"), INT64_MAX)
        if not self._room(wanted, wanted):
            return None
        page_ids = new_ids(wanted)
        return page_ids if self.pages.take(ids_in(page_ids), wanted, wanted) else None

    def alloc_extend(self, prefix_lens, seq_lens, last_slots):
        """Return the slots of requests that grow from `prefix_lens` to `seq_lens` tokens; None if they do not fit.

        First what is left of its last page, the slots behind its entry of `last_slots`, then new pages, the last of
        them as far as it is needed; request after request in one tensor of `sum(seq_lens - prefix_lens)` slots. The
        arguments are one-dimensional, integers, of one length. A last slot is not looked at where the prefix is whole
        pages or empty; where it is, it has to be the last of such a prefix in a page of the pool. Raises ValueError
        that names the request for one that is not, for a negative prefix and for a sequence that is shorter than its
        prefix, TypeError for what are no integers. O(n + r).

        A tensor on a device is copied to the host, which is waited for, but for `last_slots` on the pool's own: they
        stay there, unchecked, and nothing waits.
        """
        before = _vector(prefix_lens, "prefix_lens")
        after = _vector(seq_lens, "seq_lens")
        last = last_slots
        apart: cython.bint = self._is_apart(last_slots)
        if apart:
            before = as_int64(before, "prefix_lens").copy()
            after = as_int64(after, "seq_lens").copy()
            last = _stand_ins(before, last_slots, self.page_size)
        last = _vector(last, "last_slots")
        prefixes = view_of(before)
        lengths = view_of(after)
        lasts = view_of(last)
        requests: cython.longlong = lengths.size
        if requests < 0 or prefixes.size != requests or lasts.size != requests:
            raise ValueError(
                "prefix_lens, seq_lens and last_slots must have one length, "
                f"not {len(before)}, {len(after)} and {len(last)}"
            )
        copied = new_scratch(FIELDS * requests + 2)
        try:
            i: cython.longlong
            # A copy, as somebody may write to them meanwhile.
            for i in range(requests):
                copied[FIELDS * i + PREFIX] = prefixes.data[i]
                copied[FIELDS * i + LENGTH] = lengths.data[i]
                copied[FIELDS * i + LAST] = lasts.data[i]
            demand = part(copied, FIELDS * requests)
            if not self._measure(copied, requests, demand):
                i = demand[0]
                wrong = part(copied, FIELDS * i)
                raise self._wrong(i, wrong[LENGTH], wrong[LAST], wrong[PREFIX])
            pages: cython.longlong = demand[0]
            size: cython.longlong = demand[1]
            # The engine's bound on the pages of such a batch; pages of one slot it counts.
            bound: cython.longlong = size // self.page_size + requests + 1 if self.page_size > 1 else pages
            if not self._room(pages, bound):
                return None
            if self.copier is not None:
                moves = _moves(before, after, last, last_slots, self.page_size) if apart else None
                return self._send_extended(copied, requests, pages, size, bound, moves)
            taken = new_scratch(pages)
            try:
                slots = new_slots(size)
                result = tensor_of(slots, size)
                if not self.pages.take(taken, pages, bound):
                    return None
                self._fill(copied, requests, taken, slots)
            finally:
                free_scratch(taken)
        finally:
            free_scratch(copied)
        return result

    def alloc_decode(self, seq_lens, last_slots):
        """Return one slot for each request, the last of its `seq_lens` tokens; None if they do not fit.

        It is the slot behind its entry of `last_slots`, or the first of a new page where the tokens before it fill
        whole pages. Arguments and errors as of `alloc_extend`, with prefixes that are one token shorter. O(r).
        """
        after = _vector(seq_lens, "seq_lens")
        if self.copier is not None:
            return self._send_decoded(after, last_slots)
        last = _vector(last_slots, "last_slots")
        requests: cython.longlong = max(view_of(after).size, 0)
        slots = new_slots(requests)
        result = tensor_of(slots, requests)
        scratch = new_scratch(2 * requests + 1)
        try:
            opened: cython.longlong = self._decode(after, last, requests, slots, scratch)
            taken = part(scratch, requests)
            if not self._room(opened, requests) or not self.pages.take(taken, opened, requests):
                return None
            self._open(slots, scratch, taken, opened)
        finally:
            free_scratch(scratch)
        return result

    def free(self, slots, *, partial=False, deferred=False):
        """Give slots back, whole pages in any order; return how many slots were freed.

        Where `partial`, any of a page's slots give it back, as those that a request has used of its last page. `slots`
        is copied before this returns; a device tensor is waited for. Raises FreeError, having changed nothing, for a
        page that is out of range, reserved, incomplete, given twice or already free; TypeError for what are no
        integers. O(n), or O(n log n) for slots that are not in the order of their pages.

        Where `deferred`, slots on the pool's device are sent for and nothing is waited for: what is outstanding is
        carried out, in the order of the calls, by the next one that needs it. `alloc`, `alloc_pages`, `alloc_extend`
        and `alloc_decode` look what has arrived, and wait only where they would return None; a deferred free,
        `free_group_begin`, `free_group_end` and `clear`, which drops what is outstanding, do not; every other method
        waits for all of it. A FreeError of such a free is raised by the call that would carry it out, before that does
        anything else, and only that free is dropped. Slots on the host are freed at once where nothing is outstanding,
        and else in their turn.
        """
        return self._take_back(slots, True, flag(partial, "partial"), flag(deferred, "deferred"))

    def free_rows(self, slots, lengths):
        """Give back the first `lengths[i]` slots of each row i of a two-dimensional table; return how many in all.

        The last page of a row may be given in part. Otherwise as one `free` of all those slots, row after row. Raises
        ValueError for lengths that are not one a row, or no number of slots of a row.
        """
        rows, counts = rows_of_integers(slots, lengths)
        self._settle(True)
        freed = self._give_rows(rows, counts) if rows.dtype == np.int64 and rows.flags.carray else None
        return self._give_back(joined_rows(rows, counts), True, True, None) if freed is None else freed

    def return_pages(self, page_ids, *, deferred=False):
        """Give pages back by their ids, in this order also in a "lifo" pool; return how many. As `free` otherwise."""
        return self._take_back(page_ids, False, False, flag(deferred, "deferred"))

    def free_group_begin(self):
        """Begin a group of frees: pages that are given back from here on become free at its end, together.

        Until then they are not available, and are not given back again; each call is checked at once, and raises as
        without a group. In a group a page may be given by several partial frees, each of other slots of it. Raises
        ValueError where a group is open.
        """
        group: list = []
        if self.group is not None:
            raise ValueError("a group of frees is open, and groups are not nested")
        self.group = group

    def free_group_end(self):
        """End the group of frees: its pages become free as those of one call, if a group is open. O(n log n).

        In "lifo" order, those that came as slots ascending, and before them those that came as page ids, in their
        order; in "fifo" order all in theirs.
        """
        if self.first is not None:
            entry = Outstanding(None, None, False, False)
            if self.group is not None:
                self._append(entry)
                self.group = None
        elif self.group is not None:
            self._end_group(self.group, None)

    def snapshot(self):
        """Return the state of the pool: immutable, and equal by content to another of the same. O(N).

        What a group of frees that is open has collected is part of it.
        """
        self._settle(True)
        while True:
            changes: object = self.pages.changes
            group = self.group
            held = self._collected()
            length: cython.longlong = self.pages.length
            page_ids = new_ids(length)
            # Making these may have run a finaliser that called the pool.
            if self.pages.changes == changes and self.group is group:
                break
        self.pages.copy_to(ids_in(page_ids))
        free: object = self.pages.free_count()
        packed_ids = page_ids.astype(np.int32)
        return PagedSnapshot(
            self.num_pages, self.page_size, self.order, packed_ids[:free].tobytes(), packed_ids[free:].tobytes(), held
        )

    def restore(self, snapshot):
        """Bring the pool back to the state of a snapshot; what was handed out since is free again. O(N).

        Raises TypeError for anything but a snapshot of a PagedAllocator, ValueError for one of another geometry or
        order.
        """
        if not isinstance(snapshot, PagedSnapshot):
            raise TypeError(f"snapshot must be a PagedSnapshot, not {type(snapshot).__name__}")
        theirs = (snapshot.num_pages, snapshot.page_size, snapshot.order)
        if theirs != (self.num_pages, self.page_size, self.order):
            raise ValueError(
                "the snapshot is of {} pages of {} slots in {} order, the pool has {} of {} in {}".format(
                    *theirs, self.num_pages, self.page_size, self.order
                )
            )
        self._settle(True)
        pages = FreePages(self.num_pages, self.ordered)
        free = _ids_of(snapshot.free_pages)
        released = _ids_of(snapshot.released_pages)
        group: list = None
        right: cython.bint = self.ordered == SORTED or not released.size
        right = right and pages.give_free(ids_in(free), len(free))
        right = right and pages.mark(ids_in(released), len(released), FREE)
        if right and snapshot.group is not None:
            by_slots, by_ids = _ids_of(snapshot.group[0]), _ids_of(snapshot.group[1])
            slots = np.frombuffer(snapshot.group[2], np.int64)
            right = bool(np.isin(slots // self.page_size, by_slots).all())
            right = right and pages.mark(ids_in(by_slots), len(by_slots), HELD)
            right = right and pages.mark(ids_in(by_ids), len(by_ids), HELD)
            group = [(True, by_slots, slots), (False, by_ids, None)]
        if not right:
            raise ValueError("the snapshot is damaged: it repeats a page, or holds one that the pool has not")
        pages.give(ids_in(released), len(released))
        pages.changes = self.pages.changes + 1
        self.pages = pages
        self.group = group

    def clear(self):
        """Make the pool as newly built: all pages free, ascending, no group open, and nothing outstanding. O(N)."""
        self.pages.give_all()
        self.group = None
        self.first = None
        self.last = None

    def check(self):
        """Assert every invariant of the books, saying what was found where one fails. O(N)."""
        self._settle(True)
        check_free_pages(*self._books())

    def __reduce__(self):
        return _rebuilt, (type(self), self.device, self.snapshot())

    @property
    def _steps(self):
        """What calls have cost so far: places of the order that were read or written."""
        return self.pages.steps()

    def _books(self):
        """Return a copy of the pages' state and the ids of those that the open group holds, which belong together."""
        while True:
            # Held, as a finaliser that restores the pool puts others in their place.
            pages = self.pages
            changes: object = pages.changes
            group = self.group
            state = pages.state()
            held: list = [] if group is None else [None] * len(group)
            for i in range(len(held)):
                held[i] = group[i][1]
            # Making the copies may have run a finaliser that called the pool.
            if self.pages.changes == changes and self.group is group:
                return state, np.concatenate([np.empty(0, np.int64), *held])

    def _collected(self):
        """Return what the open group has, as a snapshot holds it; None where no group is open."""
        group = self.group
        if group is None:
            return None
        taken: list = list(group)
        parts = ([np.empty(0, np.int64)], [np.empty(0, np.int64)], [np.empty(0, np.int64)])
        for by_slots, ids, slots in taken:
            parts[0 if by_slots or self.ordered == FIFO else 1].append(ids)
            if slots is not None:
                parts[2].append(slots)
        by_slots, by_ids, slots = map(np.concatenate, parts)
        if self.ordered != FIFO:
            by_slots.sort()
        return by_slots.astype(np.int32).tobytes(), by_ids.astype(np.int32).tobytes(), np.sort(slots).tobytes()

    def _are(self, state, page_ids):
        """Tell of each of some pages whether that is what it is."""
        found: list = [False] * len(page_ids)
        pages = page_ids.tolist()
        for i in range(len(pages)):
            found[i] = bool(self.pages.state_of(pages[i]) == state)
        return np.array(found, np.bool_)

    def _wrong(self, request, length, last, prefix=None):
        """Return the error for a request that is wrong; one without a prefix is to be decoded."""
        if prefix is None and length < 1:
            said = f"seq_len {length} is less than the 1 that is decoded"
        elif prefix is None:
            return self._wrong(request, length, last, length - 1)
        elif prefix < 0:
            said = f"prefix_len {prefix} is negative"
        elif length < prefix:
            said = f"seq_len {length} is less than its prefix_len {prefix}"
        elif not self.page_size <= last < (self.num_pages + 1) * self.page_size:
            said = f"last_slot {last} is in none of the pages 1 to {self.num_pages}"
        else:
            said = (
                f"last_slot {last} stands at {last % self.page_size} in its page, where {prefix} tokens end "
                f"at {(prefix - 1) % self.page_size}"
            )
        return ValueError(f"request {request} is wrong: {said}")

    def _last_fits(self, last, place):
        """Tell whether a slot is one of the pool's and the next one is at a place of its page."""
        return (
            self.page_size <= last
            and last < (self.num_pages + 1) * self.page_size
            and (last + 1) % self.page_size == place
        )

    def _measure(self, requests, count, demand):
        """Add up into `demand` how many pages and slots requests need; False where one is wrong, and its index there.

        No more pages than one more than the pool has, and no more slots than MOST_SLOTS.
        """
        pages: cython.longlong = 0
        size: cython.longlong = 0
        i: cython.longlong
        for i in range(count):
            prefix: cython.longlong = requests[FIELDS * i + PREFIX]
            length: cython.longlong = requests[FIELDS * i + LENGTH]
            place: cython.longlong = prefix % self.page_size
            if prefix < 0 or length < prefix or (place > 0 and not self._last_fits(requests[FIELDS * i + LAST], place)):
                demand[0] = i
                return False
            more: cython.longlong = length // self.page_size - prefix // self.page_size
            more += (length % self.page_size > 0) - (place > 0)
            pages += min(more, self.num_pages + 1 - pages)
            size += min(length - prefix, MOST_SLOTS - size)
        demand[0] = pages
        demand[1] = size
        return True

    def _fill(self, requests, count, pages, slots):
        """Write the slots of requests, of which new ones are in `pages`, in their order."""
        written: cython.longlong = 0
        used: cython.longlong = 0
        i: cython.longlong
        j: cython.longlong
        for i in range(count):
            first: cython.longlong = requests[FIELDS * i + LAST] + 1
            prefix: cython.longlong = requests[FIELDS * i + PREFIX]
            left: cython.longlong = requests[FIELDS * i + LENGTH] - prefix
            place: cython.longlong = prefix % self.page_size
            size: cython.longlong = min(left, self.page_size - place) if place > 0 else 0
            for j in range(size):
                slots[written + j] = first + j
            written += size
            left -= size
            whole: cython.longlong = left // self.page_size
            ids = part(slots, written + whole * (self.page_size - 1))
            for j in range(whole):
                ids[j] = pages[used + j]
            expand(part(slots, written), whole, self.page_size)
            used += whole
            written += whole * self.page_size
            left -= whole * self.page_size
            if left > 0:
                first = pages[used] * self.page_size
                for j in range(left):
                    slots[written + j] = first + j
                used += 1
                written += left

    def _decode(self, after, last, count, slots, scratch):
        """Do what `_places` does; raise ValueError for what is wrong."""
        # Views that are taken here: what was done before may have run a finaliser that changed the arguments.
        lengths = view_of(after)
        lasts = view_of(last)
        if lengths.size != count or lasts.size != count:
            raise ValueError(f"seq_lens and last_slots must have one length, not {len(after)} and {len(last)}")
        opened: cython.longlong = self._places(lengths.data, lasts.data, count, slots, scratch)
        if opened < 0:
            raise self._wrong(scratch[0], scratch[1], scratch[2])
        return opened

    def _open(self, slots, opening, pages, count):
        """Write the first slot of each of some pages where it is to go."""
        i: cython.longlong
        for i in range(count):
            slots[opening[i]] = pages[i] * self.page_size

    def _places(self, lengths, lasts, count, slots, opening):
        """Write the slot of each request that has one in its last page, and the indices of the others into `opening`.

        Return how many those are; -1 where a request is wrong: its index, its length and its last slot are then there.
        """
        opened: cython.longlong = 0
        i: cython.longlong
        for i in range(count):
            length: cython.longlong = lengths[i]
            last: cython.longlong = lasts[i]
            place: cython.longlong = (length - 1) % self.page_size if length > 0 else -1
            if place == 0:
                opening[opened] = i
                opened += 1
            elif place > 0 and self._last_fits(last, place):
                slots[i] = last + 1
            else:
                opening[0] = i
                opening[1] = length
                opening[2] = last
                return -1
        return opened

    def _send_pages(self, count):
        """Return the slots of the next pages on the device; nothing has changed where one of the steps fails.

        The slots are on their way before the pages are taken. Where the pool has changed meanwhile, they are chosen
        anew.
        """
        while True:
            changes: object = self.pages.changes
            page_ids = self._chosen(count, count)
            if page_ids is None:
                return None
            slots = (page_ids[:, np.newaxis] * self.page_size + np.arange(self.page_size)).ravel()
            result = self.copier.send(slots)
            if self._take_chosen(page_ids, count, changes):
                return result

    def _send_extended(self, requests, count, pages, size, bound, moves):
        """Return the slots of an extended batch on the device, as `_send_pages`."""
        while True:
            changes: object = self.pages.changes
            page_ids = self._chosen(pages, bound)
            if page_ids is None:
                return None
            slots = new_ids(size)
            self._fill(requests, count, ids_in(page_ids), ids_in(slots))
            result = self._send_moved(slots, moves)
            if self._take_chosen(page_ids, bound, changes):
                return result

    def _send_decoded(self, after, last_slots):
        """Return a slot for each request on the device, as `_send_pages`."""
        last = last_slots
        apart: cython.bint = self._is_apart(last_slots)
        if apart:
            after = as_int64(after, "seq_lens").copy()
            last = _stand_ins(after - 1, last_slots, self.page_size)
        last = _vector(last, "last_slots")
        requests: cython.longlong = max(view_of(after).size, 0)
        slots = new_ids(requests)
        scratch = new_scratch(2 * requests + 1)
        try:
            opened: cython.longlong = self._decode(after, last, requests, ids_in(slots), scratch)
            if not self._room(opened, requests):
                return None
            moves = _moves(after - 1, after, last, last_slots, self.page_size) if apart else None
            while True:
                changes: object = self.pages.changes
                page_ids = self._chosen(opened, requests)
                if page_ids is None:
                    return None
                self._open(ids_in(slots), scratch, ids_in(page_ids), opened)
                result = self._send_moved(slots, moves)
                if self._take_chosen(page_ids, requests, changes):
                    return result
        finally:
            free_scratch(scratch)

    def _is_apart(self, last_slots):
        """Tell whether last slots are on the device, where they stay."""
        if self.copier is None or not self.copier.holds(last_slots):
            return False
        check_integers(last_slots, "last_slots")
        return True

    def _send_moved(self, slots, moves):
        """Send slots to the device, and move those that were made from stand-ins to where they belong."""
        if moves is None:
            return self.copier.send(slots)
        last_slots, *indices = moves
        ends = np.cumsum([len(each) for each in (slots, *indices)]).tolist()
        sent = self.copier.send(slots, *indices)
        # A copy, as a result owns its memory.
        result = sent[: ends[0]].clone()
        positions, owners, stand_ins = (sent[start:stop] for start, stop in pairwise(ends))
        distances = last_slots.to(torch.int64) - stand_ins
        return result.index_add_(0, positions, distances.index_select(0, owners))

    def _chosen(self, count, bound):
        """Return the ids of the next pages, which stay free; None where there are not so many."""
        if count <= self.pages.length:
            page_ids = new_ids(count)
            if self.pages.choose(ids_in(page_ids), count, bound):
                return page_ids
        self.pages.merge_for(bound)
        return None

    def _take_chosen(self, page_ids, bound, changes):
        """Take pages that were chosen, if nothing has changed since."""
        return self.pages.changes == changes and self.pages.take(ids_in(page_ids), len(page_ids), bound)

    def _room(self, pages, bound):
        """Tell whether so many pages are free, or can be made free by waiting for what is outstanding."""
        if self.first is not None:
            self._settle(False)
            while pages > self.pages.length and self.first is not None:
                self._settle_first(True)
        if pages <= self.pages.length:
            return True
        self.pages.merge_for(bound)
        return False

    def _settle(self, wait):
        """Carry out what is outstanding, in its order, as far as it has arrived; all of it where that is waited for."""
        while self.first is not None and self._settle_first(wait):
            pass

    def _settle_first(self, wait):
        """Carry out the first free that is outstanding, if there is one; False where it has not arrived."""
        entry = self.first
        if entry is None:
            return True
        if entry.arrival is not None and not entry.arrival.copied.query():
            if not wait:
                return False
            entry.arrival.copied.synchronize()
        if entry.values is None:
            self._end_group(entry.group, entry)
            return True
        try:
            self._give_back(entry.values, entry.by_slots, entry.partial, entry)
        finally:
            if entry.arrival is not None and self.first is not entry:
                self.copier.release(entry.arrival)
        return True

    def _append(self, entry):
        """Put a free of the open group, if there is one, behind those that are outstanding."""
        entry.group = self.group
        if self.first is None:
            self.first = entry
        else:
            self.last.next = entry
        self.last = entry

    def _take_back(self, values, by_slots, partial, deferred):
        """Do what `free` and `return_pages` do."""
        if not deferred:
            self._settle(True)
            return self._give_back(values, by_slots, partial, None)
        name = "slots" if by_slots else "page_ids"
        if self.copier is not None and self.copier.holds(values):
            check_integers(values, name)
            size: object = values.numel()
            if size == 0:
                return 0
            arrival = self.copier.receive(values)
            entry = Outstanding(arrival.array, arrival, by_slots, partial)
        elif self.first is None:
            return self._give_back(values, by_slots, partial, None)
        else:
            array = page_ids_as_int64(values, name, self.page_size if by_slots else 1).copy()
            size = array.size
            entry = Outstanding(array, None, by_slots, partial)
        self._append(entry)
        return size

    def _end_group(self, group, entry):
        """Make the pages of a group free; `entry` is its end, where that was outstanding."""
        pages: cython.longlong = 0
        for _, ids, _ in group:
            pages += len(ids)
        joined = new_scratch(2 * pages)
        try:
            by_slots: cython.longlong = self._join_group(group, joined, True)
            self._join_group(group, part(joined, by_slots), False)
            if entry is None or self.first is entry:
                if self.ordered == LIFO:
                    sort_pages(joined, part(joined, pages), by_slots)
                self.pages.give(joined, by_slots)
                self.pages.give(part(joined, by_slots), pages - by_slots)
                if entry is None:
                    self.group = None
                else:
                    self.first = entry.next
        finally:
            free_scratch(joined)

    def _give_back(self, values, by_slots, partial, entry):
        """Give slots or page ids back, those of an `entry` if it is still outstanding; return how many they are."""
        page_size: cython.longlong = self.page_size if by_slots else 1
        name = "slots" if by_slots else "page_ids"
        # A slot of its own page is all of it.
        partial = partial and page_size > 1
        view = view_of(values)
        array = None
        if view.size < 0:
            array = packed(values)
            if array is None:
                array = page_ids_as_int64(values, name, page_size)
            view = view_of(array)
        freed: object = view.size
        room: cython.longlong = view.size if partial else view.size // page_size
        pages = new_scratch(2 * room)
        try:
            found: cython.longlong = -1
            if partial:
                found = self._pages_in(view.data, view.size, pages)
            elif room * page_size == view.size and pages_of(view.data, room, page_size, pages):
                found = room
            spare = part(pages, room)
            accepted: cython.bint = found >= 0 and self._accept(pages, found, spare, by_slots, partial, None, entry)
        finally:
            free_scratch(pages)
        if accepted:
            return freed
        if array is None:
            array = page_ids_as_int64(values, name, page_size)
        if partial:
            # A copy: what is checked must be what the group holds.
            array = array.copy()
        page_ids, incomplete, twice = pages_in_any_order(array, page_size, partial)
        freed = array.size
        while True:
            joining, again = page_ids, twice
            group = self.group if entry is None else entry.group
            if partial and group is not None:
                joining, again = self._beside_group(group, page_ids, array)
                again = np.union1d(twice, again)
            other = new_ids(len(joining))
            if (
                not incomplete.size
                and not again.size
                and self._accept(ids_in(joining), len(joining), ids_in(other), by_slots, partial, array, entry)
            ):
                return freed
            # Where none is found another thread has just taken the page that was free: the pool is asked again.
            everything = np.union1d(joining, again)
            faults = faults_of(
                everything,
                incomplete,
                again,
                range(1, self.num_pages + 1),
                partial_of(self._are, FREE),
                is_held=partial_of(self._are, HELD),
            )
            if entry is not None and self.first is not entry:
                return freed
            if faults is not None:
                if entry is not None:
                    self.first = entry.next
                raise faults

    def _give_rows(self, rows, counts):
        """Give the first slots of rows back; return how many they are, None where they have to be looked at as one."""
        flat = rows.reshape(-1)
        total: object = int(counts.sum())
        room: cython.longlong = total
        pages = new_scratch(2 * room)
        try:
            slots = ids_in(flat)
            sizes = ids_in(counts)
            width: cython.longlong = rows.shape[1]
            found: cython.longlong = 0
            i: cython.longlong
            for i in range(len(counts)):
                more: cython.longlong = self._pages_in(part(slots, i * width), sizes[i], part(pages, found))
                if more < 0:
                    return None
                found += more
            return total if self._accept(pages, found, part(pages, room), True, True, None, None) else None
        finally:
            free_scratch(pages)

    def _pages_in(self, slots, count, pages):
        """Write the page of each stretch of ascending slots of one page into `pages`; return how many; -1: no page."""
        found: cython.longlong = 0
        i: cython.longlong = 0
        while i < count:
            first: cython.longlong = slots[i]
            if first < 0 or first >= (self.num_pages + 1) * self.page_size:
                return -1
            place: cython.longlong = first % self.page_size
            # Most pages are whole.
            whole: cython.bint = place == 0 and count - i >= self.page_size > 1
            if whole and pages_of(part(slots, i), 1, self.page_size, part(pages, found)):
                found += 1
                i += self.page_size
                continue
            stop: cython.longlong = min(count, i + self.page_size - place)
            pages[found] = first // self.page_size
            found += 1
            first -= i
            i += 1
            while i < stop and slots[i] == first + i:
                i += 1
        return found

    def _accept(self, pages, count, spare, by_slots, partial, slots, entry):
        """Give pages back, all of them or none: False where one cannot be, or the group lacks `slots` that it keeps.

        Those of an `entry` that is not outstanding any more have been given back.
        """
        if entry is not None and self.first is not entry:
            return True
        group = self.group if entry is None else entry.group
        if group is None:
            if not self.pages.mark(pages, count, FREE):
                return False
            if by_slots and self.ordered == LIFO:
                sort_pages(pages, spare, count)
            self.pages.give(pages, count)
            if entry is not None:
                self.first = entry.next
            return True
        if partial and slots is None:
            return False
        i: cython.longlong
        ids = new_ids(count)
        kept = ids_in(ids)
        for i in range(count):
            kept[i] = pages[i]
        record = by_slots, ids, slots if partial else None
        # Making the record may have run a finaliser that ended the group, or carried out what is outstanding.
        if entry is None and self.group is not group:
            return False
        if entry is not None and self.first is not entry:
            return True
        if not self.pages.mark(kept, count, HELD):
            return False
        try:
            group.append(record)
        except BaseException:
            self.pages.unmark(kept, count)
            raise
        if entry is not None:
            self.first = entry.next
        return True

    def _beside_group(self, group, page_ids, slots):
        """Return which pages a group does not hold in part, and of which it holds one of some slots already."""
        before: list = [np.empty(0, np.int64)] * (len(group) + 1)
        for i in range(len(before) - 1):
            if group[i][2] is not None:
                before[i] = group[i][2]
        held = np.concatenate(before)
        again = np.unique(np.intersect1d(held, slots) // self.page_size)
        return page_ids[~np.isin(page_ids, held // self.page_size)], again

    def _join_group(self, group, joined, by_slots):
        """Write the page ids of a group that came as slots, or else the others, into `joined`; return how many."""
        written: cython.longlong = 0
        i: cython.longlong
        for came_as_slots, ids, _ in group:
            if (came_as_slots or self.ordered == FIFO) == by_slots:
                view = view_of(ids)
                for i in range(view.size):
                    joined[written + i] = view.data[i]
                written += view.size
        return written


def _vector(values, name):
    """Return integers of any accepted kind as what `view_of` looks at."""
    if view_of(values).size >= 0:
        return values
    array = packed(values)
    return as_int64(values, name) if array is None else array


def _stand_ins(prefixes, last_slots, page_size):
    """Return a last slot for each prefix, in page 1, in the place of those that are on the device."""
    if last_slots.numel() != prefixes.size:
        # Of another length, as is said then.
        return np.zeros(last_slots.numel(), np.int64)
    return page_size + (prefixes - 1) % page_size


def _moves(prefixes, lengths, stand_ins, last_slots, page_size):
    """Return what it takes to move slots that were made from stand-ins: last slots, and where which were used.

    The positions of such slots in the result, the request of each, and the stand-ins.
    """
    counts = np.minimum(-prefixes % page_size, lengths - prefixes)
    first = np.cumsum(lengths - prefixes) - (lengths - prefixes)
    position_in_own = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
    return last_slots, np.repeat(first, counts) + position_in_own, np.repeat(np.arange(counts.size), counts), stand_ins


def _ids_of(page_ids):
    """Return the page ids of a snapshot."""
    return np.frombuffer(page_ids, np.int32).astype(np.int64)


def _rebuilt(kind, device, snapshot):
    """Build the pool of a snapshot: what pickle and copy make of an allocator."""
    pool = kind(snapshot.num_pages, snapshot.page_size, device=device, order=snapshot.order)
    pool.restore(snapshot)
    return pool
