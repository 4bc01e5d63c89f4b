"""Memory that holds tokens, of any integer dtype, and the ways in and out of it."""

cimport numpy as cnp
from cpython.list cimport PyList_GET_ITEM, PyList_GET_SIZE
from cpython.long cimport PyLong_AsLongLongAndOverflow, PyLong_CheckExact
from cpython.object cimport PyObject
from cpython.ref cimport Py_INCREF
from cpython.tuple cimport PyTuple_GET_ITEM, PyTuple_GET_SIZE
from libc.stdint cimport int8_t, int16_t, int32_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcpy

from kvpool._crossings cimport tensor_in
from kvpool._dlpack cimport CODE_INT, DLTensor
from kvpool._vector cimport common_prefix_32, common_prefix_64, common_prefix_mixed

import numpy as np

cnp.import_array()

cdef extern from "numpy/arrayobject.h":
    ctypedef struct PyTypeObject:
        pass
    ctypedef struct PyArray_Descr:
        pass
    PyTypeObject PyArray_Type
    object PyArray_NewFromDescr(
        PyTypeObject* kind, PyArray_Descr* dtype, int dimensions, cnp.npy_intp* shape, cnp.npy_intp* strides,
        void* data, int flags, PyObject* like
    )

cdef list DTYPES = [np.dtype(f"{kind}{size}") for size in (1, 2, 4, 8) for kind in "iu"]


cdef dict CODES = {dtype: code for code, dtype in enumerate(DTYPES)}


cdef int code_of(object dtype) except -1:
    """Return the code of an integer dtype in native byte order."""
    return CODES[dtype]


cdef object new_cells(int64_t size, int code):
    """Return memory for so many tokens, an ndarray that owns it."""
    cdef cnp.npy_intp length = size
    dtype = DTYPES[code]
    Py_INCREF(dtype)
    return PyArray_NewFromDescr(&PyArray_Type, <PyArray_Descr*> <PyObject*> dtype, 1, &length, NULL, NULL, 0, NULL)


cdef void* cells_in(object array) noexcept:
    return cnp.PyArray_DATA(<cnp.ndarray> array)


cdef void put_bits(void* cells, int64_t position, int code, object token):
    """Write a Python int that is known to fit."""
    put(cells, position, code, <int64_t> <uint64_t> (token & 0xFFFF_FFFF_FFFF_FFFF))


cdef object int_at(void* cells, int64_t position, int code):
    """Return a token as a Python int."""
    if code == INT64:
        return (<int64_t*> cells)[position]
    if code == INT32:
        return (<int32_t*> cells)[position]
    if code == UINT64:
        return (<uint64_t*> cells)[position]
    if code == UINT32:
        return (<uint32_t*> cells)[position]
    if code == INT16:
        return (<int16_t*> cells)[position]
    if code == UINT16:
        return (<uint16_t*> cells)[position]
    if code == INT8:
        return (<int8_t*> cells)[position]
    return (<uint8_t*> cells)[position]


cdef void copy_cells(void* target, int64_t position, void* source, int64_t count, int code) noexcept:
    """Copy tokens of one dtype behind those that are at `target` already."""
    memcpy(cell(target, position, code), source, count * bytes_of(code))


cdef object packed_tokens(object tokens, int code):
    """Return a list or tuple of Python ints that fit as an ndarray; None for another kind of object, or of element.

    One step: no Python code runs, so that nobody changes the list meanwhile.
    """
    cdef Py_ssize_t i, count
    cdef int64_t value
    cdef int overflow = 0
    cdef void* cells
    cdef PyObject** items
    cdef bint is_list = type(tokens) is list
    if not is_list and type(tokens) is not tuple:
        return None
    count = PyList_GET_SIZE(tokens) if is_list else PyTuple_GET_SIZE(tokens)
    array = new_cells(count, code)
    cells = cells_in(array)
    # Made before the length is read again: making it may have run a finaliser.
    if count != (PyList_GET_SIZE(tokens) if is_list else PyTuple_GET_SIZE(tokens)):
        return None
    for i in range(count):
        item = <PyObject*> (PyList_GET_ITEM(tokens, i) if is_list else PyTuple_GET_ITEM(tokens, i))
        if not PyLong_CheckExact(<object> item):
            return None
        if not one_digit(<object> item, &value):
            value = PyLong_AsLongLongAndOverflow(<object> item, &overflow)
        if overflow or not fits(value, code):
            return None
        put(cells, i, code, value)
    return array


cdef object view_on(object owner, void* cells, int64_t start, int64_t stop, int code, bint writable):
    """Return the cells from `start` to `stop` as an ndarray that keeps their owner."""
    cdef cnp.npy_intp length = stop - start
    dtype = DTYPES[code]
    Py_INCREF(dtype)
    array = PyArray_NewFromDescr(
        &PyArray_Type, <PyArray_Descr*> <PyObject*> dtype, 1, &length, NULL, cell(cells, start, code),
        cnp.NPY_ARRAY_CARRAY if writable else cnp.NPY_ARRAY_CARRAY_RO, NULL
    )
    cnp.set_array_base(array, owner)
    return array


cdef TokenView view_of_cells(void* cells, int64_t size, int code) noexcept:
    cdef TokenView view
    view.cells = cells
    view.size = size if code == INT32 or code == INT64 else -1
    view.code = code
    return view


cdef TokenView tokens_in(object tokens) noexcept:
    """Look at the tokens of a contiguous ndarray, or tensor of the host, in place."""
    cdef TokenView view
    cdef DLTensor tensor
    cdef int kind
    view.cells = NULL
    view.size = -1
    view.code = 0
    if type(tokens) is cnp.ndarray:
        array = <cnp.ndarray> tokens
        if cnp.PyArray_NDIM(array) == 1 and cnp.PyArray_ISCARRAY_RO(array):
            kind = cnp.PyArray_TYPE(array)
            if kind == cnp.NPY_INT64:
                view.code = INT64
            elif kind == cnp.NPY_INT32:
                view.code = INT32
            else:
                return view
            view.cells = cnp.PyArray_DATA(array)
            view.size = cnp.PyArray_DIM(array, 0)
    elif tensor_in(tokens, &tensor) and tensor.dtype.lanes == 1:
        if tensor.dtype.code != CODE_INT or tensor.dtype.bits not in (32, 64):
            return view
        view.code = INT64 if tensor.dtype.bits == 64 else INT32
        view.cells = <char*> tensor.data + tensor.byte_offset
        view.size = tensor.shape[0]
    return view


cdef bint widen(TokenView view, int64_t* target) noexcept:
    """Copy int32 or int64 tokens to int64."""
    cdef int64_t i
    if view.code == INT64:
        memcpy(target, view.cells, view.size * sizeof(int64_t))
    else:
        for i in range(view.size):
            target[i] = (<int32_t*> view.cells)[i]
    return True


cdef int64_t common_cells(TokenView a, TokenView b, int64_t count) noexcept:
    """Return how many of their first `count` tokens two views, of int32 or int64, have in common."""
    if a.code == b.code:
        if a.code == INT32:
            return common_prefix_32(<int32_t*> a.cells, <int32_t*> b.cells, count)
        return common_prefix_64(<int64_t*> a.cells, <int64_t*> b.cells, count)
    if a.code == INT32:
        return common_prefix_mixed(<int32_t*> a.cells, <int64_t*> b.cells, count)
    return common_prefix_mixed(<int32_t*> b.cells, <int64_t*> a.cells, count)
