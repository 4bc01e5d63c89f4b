from libc.stdint cimport int64_t

from kvpool._token_cells cimport (
    TokenView,
    view_of_cells,
    cells_in,
    code_of,
    copy_cells,
    int_at,
    new_cells,
    put_bits,
    put_int,
    view_on,
)


cdef class TokenBuffer:
    # The buffer, its memory, for how many tokens it may be written to (none where it came full), and how many it holds.
    cdef object array
    cdef void* cells
    cdef int64_t room
    cdef readonly int64_t _length
    cdef int code
    cdef readonly object dtype
    cdef object __weakref__

    cdef void _fill(self, object values, int64_t length, int64_t room)
    cdef bint _has_room(self, int64_t more) except -1
    cdef object _view(self, int64_t start, int64_t stop)
    cdef TokenView _token_view(self) noexcept
