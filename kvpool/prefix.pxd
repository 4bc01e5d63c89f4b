from libc.stdint cimport INT64_MAX, int64_t

from kvpool._crossings cimport small_int
from kvpool._token_arrays cimport NO_TOKENS, common_prefix, view_of
from kvpool.token_buffer cimport TokenBuffer

cdef int64_t _common_prefix_of_buffers(TokenBuffer a, TokenBuffer b, int64_t start, int64_t stop) except -2
cdef int64_t _common_prefix_of_arrays(object a, object b, int64_t start, int64_t stop) except -2
cdef object _array_of(object tokens)
