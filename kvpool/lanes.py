"""The device tier (L1) under context parallelism: one pool of logical pages, dealt to ranks in lanes."""

import math

import cython
import numpy as np
import torch

from kvpool import _signatures
from kvpool._arguments import (
    INT64_MAX,
    BeyondInt64Error,
    as_int64,
    faults_of,
    page_ids_as_int64,
    pages_in_any_order,
    positive_int,
    real_number,
    repeated,
)
from kvpool._books import check_lane
from kvpool._pinned import device_copier
from kvpool._signatures import ClassSignature
from kvpool.snapshots import LaneSnapshot

if not cython.compiled:
    from kvpool._lane import Lane
    from kvpool._plain import (
        expand,
        free_scratch,
        ids_in,
        new_ids,
        new_scratch,
        new_slots,
        new_words,
        packed,
        pages_of,
        part,
        tensor_of,
        view_of,
        words_from,
        words_in,
    )
    from kvpool._run_index import CHUNK_PAGES, CHUNK_WORDS


@cython.no_gc_clear
@cython.cclass
class OwnerLaneAllocator:
    """A pool that `cp_size` ranks share, `physical_pages` pages of `page_size` slots on each.

    Logical page `p >= 1` belongs to rank `(p - 1) % cp_size`, its owner, and is physical page `(p - 1) // cp_size + 1`
    there; page 0 is padding and is never handed out. The pages of one rank are a lane, which has a free set and a
    released set (pages given back, reused last).

    Allocation:        `alloc_pages_with_owners`, `select_pages`, `free`, `return_pages`, `merge_released`
    Room in the lanes: `compute_owner_lane_stats`, `compute_owner_lane_free_room_stats`,
                       `compute_owner_lane_capacity_pages`, `available_size`, `schedulable_size`
    The page sets:     `free_pages`, `release_pages`
    The whole state:   `snapshot`, `restore`, `clear`, `check`

    `selection` is "contiguous" (the lowest stretch of consecutive physical pages of the free set that serves a lane's
    whole demand, where there is one) or "fifo" (free pages lowest address first, then released ones). The books live on
    the CPU; slots are returned on `device` (CPU or CUDA), by one host-to-device copy that nothing waits for. Every
    method is atomic, whatever interrupts it, and a call that raises has changed nothing; only its result can be lost,
    where a signal handler raises after the call is done and before its result is bound. Costs are given for n owners of
    a request, c lanes and P pages of a lane.

    >>> pool = OwnerLaneAllocator(physical_pages=4, page_size=1, cp_size=2)
    >>> pool.alloc_pages_with_owners([0, 1, 1, 0])
    tensor([1, 2, 4, 3])
    >>> pool.free([4, 3])
    2
    >>> pool.select_pages([1]), pool.release_pages
    (array([6]), tensor([3, 4]))
    """

    __signature__ = ClassSignature(_signatures.owner_lane_allocator)

    def __cinit__(self):
        # Whoever forgets to call __init__ has a pool of no lanes.
        self.page_size = 1
        self.selection = "contiguous"
        self.device = torch.device("cpu")
        self.lanes = []

    def __init__(self, physical_pages, page_size=64, cp_size=8, *, device="cpu", selection="contiguous"):
        pages = positive_int(physical_pages, "physical_pages")
        slots = positive_int(page_size, "page_size")
        ranks = positive_int(cp_size, "cp_size")
        target = torch.device(device)
        copier = device_copier(target)
        if not isinstance(selection, str) or selection not in ("contiguous", "fifo"):
            raise ValueError(f'selection must be "contiguous" or "fifo", not {selection!r}')
        if (pages * ranks + 1) * slots > INT64_MAX:
            raise ValueError(f"{pages * ranks} pages of {slots} slots are more slots than int64 counts")
        # A plain string, also of an enumeration's.
        selected = "contiguous" if selection == "contiguous" else "fifo"
        lanes = _new_lanes(pages, ranks)
        for lane in lanes:
            cython.cast(Lane, lane).free.add_run(0, pages)
        # A call may be under way that has read the geometry.
        built = getattr(self, "cp_size", 0)
        if built and (self.physical_pages != pages or self.page_size != slots or self.cp_size != ranks):
            raise ValueError(
                f"the pool is built, of {self.physical_pages} pages of {self.page_size} slots in {self.cp_size} lanes, "
                "and stays so"
            )
        self.physical_pages = pages
        self.page_size = slots
        self.cp_size = ranks
        self.lanes = lanes
        self.selection = selected
        self.contiguous = selected == "contiguous"
        self.device = target
        self.copier = copier

    @property
    def num_pages(self):
        """Pages of all lanes, free or not, without the padding page."""
        return self.physical_pages * self.cp_size

    @property
    def size(self):
        """Slots of all lanes, free or not, without the padding page."""
        return self.physical_pages * self.cp_size * self.page_size

    @property
    def free_pages(self):
        """The free sets: a fresh CPU int64 tensor of logical page ids, lane by lane, ascending. O(c P).

        Assigning a one-dimensional integer tensor (or ndarray, or list) replaces the sets; a page in neither set counts
        as allocated. Raises ValueError, having changed nothing, for a page that is repeated, in the other set or
        outside `1 .. physical_pages * cp_size`.
        """
        return self._pages(False)

    @free_pages.setter
    def free_pages(self, page_ids):
        self._assign("free_pages", page_ids, False)

    @property
    def release_pages(self):
        """The released sets, as `free_pages`."""
        return self._pages(True)

    @release_pages.setter
    def release_pages(self, page_ids):
        self._assign("release_pages", page_ids, True)

    def available_size(self):
        """Return how many slots are free or released, in all lanes."""
        return sum(self._available()) * self.page_size

    def schedulable_size(self):
        """Return how many slots a balanced request can have: `cp_size` times what the shortest lane has."""
        return min(self._available(), default=0) * self.cp_size * self.page_size

    def alloc_pages_with_owners(self, owners):
        """Return the slots of one page for each entry of `owners`, owned by that rank, in request order.

        The first entry of a rank gets the first page taken from its lane, and so on. None, and no lane has changed,
        when any lane is too short. Raises ValueError for an owner outside `[0, cp_size)`, TypeError for what are no
        integers. O(n + c log P).
        """
        if self.copier is not None:
            # A copy: what is chosen for must be what is taken for.
            return self._send(self.copier, np.array(self._ranks(owners)))
        view = view_of(owners)
        array = None
        if view.size < 0:
            array = self._ranks(owners)
            view = view_of(array)
        count: cython.longlong = view.size
        demand = new_scratch(2 * (self.cp_size + count))
        ranks = part(demand, self.cp_size)
        try:
            if not self._count_demand(view.data, count, ranks, demand):
                raise self._no_rank(ranks[0])
            if not self._fits(demand):
                return None
            slots = new_slots(count * self.page_size)
            result = tensor_of(slots, count * self.page_size)
            page_ids = part(slots, count * (self.page_size - 1))
            if not self._choose(ranks, count, demand, part(ranks, count), page_ids, True):
                return None
            expand(slots, count, self.page_size)
        finally:
            free_scratch(demand)
        return result

    def select_pages(self, owners):
        """Return the page ids that `alloc_pages_with_owners` would take, in request order, or None; nothing changes."""
        return self._selected(self._ranks(owners))

    def free(self, slots):
        """Give slots back, whole pages in any order; return how many slots were freed.

        The pages join the released sets of their lanes. `slots` is copied before this returns; a device tensor is
        waited for. Raises FreeError, having changed nothing, for a page that is out of range, reserved, incomplete,
        given twice, free or released already. O(n), or O(n log n) for slots that are not in the order of their pages.
        """
        return self._give_back(slots, "slots", self.page_size)

    def return_pages(self, page_ids):
        """Give pages back by their ids; return how many. As `free` otherwise."""
        return self._give_back(page_ids, "page_ids", 1)

    def merge_released(self):
        """Make the released pages of every lane free. O(c P / 64)."""
        rank: cython.longlong
        for rank in range(self.cp_size):
            self._lane(rank).merge()

    def compute_owner_lane_stats(self, owners):
        """Return (required, available, deficits) of a request, each a list of `cp_size` page counts.

        `available` counts free and released pages; a deficit is what a lane lacks.
        """
        return self._stats(owners, 0, 0)

    def compute_owner_lane_free_room_stats(self, owners, *, target_ratio, trigger_ratio):
        """Return (required, available, deficits) of a request that shall leave room in the lanes.

        A lane that keeps `ceil(capacity * trigger_ratio)` pages has no deficit; the deficit of another is what it lacks
        to keep `ceil(capacity * target_ratio)`. A ratio of 0 or less is no room; one that is not a finite number raises
        TypeError or ValueError.
        """
        target_room = self._room(target_ratio, "target_ratio")
        trigger_room = self._room(trigger_ratio, "trigger_ratio")
        return self._stats(owners, target_room, trigger_room)

    def compute_owner_lane_capacity_pages(self):
        """Return the pages of each lane, free or not."""
        return [self.physical_pages] * self.cp_size

    def snapshot(self):
        """Return the state of the pool: immutable, and equal by content to another of the same. O(c P)."""
        arrays: list = []
        row: cython.longlong = self._row_words()
        words = new_words(arrays, 2 * self.cp_size * row)
        rank: cython.longlong
        for rank in range(self.cp_size):
            self._lane(rank).free.copy_words_to(words_from(words, rank * row))
            self._lane(rank).released.copy_words_to(words_from(words, (self.cp_size + rank) * row))
        return LaneSnapshot(self.physical_pages, self.page_size, self.cp_size, arrays[0].tobytes())

    def restore(self, snapshot):
        """Bring the pool back to the state of a snapshot; what was handed out since is free again. O(c P).

        Raises TypeError for anything but a snapshot of an OwnerLaneAllocator, ValueError for one of another geometry.
        """
        if not isinstance(snapshot, LaneSnapshot):
            raise TypeError(f"snapshot must be a LaneSnapshot, not {type(snapshot).__name__}")
        theirs = (snapshot.physical_pages, snapshot.page_size, snapshot.cp_size)
        ours = (self.physical_pages, self.page_size, self.cp_size)
        if theirs != ours:
            raise ValueError(
                "the snapshot is of {} pages of {} slots in {} lanes, the pool has {} of {} in {}".format(
                    *theirs, *ours
                )
            )
        rows = 2 * self.cp_size
        found = np.frombuffer(snapshot.page_bits, np.uint64)
        if found.size != rows * self._row_words():
            expected = rows * self._row_words()
            raise ValueError(f"the snapshot is damaged: it has {found.size} words of page bits, not {expected}")
        table = found.reshape(rows, self._row_words())
        bits = np.unpackbits(table.view(np.uint8), axis=1, bitorder="little")
        if bits[:, self.physical_pages :].any() or (table[: self.cp_size] & table[self.cp_size :]).any():
            raise ValueError("the snapshot is damaged: it has pages beyond the last, or in both sets")
        words = words_in(found)
        lanes = _new_lanes(self.physical_pages, self.cp_size)
        rank: cython.longlong
        for rank in range(self.cp_size):
            lane = cython.cast(Lane, lanes[rank])
            lane.free.add_words(words_from(words, rank * self._row_words()))
            lane.released.add_words(words_from(words, (self.cp_size + rank) * self._row_words()))
        self.lanes = lanes

    def clear(self):
        """Make the pool as newly built: every page free, none released. O(c P)."""
        rank: cython.longlong
        for rank in range(self.cp_size):
            lane = self._lane(rank)
            lane.released.remove_all()
            lane.free.remove_all()
            lane.free.add_run(0, self.physical_pages)

    def check(self):
        """Assert every invariant of the books, saying what was found where one fails. O(c P)."""
        for rank, (free, released) in enumerate(self._books()):
            check_lane(rank, free, released)

    def __reduce__(self):
        return _rebuilt, (type(self), self.device, self.selection, self.snapshot())

    @property
    def _steps(self):
        """What calls have cost so far: summaries that were read or recomputed."""
        steps: cython.longlong = 0
        rank: cython.longlong
        for rank in range(self.cp_size):
            steps += self._lane(rank).free.steps + self._lane(rank).released.steps
        return steps

    def _books(self):
        """Return a copy of the state of each lane's sets, which belong together."""
        while True:
            before = self.snapshot()
            books: list = [None] * self.cp_size
            for rank in range(self.cp_size):
                books[rank] = self._lane(rank).free.state(), self._lane(rank).released.state()
            # Making the copies may have run a finaliser that called the pool.
            if self.snapshot() == before:
                return books

    def _available(self):
        """Return how many pages each lane has."""
        available: list = [0] * self.cp_size
        for rank in range(self.cp_size):
            available[rank] = self._lane(rank).available()
        return available

    def _available_among(self, page_ids):
        """Tell of each of some pages whether it is a free or released page of this pool."""
        page: cython.longlong
        pages = page_ids.tolist()
        found: list = [False] * len(pages)
        for i in range(len(pages)):
            page = pages[i]
            if 1 <= page <= self.physical_pages * self.cp_size:
                found[i] = bool(self._lane((page - 1) % self.cp_size).holds((page - 1) // self.cp_size))
        return np.array(found, np.bool_)

    def _send(self, copier, ranks):
        """Return the slots of pages on the device; nothing has changed where one of the steps fails.

        The slots are on their way before the pages are taken. Where another thread was faster, pages are chosen anew.
        """
        while True:
            page_ids = self._selected(ranks)
            if page_ids is None:
                return None
            slots = (page_ids[:, np.newaxis] * self.page_size + np.arange(self.page_size)).ravel()
            result = copier.send(slots)
            if self._take_selected(ranks, page_ids):
                return result

    def _room(self, ratio, name):
        room = self.physical_pages * real_number(ratio, name)
        if room > INT64_MAX:
            raise ValueError(f"{name} must be less, but is {ratio}")
        return math.ceil(room) if room > 0 else 0

    def _stats(self, owners, target_room, trigger_room):
        required = self._required(self._ranks(owners))
        available = self._available()
        deficits: list = [0] * len(required)
        for rank, (needs, has) in enumerate(zip(required, available, strict=True)):
            if has < needs + trigger_room:
                deficits[rank] = max(0, needs + target_room - has)
        return required, available, deficits

    def _no_rank(self, owner):
        return ValueError(f"owners must be ranks from 0 to {self.cp_size - 1}, but include {owner}")

    def _lane(self, rank):
        return cython.cast(Lane, self.lanes[rank])

    def _row_words(self):
        """Return in how many words a snapshot has the bits of a set."""
        return (self.physical_pages + CHUNK_PAGES - 1) // CHUNK_PAGES * CHUNK_WORDS

    def _ranks(self, owners):
        """Return owners as an int64 array."""
        array = packed(owners)
        if array is None:
            try:
                array = as_int64(owners, "owners")
            except BeyondInt64Error as error:
                raise self._no_rank(error.value) from None
        return array

    def _count_demand(self, owners, count, ranks, demand):
        """Copy owners, which somebody may write to meanwhile, and count what they ask of each lane.

        False where one is no rank, which is then the first.
        """
        i: cython.longlong
        for i in range(self.cp_size):
            demand[i] = 0
        for i in range(count):
            ranks[i] = owners[i]
            if ranks[i] < 0 or ranks[i] >= self.cp_size:
                ranks[0] = ranks[i]
                return False
            demand[ranks[i]] += 1
        return True

    def _fits(self, demand):
        """Tell whether each lane has what is asked of it."""
        i: cython.longlong
        fits: cython.bint = True
        for i in range(self.cp_size):
            fits = fits and demand[i] <= self._lane(i).available()
        return fits

    def _choose(self, ranks, count, demand, scratch, page_ids, commit):
        """Write a page for each rank into `page_ids`, in request order, and take them where `commit`.

        False, and nothing has changed, where a lane is too short. `scratch` has room for as many pages, and one for
        each lane.
        """
        chosen = part(scratch, self.cp_size)
        first: cython.longlong = 0
        i: cython.longlong
        if not self._fits(demand):
            return False
        for i in range(self.cp_size):
            # Where the lane's next page is.
            scratch[i] = first
            if demand[i] > 0:
                lane = self._lane(i)
                from_free: cython.longlong = lane.choose(part(chosen, first), demand[i], self.contiguous)
                if commit:
                    lane.take(part(chosen, first), demand[i], from_free)
                first += demand[i]
        for i in range(count):
            page_ids[i] = chosen[scratch[ranks[i]]] * self.cp_size + ranks[i] + 1
            scratch[ranks[i]] += 1
        return True

    def _selected(self, owners):
        """Return the page ids that an int64 array of owners would get, or None."""
        view = view_of(owners)
        count: cython.longlong = view.size
        demand = new_scratch(2 * (self.cp_size + count))
        ranks = part(demand, self.cp_size)
        try:
            if not self._count_demand(view.data, count, ranks, demand):
                raise self._no_rank(ranks[0])
            if not self._fits(demand):
                return None
            page_ids = new_ids(count)
            if not self._choose(ranks, count, demand, part(ranks, count), ids_in(page_ids), False):
                return None
        finally:
            free_scratch(demand)
        return page_ids

    def _take_selected(self, owners, page_ids):
        """Take the pages that were chosen for owners, if those are what they would get now."""
        view = view_of(owners)
        count: cython.longlong = view.size
        i: cython.longlong
        taken: cython.bint = False
        again = new_scratch(2 * self.cp_size + 3 * count)
        demand = part(again, count)
        ranks = part(demand, self.cp_size)
        scratch = part(ranks, count)
        wanted = ids_in(page_ids)
        if self._count_demand(view.data, count, ranks, demand) and self._choose(
            ranks, count, demand, scratch, again, False
        ):
            taken = True
            for i in range(count):
                taken = taken and again[i] == wanted[i]
            if taken:
                self._choose(ranks, count, demand, scratch, again, True)
        free_scratch(again)
        return taken

    def _required(self, owners):
        """Return how many pages an int64 array of owners asks of each lane."""
        view = view_of(owners)
        i: cython.longlong
        demand = new_scratch(self.cp_size + view.size)
        ranks = part(demand, self.cp_size)
        try:
            if not self._count_demand(view.data, view.size, ranks, demand):
                raise self._no_rank(ranks[0])
            required = [0] * self.cp_size
            for i in range(self.cp_size):
                required[i] = demand[i]
        finally:
            free_scratch(demand)
        return required

    def _pages(self, released):
        """Return the logical ids of the free or of the released pages, lane by lane, ascending, as a tensor."""
        total: cython.longlong = 0
        written: cython.longlong = 0
        i: cython.longlong
        rank: cython.longlong
        while True:
            for rank in range(self.cp_size):
                total += self._set(rank, released).free
            ids = new_slots(total)
            result = tensor_of(ids, total)
            # Making the result may have run a finaliser that called the pool.
            for rank in range(self.cp_size):
                total -= self._set(rank, released).free
            if total == 0:
                break
            total = 0
        for rank in range(self.cp_size):
            found: cython.longlong = self._set(rank, released).lowest_pages(
                part(ids, written), self._set(rank, released).free
            )
            for i in range(written, written + found):
                ids[i] = ids[i] * self.cp_size + rank + 1
            written += found
        return result

    def _set(self, rank, released):
        """Return the free or the released set of a rank."""
        return self._lane(rank).released if released else self._lane(rank).free

    def _assign(self, name, page_ids, released):
        """Replace the free or the released sets."""
        # A copy: what is checked must be what is taken.
        pages = np.sort(as_int64(page_ids, name))
        outside = pages[(pages < 1) | (pages > self.num_pages)]
        if outside.size:
            raise ValueError(f"{name} must be page ids from 1 to {self.num_pages}, but include {outside[0]}")
        twice = repeated(pages)
        if twice.size:
            raise ValueError(f"{name} must not repeat a page, but page {twice[0]} is repeated")
        ids = ids_in(pages)
        count: cython.longlong = pages.size
        i: cython.longlong
        for i in range(count):
            if self._set((ids[i] - 1) % self.cp_size, not released).holds((ids[i] - 1) // self.cp_size):
                raise ValueError(f"{name} must not overlap the other set, but page {ids[i]} is in it")
        for i in range(self.cp_size):
            self._set(i, released).remove_all()
        for i in range(count):
            self._set((ids[i] - 1) % self.cp_size, released).add_unmeasured((ids[i] - 1) // self.cp_size)

    def _give_back(self, values, name, page_size):
        view = view_of(values)
        array = None
        if view.size < 0:
            array = packed(values)
            if array is None:
                array = page_ids_as_int64(values, name, page_size)
            view = view_of(array)
        count: cython.longlong = view.size // page_size
        freed: object = view.size
        page_ids = new_scratch(count)
        accepted: cython.bint = (
            count * page_size == view.size
            and pages_of(view.data, count, page_size, page_ids)
            and self._accept(page_ids, count)
        )
        free_scratch(page_ids)
        if accepted:
            return freed
        if array is None:
            array = page_ids_as_int64(values, name, page_size)
        ids, incomplete, twice = pages_in_any_order(array, page_size)
        freed = array.size
        while incomplete.size or twice.size or not self._accept(ids_in(ids), ids.size):
            # Where none is found another thread has just taken the page that was free: the pool is asked again.
            faults = faults_of(ids, incomplete, twice, range(1, self.num_pages + 1), self._available_among)
            if faults is not None:
                raise faults
        return freed

    def _accept(self, page_ids, count):
        """Release pages, all of them or none: False where one is no page, not allocated or named twice."""
        i: cython.longlong
        for i in range(count):
            page: cython.longlong = page_ids[i] - 1
            fits: cython.bint = 0 <= page < self.physical_pages * self.cp_size
            if fits:
                lane = self._lane(page % self.cp_size)
                fits = not lane.holds(page // self.cp_size)
            if not fits:
                for marked in range(i):
                    page = page_ids[marked] - 1
                    self._lane(page % self.cp_size).released.unmark(page // self.cp_size)
                return False
            # So that it is found where it is named twice.
            lane.released.mark(page // self.cp_size)
        for i in range(count):
            page = page_ids[i] - 1
            self._lane(page % self.cp_size).released.add_unmeasured(page // self.cp_size)
        return True


def _new_lanes(pages, ranks):
    """Return so many lanes that hold nothing."""
    # Not a comprehension: where a list cannot grow, Cython (3.3.1) frees what was to come into it twice.
    lanes: list = [None] * ranks
    for rank in range(ranks):
        lanes[rank] = Lane(pages)
    return lanes


def _rebuilt(kind, device, selection, snapshot):
    """Build the pool of a snapshot: what pickle and copy make of an allocator."""
    pool = kind(snapshot.physical_pages, snapshot.page_size, snapshot.cp_size, device=device, selection=selection)
    pool.restore(snapshot)
    return pool
