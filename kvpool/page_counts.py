"""Reference counts of pages: who hands pages to several requests knows by them when nobody holds a page any more."""

import cython
import numpy as np

from kvpool import _signatures
from kvpool._arguments import as_int, page_ids_as_int64, positive_int
from kvpool._books import check_counts
from kvpool._signatures import ClassSignature
from kvpool.errors import CountError
from kvpool.snapshots import PageCountsSnapshot

if not cython.compiled:
    from kvpool._plain import copy_uint32, ids_in, keep_first, new_ids, new_uint32, packed, view_of

    MOST = 2**32 - 1

_MAX_PAGES = 2**31 - 1


@cython.no_gc_clear
@cython.cclass
class PageCounts:
    """How many holders each of `num_pages` pages has; page ids run from 0 to `num_pages - 1`, all counts begin at 0.

    Counting:        `retain`, `release`
    Reading:         `count`, `num_held`, `held_page_ids`
    The whole state: `snapshot`, `restore`, `clear`, `check`

    It stands beside any allocator: `retain` what was allocated or found in a prefix tree, and give the allocator back
    what `release` returns. Ids are a tensor, ndarray or list; a page may stand in a call several times and counts as
    often. A call with a wrong id raises CountError, which names it, and has changed nothing. Every method is atomic,
    whatever interrupts it. 4 bytes a page.

    >>> counts = PageCounts(num_pages=8)
    >>> counts.retain([3, 5]), counts.retain([5])
    (2, 1)
    >>> counts.release([5, 3])
    array([3])
    >>> counts.count(5)
    1
    """

    __signature__ = ClassSignature(_signatures.page_counts)

    def __cinit__(self):
        # Whoever forgets to call __init__ has counts of no pages.
        self.arrays = []

    def __init__(self, num_pages):
        pages = positive_int(num_pages, "num_pages")
        _check_number(pages)
        arrays: list = []
        counts = new_uint32(arrays, pages)
        # A call may be under way that has read how many there are.
        if getattr(self, "num_pages", 0) not in (0, pages):
            raise ValueError(f"the counts are built, of {self.num_pages} pages, and stay so")
        self._replace(arrays, counts, pages, 0)

    def retain(self, page_ids):
        """Add a holder to each page; return how many ids were given.

        Raises CountError for a page that is out of range or has 4,294,967,295 holders, TypeError for what are no
        integers. O(n).
        """
        return self._call(page_ids, False)

    def release(self, page_ids):
        """Take a holder from each page; return those whose count fell to 0, in the order given: an int64 ndarray.

        Raises CountError for a page that is out of range or has fewer holders than it stands in the call, TypeError
        for what are no integers. O(n).
        """
        return self._call(page_ids, True)

    def count(self, page_id):
        """Return how many holders a page has. A page that is out of range is a CountError."""
        page = as_int(page_id, "page_id")
        if not 0 <= page < self.num_pages:
            raise CountError({self._out_of_range(): [page]})
        return self.counts[page]

    def held_page_ids(self):
        """Return the ids of the pages that have a holder, ascending: a fresh int64 ndarray. O(N)."""
        return np.flatnonzero(self._copied())

    def snapshot(self):
        """Return an immutable snapshot of the counts, equal by content to another of the same counts. O(N)."""
        return PageCountsSnapshot(self._copied().tobytes())

    def restore(self, snapshot):
        """Bring the counts back to those of a snapshot. O(N).

        Raises TypeError for anything but a snapshot of a PageCounts, ValueError for one of another number of pages.
        """
        if not isinstance(snapshot, PageCountsSnapshot):
            raise TypeError(f"snapshot must be a PageCountsSnapshot, not {type(snapshot).__name__}")
        kept = np.frombuffer(snapshot.counts, np.uint32)
        if kept.size != self.num_pages:
            raise ValueError(f"the snapshot is of {kept.size} pages, the counts are of {self.num_pages}")
        arrays: list = []
        wide = kept.astype(np.int64)
        values = ids_in(wide)
        counts = new_uint32(arrays, kept.size)
        page: cython.longlong
        for page in range(kept.size):
            counts[page] = values[page]
        self._replace(arrays, counts, kept.size, np.count_nonzero(kept))

    def clear(self):
        """Make all counts 0. O(N)."""
        page: cython.longlong
        for page in range(self.num_pages):
            self.counts[page] = 0
        self.num_held = 0

    def check(self):
        """Assert that as many pages are held as is said. O(N)."""
        counts = copy_uint32(self.counts, self.num_pages)
        check_counts(counts, self.num_held)

    def __reduce__(self):
        return _rebuilt, (type(self), self.snapshot())

    def _copied(self):
        """Return a copy of all counts."""
        return np.asarray(copy_uint32(self.counts, self.num_pages), np.uint32)

    def _replace(self, arrays, counts, num_pages, num_held):
        """Put other counts in the place of these."""
        # Let go when all is in place: held by nobody else, it may run Python code as it goes.
        former: object = None if not cython.compiled else self.arrays
        self.arrays = arrays
        self.counts = counts
        self.num_pages = num_pages
        self.num_held = num_held
        del former

    def _call(self, page_ids, releasing):
        """Count the pages of a call, and return its result."""
        view = view_of(page_ids)
        array = None
        if view.size < 0:
            array = packed(page_ids)
            if array is None:
                array = page_ids_as_int64(page_ids, "page_ids", 1, CountError)
            view = view_of(array)
        result: object = new_ids(view.size) if releasing else view.size
        fallen: cython.longlong = 0
        while True:
            if releasing:
                fallen = self._subtract(view.data, view.size, ids_in(result))
            elif not self._add(view.data, view.size):
                fallen = -1
            if fallen >= 0:
                break
            if array is None:
                array = np.array(page_ids_as_int64(page_ids, "page_ids", 1, CountError))
                view = view_of(array)
                result = new_ids(view.size) if releasing else view.size
            faults = self._faults(array, releasing)
            # Where there are none another thread has just counted: the counts are asked again.
            if faults:
                raise CountError(faults)
            fallen = 0
        if releasing:
            keep_first(result, fallen)
        return result

    def _add(self, pages, size):
        """Add a holder to pages, all of them or none: False where one is out of range or has as many as can be."""
        newly: cython.longlong = 0
        i: cython.longlong
        for i in range(size):
            page: cython.longlong = pages[i]
            if page < 0 or page >= self.num_pages or self.counts[page] == MOST:
                for done in range(i):
                    self.counts[pages[done]] -= 1
                return False
            if self.counts[page] == 0:
                newly += 1
            self.counts[page] += 1
        self.num_held += newly
        return True

    def _subtract(self, pages, size, fallen):
        """Take a holder from pages, all or none; write those that have none left, and return how many, or -1."""
        found: cython.longlong = 0
        i: cython.longlong
        for i in range(size):
            page: cython.longlong = pages[i]
            if page < 0 or page >= self.num_pages or self.counts[page] == 0:
                for done in range(i):
                    self.counts[pages[done]] += 1
                return -1
            self.counts[page] -= 1
            if self.counts[page] == 0:
                fallen[found] = page
                found += 1
        self.num_held -= found
        return found

    def _faults(self, page_ids, releasing):
        """Return what is wrong with the pages of a call, as PagesError takes it."""
        pages, times = np.unique(page_ids, return_counts=True)
        counts = self._copied()
        in_range = (pages >= 0) & (pages < counts.size)
        outside, pages, times = pages[~in_range], pages[in_range], times[in_range]
        held = counts[pages].astype(np.int64)
        if releasing:
            wrong = {"not held": pages[held == 0], "held less often than released": pages[(held > 0) & (held < times)]}
        else:
            wrong = {f"held {MOST} times, which is the most": pages[held + times > MOST]}
        wrong[self._out_of_range()] = outside
        found = {}
        for reason in wrong:
            if wrong[reason].size:
                found[reason] = wrong[reason].tolist()
        return found

    def _out_of_range(self):
        return f"out of range, which is 0 to {self.num_pages - 1}"


def _rebuilt(kind, snapshot):
    """Build the counts of a snapshot: what pickle and copy make of them."""
    counts = kind(len(snapshot.counts) // 4)
    counts.restore(snapshot)
    return counts


def _check_number(num_pages):
    if num_pages > _MAX_PAGES:
        raise ValueError(f"num_pages must be at most {_MAX_PAGES}, but is {num_pages}")
