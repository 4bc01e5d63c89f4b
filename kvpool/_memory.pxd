# Memory of the books is numpy's own, so that what a pool holds is counted where every array's is.

cimport numpy as cnp
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t

# Zeroed memory of `count` items, which lives as long as `arrays` does: the array it belongs to is appended.
cdef void* zeros(list arrays, Py_ssize_t count, Py_ssize_t itemsize) except NULL

cdef inline uint64_t* new_words(list arrays, Py_ssize_t count) except NULL:
    return <uint64_t*> zeros(arrays, count, sizeof(uint64_t))

cdef inline uint8_t* new_bytes(list arrays, Py_ssize_t count) except NULL:
    return <uint8_t*> zeros(arrays, count, sizeof(uint8_t))

cdef inline int32_t* new_int32(list arrays, Py_ssize_t count) except NULL:
    return <int32_t*> zeros(arrays, count, sizeof(int32_t))

cdef inline uint32_t* new_uint32(list arrays, Py_ssize_t count) except NULL:
    return <uint32_t*> zeros(arrays, count, sizeof(uint32_t))

cdef inline int64_t* new_int64(list arrays, Py_ssize_t count) except NULL:
    return <int64_t*> zeros(arrays, count, sizeof(int64_t))

# Fresh arrays of a copy of what is there, for snapshots and checks.
cdef object copy_words(uint64_t* items, Py_ssize_t count)
cdef object copy_bytes(uint8_t* items, Py_ssize_t count)
cdef object copy_int32(int32_t* items, Py_ssize_t count)
cdef object copy_uint32(uint32_t* items, Py_ssize_t count)
cdef object copy_int64(int64_t* items, Py_ssize_t count)

cdef inline uint64_t* words_from(uint64_t* words, Py_ssize_t start) noexcept:
    return words + start

cdef inline uint64_t* words_in(object array) noexcept:
    return <uint64_t*> cnp.PyArray_DATA(<cnp.ndarray> array)
