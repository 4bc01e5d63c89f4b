"""The order in which pages became free: first freed, first reused."""

import cython

if not cython.compiled:
    from kvpool._plain import MARKED, NOWHERE, copy_bytes, copy_int32, copy_uint32, new_bytes, new_int32, new_uint32

    BLOCK_PAGES, NOTHING = 16, -1


@cython.no_gc
@cython.final
@cython.cclass
class FifoOrder:
    """Pages in the order in which they came, of which any can leave: a list of blocks, each a cache line of page ids.

    Coming:  `append`, `prepend`, `append_all`
    Leaving: `pop` (the first), `take` and `remove` (from anywhere), `remove_all`
    Reading: `holds`, `length`, `ascending_head`, `as_bytes`, `state`

    A page knows its place, so that it leaves from the middle by becoming NOTHING there. Two neighbours that fit into
    one block are merged at once, other than the first and the last block, so that blocks are half full on average:
    their number is bounded, and so is what a call passes over to find pages. `steps` counts places read, written or
    passed over. The first `num_reserved` pages never come. Arguments are trusted, except where it says otherwise.
    """

    def __init__(self, num_pages: cython.longlong, num_reserved: cython.longlong = 0):
        self.arrays = []
        self.num_pages = num_pages
        self.num_reserved = num_reserved
        self.blocks = 2 * num_pages // (BLOCK_PAGES + 1) + 4
        self.steps = 0
        self.pages = new_int32(self.arrays, self.blocks * BLOCK_PAGES)
        self.live = new_bytes(self.arrays, self.blocks)
        self.next = new_int32(self.arrays, self.blocks)
        self.previous = new_int32(self.arrays, self.blocks)
        self.place = new_uint32(self.arrays, num_pages)
        self.remove_all()

    def holds(self, page):
        """Tell whether a page is in the order."""
        return self.place[page] != NOWHERE

    def append(self, pages, count):
        """Append pages, all of them or none: False where one cannot come, is in the order already or is named twice."""
        i: cython.longlong
        if not self._announce(pages, count):
            return False
        for i in range(count):
            self._put(pages[i])
        return True

    def prepend(self, pages, count):
        """Put pages before the first one, where they stand in the order given; all of them or none, as `append`."""
        i: cython.longlong
        if not self._announce(pages, count):
            return False
        for i in range(count):
            self._put_first(pages[count - 1 - i])
        return True

    def append_all(self):
        """Append every page that can come to an order that holds none, ascending."""
        page: cython.longlong
        for page in range(self.num_reserved, self.num_pages):
            self._put(page)

    def pop(self, pages, count):
        """Take the first `count` pages, which there are, out of the order and write them into `pages`."""
        found: cython.longlong = 0
        while found < count:
            block: cython.size_t = self.first
            start: cython.size_t = self.first_start
            left: cython.int = self.live[block]
            while found < count and left > 0:
                page: cython.int = self.pages[block * BLOCK_PAGES + start]
                start += 1
                if page >= 0:
                    self.place[page] = NOWHERE
                    pages[found] = page
                    found += 1
                    left -= 1
            self.steps += start - self.first_start
            self.length -= self.live[block] - left
            self.live[block] = left
            self.first_start = start
            if left == 0:
                self._drop_block(self.first)

    def take(self, pages, count):
        """Take pages out wherever they stand, all of them or none: False where one is not there or is named twice."""
        i: cython.longlong
        page: cython.longlong
        for i in range(count):
            page = pages[i]
            if page < 0 or page >= self.num_pages or self.place[page] >= MARKED:
                for marked in range(i):
                    self.place[pages[marked]] ^= MARKED
                return False
            self.place[page] ^= MARKED
        for i in range(count):
            self.place[pages[i]] ^= MARKED
        self.remove(pages, count)
        return True

    def remove(self, pages, count):
        """Take pages, all of them in the order, out of it wherever they stand."""
        i: cython.longlong
        for i in range(count):
            page: cython.size_t = pages[i]
            place: cython.size_t = self.place[page]
            block: cython.int = place // BLOCK_PAGES
            self.place[page] = NOWHERE
            self.pages[place] = NOTHING
            self.live[block] -= 1
            if self.live[block] == 0:
                self._drop_block(block)
            else:
                self._settle(block)
        self.steps += count
        self.length -= count

    def ascending_head(self, count):
        """Return the first page if it begins `count` pages of which each is its predecessor plus one, else -1.

        `count` is at least 1 and at most the length.
        """
        head: cython.longlong = -1
        found: cython.longlong = 0
        block: cython.int = self.first
        slot: cython.longlong = self.first_start
        while found < count:
            if slot == BLOCK_PAGES:
                block = self.next[block]
                slot = 0
            page: cython.longlong = self.pages[cython.cast(cython.longlong, block) * BLOCK_PAGES + slot]
            slot += 1
            self.steps += 1
            if page >= 0:
                if head < 0:
                    head = page
                elif page != head + found:
                    return -1
                found += 1
        return head

    def as_bytes(self, after, limit):
        """Return pages in their order as the bytes of an int32 array, at most `limit` of them.

        The first ones, or where `after` is not NOTHING those that follow that page: None where it is not in the order.
        """
        arrays: list = []
        most: cython.longlong = min(limit, self.length)
        pages = new_int32(arrays, most)
        found: cython.longlong = 0
        block: cython.int = self.first
        slot: cython.longlong = self.first_start
        if after != NOTHING:
            if after >= self.num_pages or self.place[after] == NOWHERE:
                return None
            block = self.place[after] // BLOCK_PAGES
            slot = self.place[after] % BLOCK_PAGES + 1
        while found < most and block != NOTHING:
            if slot >= (self.last_stop if block == self.last else BLOCK_PAGES):
                block = self.next[block]
                slot = 0
                continue
            page: cython.int = self.pages[cython.cast(cython.longlong, block) * BLOCK_PAGES + slot]
            slot += 1
            if page >= 0:
                pages[found] = page
                found += 1
        return arrays[0].tobytes()[: 4 * found]

    def remove_all(self):
        """Make the order empty."""
        page: cython.longlong
        for page in range(self.num_pages):
            self.place[page] = NOWHERE
        self.length = 0
        self.spare = NOTHING
        self.unused = 0
        self.first = NOTHING
        self.last = NOTHING
        self.first_start = 0
        self.last_stop = BLOCK_PAGES

    def state(self):
        """Return a copy of all that the order holds, for a check."""
        return {
            "num_pages": self.num_pages,
            "num_reserved": self.num_reserved,
            "length": self.length,
            "pages": copy_int32(self.pages, self.blocks * BLOCK_PAGES),
            "live": copy_bytes(self.live, self.blocks),
            "next": copy_int32(self.next, self.blocks),
            "previous": copy_int32(self.previous, self.blocks),
            "place": copy_uint32(self.place, self.num_pages),
            "first": self.first,
            "last": self.last,
            "first_start": self.first_start,
            "last_stop": self.last_stop,
            "spare": self.spare,
            "unused": self.unused,
        }

    def _announce(self, pages, count):
        """Mark pages that are about to come, all of them or none: False where one cannot, or is named twice."""
        i: cython.longlong
        page: cython.longlong
        for i in range(count):
            page = pages[i]
            if page < self.num_reserved or page >= self.num_pages or self.place[page] != NOWHERE:
                for marked in range(i):
                    self.place[pages[marked]] = NOWHERE
                return False
            # Not its place yet, which only blocks can give: for now a mark that finds a page named twice.
            self.place[page] = 0
        return True

    def _put(self, page):
        """Write a page behind the last one."""
        if self.last_stop == BLOCK_PAGES:
            self._add_block()
        place: cython.uint = cython.cast(cython.uint, self.last) * BLOCK_PAGES + self.last_stop
        self.pages[place] = page
        self.place[page] = place
        self.live[self.last] += 1
        self.last_stop += 1
        self.length += 1
        self.steps += 1

    def _put_first(self, page):
        """Write a page before the first one."""
        if self.first == NOTHING or self.first_start == 0:
            self._add_first_block()
        self.first_start -= 1
        place: cython.uint = cython.cast(cython.uint, self.first) * BLOCK_PAGES + self.first_start
        self.pages[place] = page
        self.place[page] = place
        self.live[self.first] += 1
        self.length += 1
        self.steps += 1

    def _new_block(self):
        """Return a block that holds no page and is not linked."""
        block: cython.int = self.spare
        if block == NOTHING:
            block = self.unused
            self.unused += 1
        else:
            self.spare = self.next[block]
        self.live[block] = 0
        return block

    def _add_first_block(self):
        """Link an empty block, to be filled from its end, before the first one."""
        block: cython.int = self._new_block()
        former: cython.int = self.first
        self.previous[block] = NOTHING
        self.next[block] = former
        self.first = block
        self.first_start = BLOCK_PAGES
        if former == NOTHING:
            self.last = block
            self.last_stop = BLOCK_PAGES
        else:
            self.previous[former] = block
            self._settle(former)

    def _add_block(self):
        """Link an empty block behind the last one."""
        block: cython.int = self._new_block()
        former: cython.int = self.last
        self.next[block] = NOTHING
        self.previous[block] = former
        if former == NOTHING:
            self.first = block
            self.first_start = 0
        else:
            self.next[former] = block
        self.last = block
        self.last_stop = 0
        if former != NOTHING:
            self._settle(former)

    def _drop_block(self, block):
        """Unlink a block that holds no page."""
        before: cython.int = self.previous[block]
        after: cython.int = self.next[block]
        if before == NOTHING:
            self.first = after
            self.first_start = 0
        else:
            self.next[before] = after
        if after == NOTHING:
            self.last = before
            self.last_stop = BLOCK_PAGES
        else:
            self.previous[after] = before
        self.next[block] = self.spare
        self.spare = block
        if before != NOTHING and after != NOTHING:
            self._settle(before)

    def _settle(self, block):
        """Merge a block with a neighbour that fits into it, unless one of them is the first or the last."""
        if block == self.first or block == self.last:
            return
        before: cython.int = self.previous[block]
        after: cython.int = self.next[block]
        if before != self.first and self.live[before] + self.live[block] <= BLOCK_PAGES:
            self._merge(before, block)
        elif after != self.last and self.live[block] + self.live[after] <= BLOCK_PAGES:
            self._merge(block, after)

    def _merge(self, block, following):
        """Move the pages of `following`, the next block, behind those of `block`, and unlink it."""
        base: cython.size_t = cython.cast(cython.size_t, block) * BLOCK_PAGES
        other: cython.size_t = cython.cast(cython.size_t, following) * BLOCK_PAGES
        slot: cython.size_t
        kept: cython.size_t = 0
        for slot in range(2 * BLOCK_PAGES):
            place: cython.size_t = base + slot if slot < BLOCK_PAGES else other + slot - BLOCK_PAGES
            page: cython.int = self.pages[place]
            if page >= 0:
                self.pages[base + kept] = page
                self.place[page] = base + kept
                kept += 1
        for slot in range(kept, BLOCK_PAGES):
            self.pages[base + slot] = NOTHING
        self.live[block] = kept
        self.steps += 2 * BLOCK_PAGES
        after: cython.int = self.next[following]
        self.next[block] = after
        self.previous[after] = block
        self.next[following] = self.spare
        self.spare = following
