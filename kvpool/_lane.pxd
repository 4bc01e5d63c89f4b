from libc.stdint cimport int64_t

from kvpool._crossings cimport part
from kvpool._run_index cimport RunIndex


cdef class Lane:
    cdef readonly RunIndex free
    cdef readonly RunIndex released
    # What one request asks of the lane, and where its next page stands among those chosen for it.

    cdef int64_t available(self) noexcept
    cdef bint holds(self, int64_t page) noexcept
    cdef int64_t choose(self, int64_t* pages, int64_t count, bint contiguous) noexcept
    cdef void take(self, int64_t* pages, int64_t count, int64_t from_free) noexcept
    cdef void merge(self) noexcept
