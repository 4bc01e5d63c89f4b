from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t

from kvpool._memory cimport copy_bytes, copy_int32, copy_uint32, new_bytes, new_int32, new_uint32

cdef enum:
    BLOCK_PAGES = 16
    # What stands in a block where a page has left, and before the first block and after the last.
    NOTHING = -1

cdef extern from *:
    # The place of a page that is in no block.
    uint32_t NOWHERE "UINT32_MAX"
    # What no place of a page in a block reaches.
    uint32_t MARKED "(UINT32_MAX / 2 + 1)"


cdef class FifoOrder:
    cdef readonly int64_t num_pages
    cdef readonly int64_t num_reserved
    cdef readonly int64_t blocks
    cdef readonly int64_t length
    cdef readonly int64_t steps
    cdef readonly list arrays
    # A block is BLOCK_PAGES page ids in a row of `pages`, `live` of them pages and the others NOTHING.
    cdef int32_t* pages
    cdef uint8_t* live
    cdef int32_t* next
    cdef int32_t* previous
    # Where each page stands in `pages`.
    cdef uint32_t* place
    cdef int32_t first
    cdef int32_t last
    # The pages before this one have left the first block, and none has yet been put at or after that one of the last.
    cdef int32_t first_start
    cdef int32_t last_stop
    # Blocks that were used once and are linked by `next`, and the first that never was.
    cdef int32_t spare
    cdef int32_t unused

    cdef bint holds(self, size_t page) noexcept
    cdef bint append(self, int64_t* pages, int64_t count) noexcept
    cdef bint prepend(self, int64_t* pages, int64_t count) noexcept
    cdef bint take(self, int64_t* pages, int64_t count) noexcept
    cdef void pop(self, int64_t* pages, int64_t count) noexcept
    cdef void remove(self, int64_t* pages, int64_t count) noexcept
    cdef int64_t ascending_head(self, int64_t count) noexcept
    cdef object as_bytes(self, int64_t after, int64_t limit)
    cdef void remove_all(self) noexcept
    cdef void append_all(self) noexcept
    cdef object state(self)

    cdef bint _announce(self, int64_t* pages, int64_t count) noexcept
    cdef void _put(self, int32_t page) noexcept
    cdef void _put_first(self, int32_t page) noexcept
    cdef int32_t _new_block(self) noexcept
    cdef void _add_first_block(self) noexcept
    cdef void _add_block(self) noexcept
    cdef void _drop_block(self, int32_t block) noexcept
    cdef void _merge(self, int32_t block, int32_t following) noexcept
    cdef void _settle(self, int32_t block) noexcept
