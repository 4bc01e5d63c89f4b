from libc.stdint cimport int64_t, uint32_t

from kvpool._crossings cimport Int64View, ids_in, keep_first, new_ids, packed, view_of
from kvpool._memory cimport copy_uint32, new_uint32

cdef extern from *:
    # The most holders that a page can have.
    uint32_t MOST "UINT32_MAX"


cdef class PageCounts:
    cdef readonly int64_t num_pages
    # Pages that have a holder.
    cdef readonly int64_t num_held
    cdef uint32_t* counts
    cdef list arrays
    cdef object __weakref__
    cdef dict __dict__

    cdef void _replace(self, list arrays, uint32_t* counts, int64_t num_pages, int64_t num_held) noexcept
    cdef object _call(self, object page_ids, bint releasing)
    cdef bint _add(self, int64_t* pages, int64_t size) noexcept
    cdef int64_t _subtract(self, int64_t* pages, int64_t size, int64_t* fallen) noexcept
    cdef object _copied(self)
