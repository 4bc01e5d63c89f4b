# What crosses between C and numpy or torch: results that go out, integers that come in.

cimport numpy as cnp
from cpython.long cimport PyLong_AsLongLongAndOverflow
from libc.stdint cimport int64_t

from kvpool._dlpack cimport DLTensor

cdef struct Int64View:
    # Borrowed from the object that it is a view of; the size is -1 where that is no contiguous int64 memory of the host.
    int64_t* data
    int64_t size

# Memory for a result of `size` slots, which `tensor_of` makes a torch.int64 tensor that owns just that.
cdef int64_t* new_slots(int64_t size) except NULL
cdef object tensor_of(int64_t* slots, int64_t size)

cdef object new_ids(int64_t size)
cdef inline int64_t* ids_in(object array) noexcept:
    return <int64_t*> cnp.PyArray_DATA(<cnp.ndarray> array)
cdef void keep_first(object array, int64_t size) noexcept

cdef int64_t* new_scratch(int64_t count) except NULL
cdef void free_scratch(int64_t* scratch) noexcept

# An int that is exactly of that type and not negative, -1 for anything else.
cdef inline int64_t small_int(object value) noexcept:
    cdef int overflow = 0
    if type(value) is not int:
        return -1
    found = PyLong_AsLongLongAndOverflow(value, &overflow)
    return -1 if overflow or found < 0 else found

# Look at a contiguous one-dimensional tensor of the host, of any dtype, that holds something.
cdef bint tensor_in(object values, DLTensor* tensor) noexcept

cdef Int64View view_of(object values) noexcept
cdef object packed(object values)

cdef inline int64_t* part(int64_t* items, int64_t start) noexcept:
    return items + start
