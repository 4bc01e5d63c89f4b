from libc.stdint cimport int64_t, uint64_t

from kvpool._bits cimport FIRST_BIT, FULL_WORD, trailing_zeros
from kvpool._memory cimport copy_words, new_words

cdef enum:
    WORD_PAGES = 64
    MOST_LEVELS = 7


cdef class PageSet:
    cdef readonly int64_t num_pages
    cdef readonly int64_t count
    cdef readonly int64_t steps
    cdef readonly list arrays
    # All levels one behind the other, the pages' own first.
    cdef uint64_t* words
    cdef int64_t levels
    # Where each level begins in `words`, and where the last one ends.
    cdef int64_t starts[MOST_LEVELS + 1]

    cdef void add(self, int64_t page) noexcept
    cdef void add_all(self, int64_t start) noexcept
    cdef void take_lowest(self, int64_t* pages, int64_t count) noexcept
    cdef void move_to(self, PageSet other) noexcept
    cdef void remove_all(self) noexcept
    cdef int64_t next_from(self, int64_t page) noexcept
    cdef object state(self)

    cdef void _clear(self, int64_t word) noexcept
