from libc.stdint cimport int64_t

from kvpool._crossings cimport small_int
from kvpool._token_arrays cimport (
    copy_tokens,
    kind_of,
    listed,
    may_be_seen,
    new_tokens,
    packed,
    place_of,
    put,
    put_all,
    read_only,
    token_at,
    view_of,
    writable,
)
from kvpool._tokens_input cimport readable


cdef class TokenBuffer:
    # Where the buffer is in memory, how many tokens there are, how many may be before a new one is needed, and their
    # kind: one cache line for `append`.
    cdef void* cells
    cdef int64_t length
    cdef int64_t capacity
    cdef int kind
    # The buffer itself.
    cdef object array
    cdef object __weakref__

    cdef object view(self, int64_t start, int64_t stop)
    cdef object ints(self, object start, object stop)
    cdef void shorten(self, int64_t length) noexcept
    cdef int _hold(self, object array, int64_t length) except -1
    cdef int _append_any(self, object token) except -1
    cdef int _reserve(self, int64_t count) except -1
    cdef object _readable(self, object tokens)
