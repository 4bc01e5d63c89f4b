from libc.stdint cimport int64_t

from kvpool._crossings cimport free_scratch, new_scratch, part
from kvpool._token_cells cimport (
    TokenView,
    cells_in,
    code_of,
    copy_cells,
    cell,
    fits,
    prefetch,
    put,
    tokens_in,
    view_on,
    widen,
)

cdef struct TokenRow:
    # How many tokens the row holds and may hold; the latter is 0 where it is not in use.
    int64_t length
    int64_t limit
    # The call to `append` that last named it.
    int64_t named

cdef inline TokenRow* rows_in(object array) noexcept:
    return <TokenRow*> cells_in(array)


cdef class TokenTable:
    cdef readonly int64_t max_requests
    cdef readonly int64_t max_tokens
    cdef readonly object dtype
    cdef object row_array
    cdef object tokens
    cdef TokenRow* rows
    cdef void* cells
    cdef int64_t stride
    cdef int64_t calls
    cdef int code
    cdef object __weakref__

    cdef bint _append(self, int64_t* rows, int64_t* tokens, int64_t count) noexcept
    cdef int64_t _used(self, object row) except -1
