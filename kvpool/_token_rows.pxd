from libc.stdint cimport int64_t

from kvpool._crossings cimport ids_in, new_ids
from kvpool._token_arrays cimport (
    TokenView,
    behind,
    cells_of,
    copy_tokens,
    kind_of,
    new_tokens,
    put_number,
    swap_tokens,
    widen,
    within,
)

cdef enum:
    NOT_IN_USE = -1
    LINE = 16


cdef class TokenRows:
    cdef readonly int64_t count
    cdef readonly int64_t max_tokens
    # Where each row begins in `tokens` is its number times the width.
    cdef readonly int64_t width
    cdef int kind
    cdef readonly object tokens
    cdef readonly object lengths
    cdef object named
    cdef object sampled
    cdef object appended
    # How many appends there have been, those that were refused included.
    cdef int64_t appends
    # The same in memory.
    cdef void* cells
    cdef int64_t* length
    cdef int64_t* last_append
    cdef int64_t* named_row
    cdef int64_t* sampled_token

    cdef bint in_use(self, int64_t row) noexcept
    cdef int64_t lowest_not_in_use(self) noexcept
    cdef void put(self, int64_t row, TokenView tokens) noexcept
    cdef void write(self, int64_t row, int64_t offset, TokenView tokens) noexcept
    cdef void truncate(self, int64_t row, int64_t length) noexcept
    cdef void swap(self, int64_t a, int64_t b) noexcept
    cdef void move(self, int64_t source, int64_t target) noexcept
    cdef void remove(self, int64_t row) noexcept
    cdef bint append(self, TokenView rows, TokenView tokens) noexcept
    cdef int64_t _size(self) noexcept
