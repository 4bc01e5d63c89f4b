from libc.stdint cimport int64_t

from kvpool._crossings cimport small_int
from kvpool.token_buffer cimport TokenBuffer


cdef class RequestTokens:
    # Origin and output, and how many of them are the origin.
    cdef TokenBuffer tokens
    cdef int64_t origin_length
    cdef object __weakref__

    cdef int _hold(self, TokenBuffer tokens, int64_t origin_length) except -1
