from libc.stdint cimport int64_t

cdef void sort_pages(int64_t* pages, int64_t* scratch, int64_t count) noexcept
