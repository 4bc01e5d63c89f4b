"""The pages of one rank."""

import cython

from kvpool._run_index import RunIndex

if not cython.compiled:
    from kvpool._plain import part


@cython.no_gc
@cython.final
@cython.cclass
class Lane:
    """A free set and a released set of physical pages, counted from 0; pages in neither are allocated.

    Arguments are trusted.
    """

    def __init__(self, physical_pages):
        self.free = RunIndex(physical_pages)
        self.released = RunIndex(physical_pages)

    def available(self):
        """Return how many pages are free or released."""
        return self.free.free + self.released.free

    def holds(self, page):
        """Tell whether a page is free or released."""
        return self.free.holds(page) or self.released.holds(page)

    def choose(self, pages, count, contiguous):
        """Write the pages that serve a demand, which the lane can, into `pages`; return how many of them are free.

        Where `contiguous`, the lowest stretch of the free set that serves it all, if there is one. Otherwise free
        pages, lowest first, and then released ones. Nothing is taken.
        """
        start: cython.longlong = self.free.lowest_run(count) if contiguous else -1
        if start >= 0:
            i: cython.longlong
            for i in range(count):
                pages[i] = start + i
            return count
        found: cython.longlong = self.free.lowest_pages(pages, count)
        if found < count:
            self.released.lowest_pages(part(pages, found), count - found)
        return found

    def take(self, pages, count, from_free):
        """Take chosen pages, the first `from_free` of them out of the free set and the others out of the released."""
        self.free.remove_pages(pages, from_free)
        self.released.remove_pages(part(pages, from_free), count - from_free)

    def merge(self):
        """Make the released pages free. O(pages / 64)."""
        if self.released.free > 0:
            self.free.add_words(self.released.words)
            self.released.remove_all()
