"""What crosses between C and numpy or torch, by the shortest way that the installed torch has.

A torch with DLPack's exchange table gives and takes tensors through it; for another one they go through numpy. Which of
the two is chosen once, at import.
"""

cimport numpy as cnp
from cpython.exc cimport PyErr_Clear
from cpython.list cimport PyList_GET_ITEM, PyList_GET_SIZE
from cpython.long cimport PyLong_AsLongLongAndOverflow, PyLong_CheckExact
from cpython.mem cimport PyMem_RawFree, PyMem_RawMalloc
from cpython.object cimport PyObject
from cpython.pycapsule cimport PyCapsule_GetPointer, PyCapsule_New, PyCapsule_SetDestructor
from cpython.ref cimport Py_DECREF, Py_INCREF
from cpython.tuple cimport PyTuple_GET_ITEM, PyTuple_GET_SIZE
from libc.stdint cimport uintptr_t

from kvpool._dlpack cimport (
    CODE_INT,
    DEVICE_CPU,
    DEVICE_CUDA_HOST,
    DLPACK_MAJOR,
    DLManagedTensorVersioned,
    DLPackExchangeAPI,
    DLTensor,
)

import numpy as np
import torch

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

cdef enum:
    ALIGNMENT = 64

cdef object INT64 = np.dtype(np.int64)

cdef struct Result:
    # What lies right before the slots of a result: DLPack's description of them.
    DLManagedTensorVersioned managed
    int64_t shape
    int64_t stride

cdef DLPackExchangeAPI* table = NULL
cdef object Tensor = torch.Tensor
cdef object from_numpy = torch.from_numpy


def use_exchange_table(bint wanted):
    """Use torch's exchange table where it has one that can be used, or never; return whether it is used."""
    global table
    table = NULL
    capsule = getattr(Tensor, "__dlpack_c_exchange_api__", None)
    if wanted and capsule is not None:
        found = <DLPackExchangeAPI*> PyCapsule_GetPointer(capsule, b"dlpack_exchange_api")
        while found != NULL and found.header.version.major != DLPACK_MAJOR:
            found = <DLPackExchangeAPI*> found.header.prev_api
        table = found
    return table != NULL


use_exchange_table(True)


cdef inline Result* _result_of(int64_t* slots) noexcept:
    return (<Result*> slots) - 1


cdef void _free_result(DLManagedTensorVersioned* managed) noexcept nogil:
    PyMem_RawFree(managed.manager_ctx)


cdef void _free_capsule(object capsule) noexcept:
    PyMem_RawFree(PyCapsule_GetPointer(capsule, NULL))


cdef int64_t* new_slots(int64_t size) except NULL:
    cdef size_t extra = sizeof(Result) + ALIGNMENT
    cdef uintptr_t address
    memory = PyMem_RawMalloc(<size_t> size * sizeof(int64_t) + extra) if size < 1 << 59 else NULL
    if memory == NULL:
        raise MemoryError(f"no memory for {size} slots")
    address = (<uintptr_t> memory + extra) // ALIGNMENT * ALIGNMENT
    slots = <int64_t*> address
    _result_of(slots).managed.manager_ctx = memory
    return slots


cdef object tensor_of(int64_t* slots, int64_t size):
    cdef Result* result = _result_of(slots)
    cdef DLTensor* tensor = &result.managed.dl_tensor
    cdef void* made = NULL
    if table == NULL:
        return from_numpy(_array_of(slots, size))
    result.shape = size
    result.stride = 1
    result.managed.version.major = DLPACK_MAJOR
    result.managed.version.minor = 0
    result.managed.deleter = _free_result
    result.managed.flags = 0
    tensor.data = slots
    tensor.device.device_type = DEVICE_CPU
    tensor.device.device_id = 0
    tensor.ndim = 1
    tensor.dtype.code = CODE_INT
    tensor.dtype.bits = 64
    tensor.dtype.lanes = 1
    tensor.shape = &result.shape
    tensor.strides = &result.stride
    tensor.byte_offset = 0
    # The memory is torch's from here on, also where this fails.
    table.managed_tensor_to_py_object_no_sync(&result.managed, &made)
    found = <object> made
    Py_DECREF(found)
    return found


