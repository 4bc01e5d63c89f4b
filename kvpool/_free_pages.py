"""What each page of a pool is, and in which order the free ones are handed out."""

import cython

from kvpool._page_set import PageSet

if not cython.compiled:
    from kvpool._plain import copy_bytes, copy_int32, new_bytes, new_int32

    FIFO, LIFO, SORTED = 0, 1, 2
    TAKEN, FREE, HELD, RESERVED = 0, 1, 2, 3


@cython.no_gc
@cython.final
@cython.cclass
class FreePages:
    """Pages 1 to `num_pages`, each taken, free or held (given back and not free yet), in one of three orders.

    FIFO: given pages join behind the others. LIFO: they join in front, those of one call in their order. Both are a
    ring of page ids. SORTED: given pages are released, and the lowest free one goes first; where there are too few, all
    become free. Those are two sets, which change places once what was left of the first has been moved to the second:
    no call pays for what happened before.

    Giving:  `mark`, `unmark`, `give`, `give_all`, `give_free`
    Taking:  `take`, `choose`, `merge_for`
    Reading: `length` (pages free or released), `free_count`, `state_of`, `copy_to`, `changes`, `steps`, `state`

    Arguments are trusted, except where it says otherwise.
    """

    def __init__(self, num_pages: cython.longlong, order: cython.int):
        self.arrays = []
        self.num_pages = num_pages
        self.order = order
        self.length = 0
        self.changes = 0
        self.moved = 0
        self.head = 0
        self.free = None
        self.released = None
        self.states = new_bytes(self.arrays, num_pages + 1)
        self.states[0] = RESERVED
        self.ring = new_int32(self.arrays, 0 if order == SORTED else num_pages)
        if order == SORTED:
            self.free = PageSet(num_pages + 1)
            self.released = PageSet(num_pages + 1)

    def state_of(self, page):
        """Return what a page is, TAKEN for one that the pool has not."""
        return self.states[page] if 0 <= page <= self.num_pages else TAKEN

    def mark(self, pages, count, state):
        """Mark taken pages as free or held, all or none: False where one is not taken, is no page or is named twice.

        Free ones are in no order yet: `give` has to follow.
        """
        i: cython.longlong
        page: cython.longlong
        for i in range(count):
            page = pages[i]
            if page < 1 or page > self.num_pages or self.states[page] != TAKEN:
                self.unmark(pages, i)
                return False
            self.states[page] = state
        self.changes += 1
        return True

    def unmark(self, pages, count):
        """Make marked pages taken again."""
        i: cython.longlong
        for i in range(count):
            self.states[pages[i]] = TAKEN

    def give(self, pages, count):
        """Make marked pages free, in their order."""
        i: cython.longlong
        for i in range(count):
            self.states[pages[i]] = FREE
        if self.order == SORTED:
            for i in range(count):
                self.released.add(pages[i])
            self.length += count
        elif self.order == FIFO:
            self._append(pages, count)
        else:
            self._prepend(pages, count)
        self.changes += 1

    def give_all(self):
        """Make every page free, none of them released, in ascending order. O(pages)."""
        page: cython.longlong
        for page in range(1, self.num_pages + 1):
            self.states[page] = FREE
        self.length = self.num_pages
        self.head = 0
        if self.order == SORTED:
            self.released.remove_all()
            self.free.remove_all()
            self.free.add_all(1)
        else:
            for page in range(self.num_pages):
                self.ring[page] = page + 1
        self.changes += 1

    def give_free(self, pages, count):
        """Make taken pages free behind the others, none of them released: False where one cannot be."""
        i: cython.longlong
        if not self.mark(pages, count, FREE):
            return False
        if self.order == SORTED:
            for i in range(count):
                self.free.add(pages[i])
            self.length += count
        else:
            self._append(pages, count)
        return True

    def choose(self, pages, count, bound):
        """Write the pages that `take` would into `pages`; False where it would take none. Nothing changes."""
        if count > self.length:
            return False
        if self.order != SORTED:
            self._read_ring(pages, count)
        elif bound > self.free.count:
            self._read_both(pages, count)
        else:
            self._read_set(self.free, pages, count)
        return True

    def take(self, pages, count, bound):
        """Take the next `count` pages and write them into `pages`; False where there are not so many.

        `merge_for` comes before that, with a `bound` of at least `count`, also where there are not so many.
        """
        i: cython.longlong
        self.merge_for(bound)
        if count > self.length:
            return False
        if self.order == SORTED:
            self.free.take_lowest(pages, count)
        else:
            self._read_ring(pages, count)
            self.head += count
            if self.head >= self.num_pages:
                self.head -= self.num_pages
        for i in range(count):
            self.states[pages[i]] = TAKEN
        self.length -= count
        self.changes += 1
        return True

    def merge_for(self, bound):
        """In sorted order, make the released pages free where the free ones are fewer than `bound`. O(bound)."""
        if self.order == SORTED and bound > self.free.count and self.released.count > 0:
            self.free.move_to(self.released)
            self.free, self.released = self.released, self.free
            self.changes += 1

    def free_count(self):
        """Return how many pages are free without the released ones."""
        return self.free.count if self.order == SORTED else self.length

    def steps(self):
        """Return what calls have cost so far, in places that were read or written."""
        return self.moved + (self.free.steps + self.released.steps if self.order == SORTED else 0)

    def copy_to(self, pages):
        """Write all free pages in their order, released ones last and ascending, into `pages`."""
        if self.order == SORTED:
            free: cython.longlong = self._read_set(self.free, pages, self.free.count)
            i: cython.longlong
            page: cython.longlong = -1
            for i in range(free, self.length):
                page = self.released.next_from(page + 1)
                pages[i] = page
        else:
            self._read_ring(pages, self.length)

    def state(self):
        """Return a copy of all that is held, for a check."""
        return {
            "num_pages": self.num_pages,
            "order": self.order,
            "length": self.length,
            "states": copy_bytes(self.states, self.num_pages + 1),
            "ring": None if self.order == SORTED else copy_int32(self.ring, self.num_pages),
            "head": self.head,
            "free": self.free.state() if self.order == SORTED else None,
            "released": self.released.state() if self.order == SORTED else None,
        }

    def _append(self, pages, count):
        """Write pages behind the last one of the ring."""
        i: cython.longlong
        place: cython.longlong = self.head + self.length
        if place >= self.num_pages:
            place -= self.num_pages
        for i in range(count):
            self.ring[place] = pages[i]
            place += 1
            if place == self.num_pages:
                place = 0
        self.length += count
        self.moved += count

    def _prepend(self, pages, count):
        """Write pages before the first one of the ring."""
        i: cython.longlong
        self.head -= count
        if self.head < 0:
            self.head += self.num_pages
        place: cython.longlong = self.head
        for i in range(count):
            self.ring[place] = pages[i]
            place += 1
            if place == self.num_pages:
                place = 0
        self.length += count
        self.moved += count

    def _read_ring(self, pages, count):
        """Write the first `count` pages of the ring into `pages`."""
        i: cython.longlong
        straight: cython.longlong = min(count, self.num_pages - self.head)
        for i in range(straight):
            pages[i] = self.ring[self.head + i]
        for i in range(straight, count):
            pages[i] = self.ring[i - straight]
        self.moved += count

    def _read_set(self, pages_of, pages, count):
        """Write the lowest `count` pages of a set into `pages`; return how many."""
        i: cython.longlong
        page: cython.longlong = -1
        for i in range(count):
            page = pages_of.next_from(page + 1)
            pages[i] = page
        return count

    def _read_both(self, pages, count):
        """Write the lowest `count` pages of the free and the released ones into `pages`."""
        i: cython.longlong
        free: cython.longlong = self.free.next_from(0)
        released: cython.longlong = self.released.next_from(0)
        for i in range(count):
            if released < 0 or 0 <= free < released:
                pages[i] = free
                free = self.free.next_from(free + 1)
            else:
                pages[i] = released
                released = self.released.next_from(released + 1)
