"""Memory of the books: numpy's own, so that what a pool holds is counted where every array's is."""

cimport numpy as cnp
from libc.string cimport memcpy

cnp.import_array()


cdef void* zeros(list arrays, Py_ssize_t count, Py_ssize_t itemsize) except NULL:
    cdef cnp.npy_intp size = count * itemsize
    array = cnp.PyArray_ZEROS(1, &size, cnp.NPY_UINT8, 0)
    arrays.append(array)
    return cnp.PyArray_DATA(<cnp.ndarray> array)


cdef object _copy(const void* items, cnp.npy_intp count, int kind):
    array = cnp.PyArray_EMPTY(1, &count, kind, 0)
    memcpy(cnp.PyArray_DATA(<cnp.ndarray> array), items, cnp.PyArray_NBYTES(<cnp.ndarray> array))
    return array


cdef object copy_words(uint64_t* items, Py_ssize_t count):
    return _copy(items, count, cnp.NPY_UINT64)


cdef object copy_bytes(uint8_t* items, Py_ssize_t count):
    return _copy(items, count, cnp.NPY_UINT8)


cdef object copy_int32(int32_t* items, Py_ssize_t count):
    return _copy(items, count, cnp.NPY_INT32)


cdef object copy_uint32(uint32_t* items, Py_ssize_t count):
    return _copy(items, count, cnp.NPY_UINT32)


cdef object copy_int64(int64_t* items, Py_ssize_t count):
    return _copy(items, count, cnp.NPY_INT64)
