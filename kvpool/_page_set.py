"""A set of pages that knows its lowest."""

import cython

if not cython.compiled:
    from kvpool._plain import FIRST_BIT, FULL_WORD, copy_words, new_scratch, new_words, trailing_zeros

    WORD_PAGES, MOST_LEVELS = 64, 7


@cython.no_gc
@cython.final
@cython.cclass
class PageSet:
    """A set of page ids from 0 to `num_pages - 1`: a bit a page, and for every 64 words a word of which hold any.

    Adding:   `add`, `add_all`
    Removing: `take_lowest`, `move_to`, `remove_all`
    Reading:  `count`, `next_from`, `state`

    `steps` counts the words that were read or written, for tests of what a call costs. Arguments are trusted.
    """

    def __init__(self, num_pages: cython.longlong):
        self.arrays = []
        self.num_pages = num_pages
        self.count = 0
        self.steps = 0
        if not cython.compiled:
            self.starts = new_scratch(MOST_LEVELS + 1)
        words: cython.longlong = (num_pages + WORD_PAGES - 1) // WORD_PAGES
        self.levels = 1
        self.starts[0] = 0
        self.starts[1] = words
        while words > 1:
            words = (words + WORD_PAGES - 1) // WORD_PAGES
            self.starts[self.levels + 1] = self.starts[self.levels] + words
            self.levels += 1
        self.words = new_words(self.arrays, self.starts[self.levels])

    def add(self, page):
        """Add a page that is not in the set. O(log of the pages)."""
        level: cython.longlong = 0
        before: cython.ulonglong = 0
        self.count += 1
        while level < self.levels and before == 0:
            word: cython.longlong = self.starts[level] + page // WORD_PAGES
            before = self.words[word]
            self.words[word] = before | FIRST_BIT << (page % WORD_PAGES)
            page //= WORD_PAGES
            level += 1
        self.steps += level

    def add_all(self, start):
        """Add the pages from `start` on to a set that holds none. O(pages / 64)."""
        level: cython.longlong
        word: cython.longlong
        stop: cython.longlong = self.num_pages
        self.count = stop - start
        if start == stop:
            return
        for level in range(self.levels):
            for word in range(start // WORD_PAGES, (stop - 1) // WORD_PAGES + 1):
                self.words[self.starts[level] + word] = FULL_WORD
            self.words[self.starts[level] + start // WORD_PAGES] &= (FULL_WORD << (start % WORD_PAGES)) & FULL_WORD
            word = self.starts[level] + (stop - 1) // WORD_PAGES
            self.words[word] &= FULL_WORD >> (WORD_PAGES - 1 - (stop - 1) % WORD_PAGES)
            start //= WORD_PAGES
            stop = (stop - 1) // WORD_PAGES + 1

    def take_lowest(self, pages, count):
        """Take the lowest `count` pages, which there are, and write them into `pages`. O(count, log of the pages)."""
        found: cython.longlong = 0
        page: cython.longlong = 0
        while found < count:
            page = self.next_from(page)
            word: cython.longlong = page // WORD_PAGES
            bits: cython.ulonglong = self.words[word]
            while bits and found < count:
                pages[found] = word * WORD_PAGES + trailing_zeros(bits)
                bits &= bits - 1
                found += 1
            self.words[word] = bits
            if bits == 0:
                self._clear(word)
        self.count -= count

    def move_to(self, other):
        """Move all pages to another set, which holds none of them. O(pages moved, log of the pages)."""
        page: cython.longlong = self.next_from(0)
        while page >= 0:
            word: cython.longlong = page // WORD_PAGES
            bits: cython.ulonglong = self.words[word]
            while bits:
                other.add(word * WORD_PAGES + trailing_zeros(bits))
                bits &= bits - 1
            self.words[word] = 0
            self._clear(word)
            page = self.next_from(page)
        self.count = 0

    def remove_all(self):
        """Make the set empty. O(pages / 64)."""
        word: cython.longlong
        for word in range(self.starts[self.levels]):
            self.words[word] = 0
        self.count = 0

    def next_from(self, page):
        """Return the lowest page of the set from `page` on, or -1. O(log of the pages)."""
        level: cython.longlong = 0
        while level < self.levels:
            word: cython.longlong = self.starts[level] + page // WORD_PAGES
            if word >= self.starts[level + 1]:
                return -1
            self.steps += 1
            bits: cython.ulonglong = self.words[word] >> (page % WORD_PAGES)
            if bits:
                page += trailing_zeros(bits)
                while level > 0:
                    level -= 1
                    self.steps += 1
                    page = page * WORD_PAGES + trailing_zeros(self.words[self.starts[level] + page])
                return page
            page = page // WORD_PAGES + 1
            level += 1
        return -1

    def state(self):
        """Return a copy of all that the set holds, for a check."""
        starts: list = [0] * (self.levels + 1)
        level: cython.longlong
        for level in range(self.levels + 1):
            starts[level] = self.starts[level]
        return {
            "num_pages": self.num_pages,
            "count": self.count,
            "words": copy_words(self.words, self.starts[self.levels]),
            "starts": starts,
        }

    def _clear(self, word):
        """Let the levels above know of a word of the first that holds nothing any more."""
        level: cython.longlong = 1
        while level < self.levels:
            above: cython.longlong = self.starts[level] + word // WORD_PAGES
            self.words[above] &= FULL_WORD ^ (FIRST_BIT << (word % WORD_PAGES))
            self.steps += 1
            if self.words[above]:
                return
            word //= WORD_PAGES
            level += 1
