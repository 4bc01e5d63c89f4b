"""The host tier (L2): one pool of pages, handed out in FIFO order or by runs of consecutive pages."""

import math

import cython
import numpy as np

from kvpool import _signatures
from kvpool._arguments import (
    INT64_MAX,
    as_int,
    as_int64,
    count,
    faults_of,
    page_ids_as_int64,
    pages_for,
    pages_in_any_order,
    positive_int,
    real_number,
)
from kvpool._books import check_order, check_run_index
from kvpool._signatures import ClassSignature
from kvpool.errors import FreeError, TakeError, name_pages
from kvpool.snapshots import HostSnapshot, HostStats

if not cython.compiled:
    from kvpool._fifo_order import NOTHING, FifoOrder
    from kvpool._plain import (
        expand,
        free_scratch,
        ids_in,
        keep_first,
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
    from kvpool._run_index import RunIndex
    from kvpool._sort import sort_pages

    FIFO, CONTIGUOUS, FEWEST_RUNS, ONE_RUN = 0, 1, 2, 3
    APPEND, PREPEND, TAKE = 0, 1, 2
    FEW = 64

_MAX_PAGES = 2**30 - 1
_POLICIES = {"fifo": 0, "contiguous": 1, "fewest_runs": 2, "one_run": 3}


@cython.no_gc_clear
@cython.cclass
class HostAllocator:
    """A pool of `num_pages` pages of `page_size` token slots; page ids run from 0 to `num_pages - 1`.

    The first `num_reserved` pages are never handed out: `num_pages` and `size` include them, `available_size` does not.

    Allocation, in slots:  `alloc`, `alloc_contiguous_preferred`, `alloc_fewest_runs`, `free`
    Allocation, in pages:  `alloc_pages`, `alloc_runs`, `alloc_runs_many`, `take_pages`, `return_pages`
    What is free:          `available_size`, `free_page_ids`, `largest_run`
    The whole state:       `snapshot`, `restore`, `clear`, `resize`, `stats`, `check`

    `num_pages`, `page_size` and `size` (slots of the whole pool, free or not) say what was built. Results are fresh and
    own exactly their own elements: torch.int64 tensors of slots, each page's slots ascending, or int64 ndarrays of page
    ids. A request that does not fit returns None. Every method is atomic, whatever interrupts it, and a call that
    raises has changed nothing; only its result can be lost, where a signal handler raises after the call is done and
    before its result is bound. Costs are given for n pages of a request and N pages of the pool, and are bounded: what
    happened to a pool before makes no call of `alloc`, `free` or `return_pages` dearer.

    >>> pool = HostAllocator(num_pages=4, page_size=2)
    >>> pool.alloc(4)
    tensor([0, 1, 2, 3])
    >>> pool.free([2, 3])
    2
    >>> pool.free_page_ids()
    array([2, 3, 1])
    >>> pool.alloc_contiguous_preferred(6) is None, pool.alloc_fewest_runs(6)
    (False, None)
    """

    __signature__ = ClassSignature(_signatures.host_allocator)

    def __cinit__(self):
        # Whoever forgets to call __init__ has a pool of no pages.
        self.page_size = 1
        self.order = FifoOrder(0)
        self.index = RunIndex(0)

    def __init__(self, num_pages, page_size=64, *, num_reserved=0):
        pages = positive_int(num_pages, "num_pages")
        slots = positive_int(page_size, "page_size")
        reserved = count(num_reserved, "num_reserved")
        _check_geometry(pages, slots, reserved)
        order = FifoOrder(pages, reserved)
        index = RunIndex(pages)
        order.append_all()
        if reserved < pages:
            index.add_run(reserved, pages)
        # A call may be under way that has read the geometry.
        if getattr(self, "num_pages", 0) and (
            self.num_pages != pages or self.page_size != slots or self.num_reserved != reserved
        ):
            raise ValueError(
                f"the pool is built, of {self.num_pages} pages of {self.page_size} slots, "
                f"{self.num_reserved} of them reserved, and stays so"
            )
        if not cython.compiled:
            self.few = new_scratch(FEW)
            self.allocations = self.refusals = 0
        self.num_reserved = reserved
        self.num_pages = pages
        self.page_size = slots
        self.size = pages * slots
        self.order = order
        self.index = index

    @classmethod
    def from_size_gb(cls, size_gb, *, bytes_per_token=100_000, page_size=64):
        """Build the pool that `size_gb` (1e9 bytes) of host memory holds, rounded down to whole pages.

        >>> HostAllocator.from_size_gb(220).num_pages
        34375
        """
        token_bytes = positive_int(bytes_per_token, "bytes_per_token")
        page_bytes = token_bytes * positive_int(page_size, "page_size")
        # More bytes than a float counts are more than any pool has.
        size = real_number(size_gb, "size_gb") * 1e9 / min(page_bytes, 10**300)
        if size > _MAX_PAGES:
            raise ValueError(f"size_gb must hold at most {_MAX_PAGES} pages of {page_bytes} bytes, but is {size_gb}")
        num_pages = math.floor(size)
        if num_pages < 1:
            raise ValueError(f"size_gb must hold at least one page of {page_bytes} bytes, but is {size_gb}")
        return cls(num_pages, page_size)

    def available_size(self):
        """Return how many slots are free. O(1)."""
        return self.order.length * self.page_size

    def free_page_ids(self, *, after=None, limit=None):
        """Return the ids of the free pages in FIFO order, the next to be handed out first: a copy.

        With `after`, a free page, those that follow it; with `limit`, so many at most. A page that is not free is a
        ValueError, as is a negative limit; what is no integer a TypeError. O(the pages returned).
        """
        page: cython.longlong = NOTHING
        most: cython.longlong = INT64_MAX
        if limit is not None:
            most = min(count(limit, "limit"), INT64_MAX)
        if after is not None:
            page = min(max(as_int(after, "after"), NOTHING), INT64_MAX)
        # Held here: what the copy is made with may run a finaliser that restores the pool.
        order = self.order
        found = order.as_bytes(page, most) if after is None or page != NOTHING else None
        if found is None:
            raise ValueError(f"after must be a free page, which {after} is not")
        return np.frombuffer(found, np.int32).astype(np.int64)

    def largest_run(self):
        """Return the length of the longest run of free pages, in pages. O(log N)."""
        return self.index.longest_run()

    def alloc(self, need_size):
        """Return the slots of the first pages in FIFO order, `need_size` slots in all; None if they do not fit. O(n).

        Raises ValueError for a size that is negative or not whole pages, TypeError for one that is no integer.
        """
        return self._alloc(need_size, FIFO)

    def alloc_contiguous_preferred(self, need_size):
        """Return `need_size` slots in one run where one is free, else as `alloc`; None if they do not fit.

        The first pages in FIFO order are preferred if they are one ascending run; then the lowest-addressed run that is
        long enough, from its low end. The pages that stay free keep their order. Errors as `alloc`. O(n + log N), and
        more where chunks of 512 pages have changed since the last search: O(1) for each of them.
        """
        return self._alloc(need_size, CONTIGUOUS)

    def alloc_fewest_runs(self, need_size):
        """Return `need_size` slots in as few runs as any choice of pages has, ascending; None if they do not fit.

        The smallest run that is long enough, from its low end (the lowest on a tie). Where there is none, the largest
        runs whole while each fits in what is still needed, and the remainder from the smallest unused run that holds
        it. The pages that stay free keep their order. Errors as `alloc`. O(log N) to find a run of up to 64 pages and
        O(N / 512) for a longer one, and O(n log n + r log N) for r runs; changed chunks cost as above.
        """
        return self._alloc(need_size, FEWEST_RUNS)

    def alloc_pages(self, num_pages, policy="fifo"):
        """Return `num_pages` page ids by a policy; None if they do not fit.

        "fifo", "contiguous" and "fewest_runs" are the methods for slots, at their cost without the slots; "one_run" is
        the smallest run that is long enough, from its low end (the lowest on a tie), and None where no run is. A fresh
        int64 ndarray in the order of the method.
        Raises ValueError for a negative number or an unknown policy, TypeError for a number that is no integer.
        """
        taking: cython.int = self._policy(policy)
        wanted: cython.longlong = self._wanted(num_pages)
        if wanted > self.order.length:
            return self._refuse()
        page_ids = new_ids(wanted)
        return page_ids if self._take(ids_in(page_ids), wanted, taking) else self._refuse()

    def alloc_runs(self, num_pages, policy="fewest_runs"):
        """Return what `alloc_pages` would as transfer descriptors: (starts, lengths) of its runs, int64 ndarrays.

        >>> starts, lengths = HostAllocator(num_pages=8).alloc_runs(3)
        >>> starts.tolist(), lengths.tolist()
        ([0], [3])
        """
        taking: cython.int = self._policy(policy)
        wanted: cython.longlong = self._wanted(num_pages)
        if wanted > self.order.length:
            return self._refuse()
        # How many runs there are is known once the pages are taken: until then there is room for as many as pages.
        result = new_ids(wanted), new_ids(wanted)
        if not self._take(ids_in(result[0]), wanted, taking):
            return self._refuse()
        _keep_runs(result, wanted)
        return result

    def alloc_runs_many(self, num_pages, policy="fewest_runs"):
        """Return the (starts, lengths) of many requests, as `alloc_runs` of each in turn; None if one does not fit.

        `num_pages` is a list, ndarray or tensor: the pages of each request. All are served, or nothing changes. Raises
        ValueError for a negative number, or one that no int64 holds, and for an unknown policy, TypeError for what are
        no integers. Costs what the calls would, without the crossings.

        >>> [lengths.tolist() for starts, lengths in HostAllocator(num_pages=8).alloc_runs_many([3, 0, 4])]
        [[3], [], [4]]
        """
        taking: cython.int = self._policy(policy)
        # A copy: nobody else may change what has been checked.
        requests = np.array(as_int64(num_pages, "num_pages"))
        sizes = ids_in(requests)
        count: cython.longlong = requests.size
        total: cython.longlong = 0
        largest: cython.longlong = 0
        i: cython.longlong
        for i in range(count):
            if sizes[i] < 0:
                raise ValueError(f"num_pages must not be negative, but include {sizes[i]}")
        for i in range(count):
            if sizes[i] > self.order.length - total:
                return self._refuse()
            total += sizes[i]
            largest = max(largest, sizes[i])
        results: list = [None] * count
        for i in range(count):
            results[i] = new_ids(sizes[i]), new_ids(sizes[i])
        scratch = new_scratch(max(largest, count))
        served: cython.bint = total <= self.order.length
        if served and taking == ONE_RUN:
            served = self._remove_one_run_each(sizes, scratch, count)
        for i in range(count if served else 0):
            pages = ids_in(cython.cast(tuple, results[i])[0])
            if taking == ONE_RUN:
                self._take_found(scratch[i], pages, sizes[i])
            else:
                self._take_by(pages, scratch, sizes[i], taking)
        free_scratch(scratch)
        if not served:
            return self._refuse()
        self.allocations += 1
        for i in range(count):
            _keep_runs(results[i], sizes[i])
        return results

    def take_pages(self, page_ids):
        """Take these very pages out of the free ones, all or none; return how many.

        Raises TakeError, having changed nothing, for a page that is not free, out of range, reserved or given twice;
        TypeError for what are no integers. O(n).
        """
        return self._move(page_ids, "page_ids", 1, TAKE)

    def free(self, slots, *, front=False):
        """Give slots back, whole pages in any order; return how many slots were freed.

        The pages join the end of the FIFO order by their first slot in the call, or with `front` its beginning: the
        first of them is then the next to be handed out. `slots` is copied before this returns; a device
        tensor is waited for. Raises FreeError, having changed nothing, for a page that is out of range, incomplete,
        given twice or already free; TypeError for what are no integers. O(n), or O(n log n) for slots that are not in
        the order of their pages.
        """
        return self._move(slots, "slots", self.page_size, _end(front))

    def return_pages(self, page_ids, *, front=False):
        """Give pages back by their ids; return how many. As `free` otherwise."""
        return self._move(page_ids, "page_ids", 1, _end(front))

    def snapshot(self):
        """Return the state of the pool: immutable, and equal by content to another of the same. O(N)."""
        order = self.order
        return HostSnapshot(order.num_pages, self.page_size, order.as_bytes(NOTHING, INT64_MAX), order.num_reserved)

    def restore(self, snapshot):
        """Bring the pool back to the state of a snapshot; what was handed out since is free again. O(N).

        Raises TypeError for anything but a snapshot of a HostAllocator, ValueError for one of another geometry.
        """
        if not isinstance(snapshot, HostSnapshot):
            raise TypeError(f"snapshot must be a HostSnapshot, not {type(snapshot).__name__}")
        theirs = (snapshot.num_pages, snapshot.page_size, snapshot.num_reserved)
        ours = (self.num_pages, self.page_size, self.num_reserved)
        if theirs != ours:
            raise ValueError(
                "the snapshot is of {} pages of {} slots with {} reserved, the pool has {} of {} with {}".format(
                    *theirs, *ours
                )
            )
        page_ids = np.frombuffer(snapshot.free_order, np.int32).astype(np.int64)
        order = FifoOrder(self.num_pages, self.num_reserved)
        index = RunIndex(self.num_pages)
        if not order.append(ids_in(page_ids), page_ids.size):
            raise ValueError("the snapshot is damaged: it repeats a page, or holds one that the pool has not")
        index.add_pages(ids_in(page_ids), page_ids.size)
        self.order = order
        self.index = index

    def stats(self):
        """Return figures of the pool as it is, and of the calls made since it was built. O(N / 64)."""
        index = self.index
        free: cython.longlong = index.free
        runs: cython.longlong = index.count_runs()
        longest: cython.longlong = index.longest_run()
        return HostStats(free, runs, longest, self.allocations, self.refusals)

    def resize(self, num_pages):
        """Make this a pool of `num_pages` pages: new ones join the end of the FIFO order, ascending. O(N).

        A smaller pool loses its last pages, which have to be free: else a ValueError names them and nothing changes.
        Snapshots of the pool as it was are of another geometry from then on. Errors of `num_pages` as on building.
        """
        pages = positive_int(num_pages, "num_pages")
        _check_geometry(pages, self.page_size, self.num_reserved)
        while True:
            former = self.order
            steps: cython.longlong = former.steps
            free = np.frombuffer(former.as_bytes(NOTHING, INT64_MAX), np.int32).astype(np.int64)
            in_use = np.setdiff1d(np.arange(max(pages, self.num_reserved), former.num_pages), free)
            if in_use.size:
                raise ValueError(f"{name_pages(in_use.tolist())} cannot go while in use")
            free = np.append(free[free < pages], np.arange(former.num_pages, pages))
            order = FifoOrder(pages, self.num_reserved)
            index = RunIndex(pages)
            added = ids_in(free)
            free_pages: cython.longlong = free.size
            # What was made may have run a finaliser that called the pool.
            if former is self.order and former.steps == steps:
                break
        order.append(added, free_pages)
        index.add_pages(added, free_pages)
        self.num_pages = pages
        self.size = pages * self.page_size
        self.order = order
        self.index = index

    def clear(self):
        """Make the pool as newly built: every page free, in ascending order. O(N)."""
        self.order.remove_all()
        self.order.append_all()
        self.index.remove_all()
        if self.num_reserved < self.num_pages:
            self.index.add_run(self.num_reserved, self.num_pages)

    def check(self):
        """Assert every invariant of the books, saying what was found where one fails. O(N)."""
        order, index = self._books()
        free = check_run_index(index, "host pool")
        check_order(order, free)

    def __reduce__(self):
        return _rebuilt, (type(self), self.snapshot())

    @property
    def _steps(self):
        """What calls have cost so far: places of the order and summaries that were read, written or passed over."""
        return self.order.steps + self.index.steps

    def _books(self):
        """Return a copy of the order's and the index's state, which belong together."""
        while True:
            steps: object = self._steps
            order = self.order
            index = self.index
            books = order.state(), index.state()
            # Making the copies may have run a finaliser that called the pool.
            if self._steps == steps:
                return books

    def _free_among(self, page_ids):
        """Tell of each of some pages whether it is a free page of this pool."""
        page: cython.longlong
        pages = page_ids.tolist()
        found: list = [False] * len(pages)
        for i in range(len(pages)):
            page = pages[i]
            found[i] = 0 <= page < self.num_pages and bool(self.index.holds(page))
        return np.array(found, np.bool_)

    def _policy(self, policy):
        """Return the number of a policy."""
        if policy == "fifo":
            return FIFO
        if not isinstance(policy, str) or policy not in _POLICIES:
            raise ValueError(f'policy must be "fifo", "contiguous", "fewest_runs" or "one_run", not {policy!r}')
        return _POLICIES[policy]

    def _wanted(self, num_pages):
        """Return a number of pages that is asked for; one beyond int64, which no pool has, as the largest."""
        wanted: cython.longlong = small_int(num_pages)
        return wanted if wanted >= 0 else min(count(num_pages, "num_pages"), INT64_MAX)

    def _alloc(self, need_size, policy):
        size: cython.longlong = small_int(need_size)
        count: cython.longlong = size // self.page_size
        if size < 0 or count * self.page_size != size:
            count = pages_for(need_size, self.page_size)
        if count > self.order.length:
            return self._refuse()
        slots = new_slots(count * self.page_size)
        result = tensor_of(slots, count * self.page_size)
        if not self._take(part(slots, count * (self.page_size - 1)), count, policy):
            return self._refuse()
        expand(slots, count, self.page_size)
        return result

    def _refuse(self):
        """Return what a request gets that does not fit."""
        self.refusals += 1

    def _take(self, pages, count, policy):
        """Take `count` pages and write them into `pages`; False, and nothing has changed, where they do not fit."""
        scratch = part(self.few, 0)
        if policy == FEWEST_RUNS and count > FEW:
            scratch = new_scratch(count)
        taken: cython.bint = self._take_by(pages, scratch, count, policy)
        if policy == FEWEST_RUNS and count > FEW:
            free_scratch(scratch)
        self.allocations += taken
        return taken

    def _take_by(self, pages, scratch, count, policy):
        """Take pages as `_take`, with room for as many in `scratch`."""
        start: cython.longlong = -1
        # Here rather than by the caller: making the result may have run a finaliser that took pages.
        if count > self.order.length:
            return False
        if count == 0:
            return True
        if policy == FEWEST_RUNS:
            self._take_fewest_runs(pages, scratch, count)
            return True
        if policy == ONE_RUN:
            start = self.index.smallest_run(count)
            if start < 0:
                return False
        if policy == CONTIGUOUS and count > 1 and self.order.ascending_head(count) < 0:
            start = self.index.lowest_run(count)
        if start >= 0:
            self._take_run(start, pages, count)
        else:
            self.order.pop(pages, count)
            self.index.remove_pages(pages, count)
        return True

    def _remove_one_run_each(self, sizes, starts, count):
        """Take a run for each request out of the index, write its start; False, and none, if one finds none."""
        served: cython.longlong = 0
        start: cython.longlong = 0
        while served < count:
            if sizes[served] > 0:
                start = self.index.smallest_run(sizes[served])
                if start < 0:
                    break
                self.index.remove_run(start, start + sizes[served])
            starts[served] = start
            served += 1
        if served == count:
            return True
        while served > 0:
            served -= 1
            if sizes[served] > 0:
                self.index.add_run(starts[served], starts[served] + sizes[served])
        return False

    def _take_run(self, start, pages, count):
        """Take the run of `count` pages that begins at `start`."""
        self._take_found(start, pages, count)
        self.index.remove_run(start, start + count)

    def _take_found(self, start, pages, count):
        """Take a run as `_take_run`, which is out of the index."""
        i: cython.longlong
        for i in range(count):
            pages[i] = start + i
        self.order.remove(pages, count)

    def _take_fewest_runs(self, pages, scratch, count):
        """Take the smallest run that holds all, or the largest whole and the rest from the smallest that holds it."""
        start: cython.longlong = self.index.smallest_run(count)
        if start >= 0:
            self._take_run(start, pages, count)
            return
        taken: cython.longlong = 0
        while taken < count and start < 0:
            length: cython.longlong = self.index.remove_largest_runs(part(pages, taken), count - taken)
            self.order.remove(part(pages, taken), length)
            taken += length
            if taken < count:
                start = self.index.smallest_run(count - taken)
        if start >= 0:
            self._take_run(start, part(pages, taken), count - taken)
        sort_pages(pages, scratch, count)

    def _move(self, values, name, page_size, how):
        error = TakeError if how == TAKE else FreeError
        view = view_of(values)
        array = None
        if view.size < 0:
            array = packed(values)
            if array is None:
                array = page_ids_as_int64(values, name, page_size, error)
            view = view_of(array)
        count: cython.longlong = view.size // page_size
        freed: object = view.size
        pages = part(self.few, 0) if count <= FEW else new_scratch(count)
        accepted: cython.bint = (
            count * page_size == view.size
            and pages_of(view.data, count, page_size, pages)
            and self._accept(pages, count, how)
        )
        if count > FEW:
            free_scratch(pages)
        if accepted:
            return freed
        if array is None:
            array = page_ids_as_int64(values, name, page_size, error)
        page_ids, incomplete, twice = pages_in_any_order(array, page_size)
        freed = array.size
        while incomplete.size or twice.size or not self._accept(ids_in(page_ids), page_ids.size, how):
            # Where none is found another thread has just changed the page's state: the pool is asked again.
            movable = range(self.num_reserved, self.num_pages)
            faults = faults_of(page_ids, incomplete, twice, movable, self._free_among, error)
            if faults is not None:
                raise faults
        return freed

    def _accept(self, pages, count, how):
        """Move pages into the free ones or out of them, all of them or none: False where one cannot be."""
        if how == TAKE:
            if not self.order.take(pages, count):
                return False
            self.index.remove_pages(pages, count)
            self.allocations += 1
            return True
        if not (self.order.append(pages, count) if how == APPEND else self.order.prepend(pages, count)):
            return False
        self.index.add_pages(pages, count)
        return True


def _keep_runs(result, count):
    """Replace `count` page ids, in the first of two arrays of that size, by their (starts, lengths)."""
    starts = ids_in(result[0])
    lengths = ids_in(result[1])
    runs: cython.longlong = 0
    i: cython.longlong
    for i in range(count):
        page: cython.longlong = starts[i]
        if runs > 0 and page == starts[runs - 1] + lengths[runs - 1]:
            lengths[runs - 1] += 1
        else:
            starts[runs] = page
            lengths[runs] = 1
            runs += 1
    keep_first(result[0], runs)
    keep_first(result[1], runs)


def _end(front):
    """Return at which end of the order pages shall join it."""
    if front is not False and front is not True:
        raise TypeError(f"front must be a bool, not {type(front).__name__}")
    return PREPEND if front else APPEND


def _rebuilt(kind, snapshot):
    """Build the pool of a snapshot: what pickle and copy make of an allocator."""
    options = {"num_reserved": snapshot.num_reserved} if snapshot.num_reserved else {}
    pool = kind(snapshot.num_pages, snapshot.page_size, **options)
    pool.restore(snapshot)
    return pool


def _check_geometry(num_pages, page_size, num_reserved):
    """Raise ValueError for a pool that is too large, or of which more is reserved than there is."""
    if num_pages > _MAX_PAGES:
        raise ValueError(f"num_pages must be at most {_MAX_PAGES}, but is {num_pages}")
    if num_pages * page_size > INT64_MAX:
        raise ValueError(f"{num_pages} pages of {page_size} slots are more slots than int64 counts")
    if num_reserved > num_pages:
        raise ValueError(f"num_reserved must be at most the {num_pages} pages, but is {num_reserved}")
