from libc.stdint cimport int64_t

from kvpool._crossings cimport small_int
from kvpool._token_arrays cimport common_prefix, view_of
from kvpool.token_buffer cimport TokenBuffer

cdef int64_t _common_prefix_of_buffers(TokenBuffer a, TokenBuffer b) noexcept
cdef int64_t _common_prefix_of_arrays(object a, object b) except -1
cdef object _array_of(object tokens)
