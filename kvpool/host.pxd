from libc.stdint cimport int64_t

from kvpool._crossings cimport (
    Int64View,
    free_scratch,
    ids_in,
    keep_first,
    new_ids,
    new_scratch,
    new_slots,
    packed,
    part,
    small_int,
    tensor_of,
    view_of,
)
from kvpool._fifo_order cimport NOTHING, FifoOrder
from kvpool._run_index cimport RunIndex
from kvpool._sort cimport sort_pages
from kvpool._vector cimport expand, pages_of

cdef enum:
    FIFO = 0
    CONTIGUOUS = 1
    FEWEST_RUNS = 2
    ONE_RUN = 3
    FEW = 64
    # Where pages go: to the end of the free ones, before the first of them, or out of them.
    APPEND = 0
    PREPEND = 1
    TAKE = 2


cdef class HostAllocator:
    cdef readonly int64_t num_pages
    cdef readonly int64_t page_size
    cdef readonly int64_t num_reserved
    cdef readonly int64_t size
    cdef FifoOrder order
    cdef RunIndex index
    # Where a call of up to FEW pages puts them together; nothing stays there between calls.
    cdef int64_t few[FEW]
    cdef int64_t allocations
    cdef int64_t refusals
    cdef object __weakref__
    cdef dict __dict__

    cdef int _policy(self, object policy) except -1
    cdef int64_t _wanted(self, object num_pages) except -1
    cdef object _alloc(self, object need_size, int policy)
    cdef object _refuse(self)
    cdef bint _take(self, int64_t* pages, int64_t count, int policy) except -1
    cdef bint _take_by(self, int64_t* pages, int64_t* scratch, int64_t count, int policy) noexcept
    cdef void _take_found(self, int64_t start, int64_t* pages, int64_t count) noexcept
    cdef bint _remove_one_run_each(self, int64_t* sizes, int64_t* starts, int64_t count) noexcept
    cdef void _take_fewest_runs(self, int64_t* pages, int64_t* scratch, int64_t count) noexcept
    cdef void _take_run(self, int64_t start, int64_t* pages, int64_t count) noexcept
    cdef object _move(self, object values, object name, int64_t page_size, int how)
    cdef bint _accept(self, int64_t* pages, int64_t count, int how) noexcept

cdef object _keep_runs(tuple result, int64_t count)
cdef int _end(object front) except -1