cdef object _array_of(int64_t* slots, cnp.npy_intp size):
    """Return an ndarray that owns the memory of a result."""
    memory = _result_of(slots).managed.manager_ctx
    try:
        owner = PyCapsule_New(memory, NULL, NULL)
    except BaseException:
        PyMem_RawFree(memory)
        raise
    PyCapsule_SetDestructor(owner, _free_capsule)
    array = cnp.PyArray_SimpleNewFromData(1, &size, cnp.NPY_INT64, slots)
    cnp.set_array_base(array, owner)
    return array


cdef object new_ids(int64_t size):
    cdef cnp.npy_intp length = size
    Py_INCREF(INT64)
    return PyArray_NewFromDescr(&PyArray_Type, <PyArray_Descr*> <PyObject*> INT64, 1, &length, NULL, NULL, 0, NULL)


cdef void keep_first(object array, int64_t size) noexcept:
    """Give back what an ndarray has beyond its first `size` elements; nothing else refers to it yet."""
    cdef cnp.npy_intp length = size
    cdef cnp.PyArray_Dims dims
    dims.ptr = &length
    dims.len = 1
    try:
        cnp.PyArray_Resize(<cnp.ndarray> array, &dims, 0, cnp.NPY_CORDER)
    except BaseException:
        # Its memory stays larger than what it shows.
        cnp.PyArray_DIMS(<cnp.ndarray> array)[0] = length


cdef int64_t* new_scratch(int64_t count) except NULL:
    scratch = <int64_t*> PyMem_RawMalloc(<size_t> max(count, 1) * sizeof(int64_t))
    if scratch == NULL:
        raise MemoryError(f"no memory for {count} page ids")
    return scratch


cdef void free_scratch(int64_t* scratch) noexcept:
    PyMem_RawFree(scratch)


cdef bint tensor_in(object values, DLTensor* tensor) noexcept:
    if table == NULL or type(values) is not Tensor:
        return False
    if table.dltensor_from_py_object_no_sync(<void*> values, tensor) != 0:
        PyErr_Clear()
        return False
    return (
        tensor.ndim == 1
        and (tensor.device.device_type == DEVICE_CPU or tensor.device.device_type == DEVICE_CUDA_HOST)
        and (tensor.strides == NULL or tensor.strides[0] == 1 or tensor.shape[0] == 1)
        and tensor.shape[0] > 0
        and tensor.data != NULL
    )


cdef Int64View view_of(object values) noexcept:
    """Look at a contiguous int64 ndarray, or tensor of the host, in place."""
    cdef Int64View view
    cdef DLTensor tensor
    view.data = NULL
    view.size = -1
    if type(values) is Tensor:
        if (
            tensor_in(values, &tensor)
            and tensor.dtype.code == CODE_INT
            and tensor.dtype.bits == 64
            and tensor.dtype.lanes == 1
        ):
            view.data = <int64_t*> (<char*> tensor.data + tensor.byte_offset)
            view.size = tensor.shape[0]
    elif type(values) is cnp.ndarray:
        array = <cnp.ndarray> values
        if (
            cnp.PyArray_TYPE(array) == cnp.NPY_INT64
            and cnp.PyArray_NDIM(array) == 1
            and cnp.PyArray_ISCARRAY_RO(array)
        ):
            view.data = <int64_t*> cnp.PyArray_DATA(array)
            view.size = cnp.PyArray_DIM(array, 0)
    return view


cdef object packed(object values):
    """Return a list or tuple of Python ints as an int64 ndarray; None for another kind of object, or of element.

    One step: no Python code runs, so that nobody changes the list meanwhile.
    """
    cdef Py_ssize_t i, count
    cdef PyObject* item
    cdef int overflow = 0
    cdef bint is_list = type(values) is list
    if not is_list and type(values) is not tuple:
        return None
    # Made before the length is read: making it may run a finaliser.
    count = PyList_GET_SIZE(values) if is_list else PyTuple_GET_SIZE(values)
    array = new_ids(count)
    ids = ids_in(array)
    if count != (PyList_GET_SIZE(values) if is_list else PyTuple_GET_SIZE(values)):
        return None
    for i in range(count):
        item = <PyObject*> (PyList_GET_ITEM(values, i) if is_list else PyTuple_GET_ITEM(values, i))
        if not PyLong_CheckExact(<object> item):
            return None
        ids[i] = PyLong_AsLongLongAndOverflow(<object> item, &overflow)
        if overflow:
            return None
    return array
