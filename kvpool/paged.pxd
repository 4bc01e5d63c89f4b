from libc.stdint cimport int64_t

from kvpool._crossings cimport (
    Int64View,
    free_scratch,
    ids_in,
    new_ids,
    new_scratch,
    new_slots,
    packed,
    part,
    small_int,
    tensor_of,
    view_of,
)
from kvpool._free_pages cimport FREE, HELD, TAKEN, FreePages
from kvpool._outstanding cimport Outstanding
from kvpool._sort cimport sort_pages
from kvpool._vector cimport expand, pages_of

cdef enum:
    FIFO = 0
    LIFO = 1
    SORTED = 2
    # A request of `alloc_extend` as it is copied: its prefix, its length and its last slot.
    PREFIX = 0
    LENGTH = 1
    LAST = 2
    FIELDS = 3


cdef extern from *:
    # More than there is memory for.
    int64_t MOST_SLOTS "(INT64_C(1) << 60)"


cdef class PagedAllocator:
    cdef readonly int64_t num_pages
    cdef readonly int64_t page_size
    cdef readonly int64_t size
    cdef readonly object device
    cdef readonly str order
    cdef int ordered
    cdef object copier
    cdef FreePages pages
    # The frees of the group that is open, if one is: (whether they came as slots, page ids, the slots where partial).
    cdef list group
    # The frees that are outstanding, in the order of the calls; where there is no first, the last is of no account.
    cdef Outstanding first
    cdef Outstanding last
    cdef object __weakref__
    cdef dict __dict__

    cdef bint _last_fits(self, int64_t last, int64_t place) noexcept
    cdef bint _measure(self, const int64_t* requests, int64_t count, int64_t* demand) noexcept
    cdef void _fill(self, const int64_t* requests, int64_t count, const int64_t* pages, int64_t* slots) noexcept
    cdef int64_t _decode(self, object after, object last, int64_t count, int64_t* slots, int64_t* scratch) except -1
    cdef void _open(self, int64_t* slots, const int64_t* opening, const int64_t* pages, int64_t count) noexcept
    cdef int64_t _places(
        self, const int64_t* lengths, const int64_t* lasts, int64_t count, int64_t* slots, int64_t* opening
    ) noexcept
    cdef object _send_pages(self, int64_t count)
    cdef object _send_extended(self, const int64_t* requests, int64_t count, int64_t pages, int64_t size, int64_t bound,
        object moves)
    cdef object _send_decoded(self, object after, object last_slots)
    cdef object _chosen(self, int64_t count, int64_t bound)
    cdef bint _take_chosen(self, object page_ids, int64_t bound, object changes) except -1
    cdef bint _room(self, int64_t pages, int64_t bound) except -1
    cdef object _settle(self, bint wait)
    cdef bint _settle_first(self, bint wait) except -1
    cdef void _append(self, Outstanding entry) noexcept
    cdef object _take_back(self, object values, bint by_slots, bint partial, bint deferred)
    cdef object _end_group(self, list group, Outstanding entry)
    cdef object _give_back(self, object values, bint by_slots, bint partial, Outstanding entry)
    cdef object _give_rows(self, object rows, object counts)
    cdef int64_t _pages_in(self, int64_t* slots, int64_t count, int64_t* pages) noexcept
    cdef bint _accept(
        self, int64_t* pages, int64_t count, int64_t* spare, bint by_slots, bint partial, object slots,
        Outstanding entry
    ) except -1
    cdef int64_t _join_group(self, list group, int64_t* joined, bint by_slots) except -1


cdef object _vector(object values, object name)
