from libc.stdint cimport int64_t

from kvpool._crossings cimport small_int
from kvpool.token_buffer cimport TokenBuffer


cdef class RequestTokens:
    cdef TokenBuffer tokens
    cdef int64_t origin_length
    cdef object __weakref__
