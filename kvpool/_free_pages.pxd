from libc.stdint cimport int32_t, int64_t, uint8_t

from kvpool._memory cimport copy_bytes, copy_int32, new_bytes, new_int32
from kvpool._page_set cimport PageSet

cdef enum:
    FIFO = 0
    LIFO = 1
    SORTED = 2
    # What a page is: handed out, free, given back and not free yet, or none to be handed out.
    TAKEN = 0
    FREE = 1
    HELD = 2
    RESERVED = 3


cdef class FreePages:
    cdef readonly int64_t num_pages
    cdef readonly int64_t length
    # How often the state has changed.
    cdef readonly int64_t changes
    cdef readonly list arrays
    cdef int order
    cdef uint8_t* states
    # The free pages, of which the first stands at `head`; not used in sorted order.
    cdef int32_t* ring
    cdef int64_t head
    # Used in sorted order only.
    cdef PageSet free
    cdef PageSet released
    cdef int64_t moved

    cdef int state_of(self, int64_t page) noexcept
    cdef bint mark(self, const int64_t* pages, int64_t count, int state) noexcept
    cdef void unmark(self, const int64_t* pages, int64_t count) noexcept
    cdef void give(self, const int64_t* pages, int64_t count) noexcept
    cdef void give_all(self) noexcept
    cdef bint give_free(self, const int64_t* pages, int64_t count) noexcept
    cdef bint choose(self, int64_t* pages, int64_t count, int64_t bound) noexcept
    cdef bint take(self, int64_t* pages, int64_t count, int64_t bound) noexcept
    cdef void merge_for(self, int64_t bound) noexcept
    cdef int64_t free_count(self) noexcept
    cdef int64_t steps(self) noexcept
    cdef void copy_to(self, int64_t* pages) noexcept
    cdef object state(self)

    cdef void _append(self, const int64_t* pages, int64_t count) noexcept
    cdef void _prepend(self, const int64_t* pages, int64_t count) noexcept
    cdef void _read_ring(self, int64_t* pages, int64_t count) noexcept
    cdef int64_t _read_set(self, PageSet pages_of, int64_t* pages, int64_t count) noexcept
    cdef void _read_both(self, int64_t* pages, int64_t count) noexcept
