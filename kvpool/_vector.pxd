# The loops of _vector_loops.h for this machine's kind of CPU.

from libc.stdint cimport int32_t, int64_t

cdef void expand(int64_t* slots, int64_t count, int64_t page_size) noexcept
cdef bint pages_of(const int64_t* slots, int64_t count, int64_t page_size, int64_t* pages) noexcept
cdef int64_t common_prefix_32(const int32_t* a, const int32_t* b, int64_t count) noexcept
cdef int64_t common_prefix_64(const int64_t* a, const int64_t* b, int64_t count) noexcept
cdef int64_t common_prefix_mixed(const int32_t* a, const int64_t* b, int64_t count) noexcept
