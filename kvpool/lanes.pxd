from libc.stdint cimport int64_t, uint64_t

from kvpool._crossings cimport (
    Int64View,
    free_scratch,
    ids_in,
    new_ids,
    new_scratch,
    new_slots,
    packed,
    part,
    tensor_of,
    view_of,
)
from kvpool._lane cimport Lane
from kvpool._memory cimport new_words, words_from, words_in
from kvpool._run_index cimport CHUNK_PAGES, CHUNK_WORDS, RunIndex
from kvpool._vector cimport expand, pages_of


cdef class OwnerLaneAllocator:
    cdef readonly int64_t physical_pages
    cdef readonly int64_t page_size
    cdef readonly int64_t cp_size
    cdef readonly object device
    cdef readonly str selection
    cdef bint contiguous
    cdef object copier
    cdef list lanes
    cdef object __weakref__
    cdef dict __dict__

    cdef Lane _lane(self, int64_t rank)
    cdef RunIndex _set(self, int64_t rank, bint released)
    cdef int64_t _row_words(self) noexcept
    cdef object _ranks(self, object owners)
    cdef bint _count_demand(self, const int64_t* owners, int64_t count, int64_t* ranks, int64_t* demand) noexcept
    cdef bint _fits(self, const int64_t* demand) noexcept
    cdef bint _choose(
        self,
        const int64_t* ranks,
        int64_t count,
        const int64_t* demand,
        int64_t* scratch,
        int64_t* page_ids,
        bint commit,
    ) noexcept
    cdef object _selected(self, object owners)
    cdef bint _take_selected(self, object owners, object page_ids) except -1
    cdef object _required(self, object owners)
    cdef object _pages(self, bint released)
    cdef object _assign(self, object name, object page_ids, bint released)
    cdef object _give_back(self, object values, object name, int64_t page_size)
    cdef bint _accept(self, int64_t* page_ids, int64_t count) noexcept
