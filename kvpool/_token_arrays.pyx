"""Token ids in memory: how ndarrays, tensors and lists are read and views are made, through C's interfaces."""

cimport numpy as cnp
from cpython.list cimport PyList_GET_ITEM, PyList_GET_SIZE, PyList_New, PyList_SET_ITEM
from cpython.object cimport PyObject
from cpython.ref cimport Py_INCREF
from cpython.tuple cimport PyTuple_GET_ITEM, PyTuple_GET_SIZE

from kvpool._crossings cimport tensor_in
from kvpool._dlpack cimport CODE_INT, CODE_UINT, DLTensor
from kvpool._vector cimport common_prefix_32, common_prefix_64, common_prefix_mixed

cnp.import_array()

cdef int NUMPY_TYPES[8]
NUMPY_TYPES[INT8_TOKENS] = cnp.NPY_INT8
NUMPY_TYPES[INT16_TOKENS] = cnp.NPY_INT16
NUMPY_TYPES[INT32_TOKENS] = cnp.NPY_INT32
NUMPY_TYPES[INT64_TOKENS] = cnp.NPY_INT64
NUMPY_TYPES[UINT8_TOKENS] = cnp.NPY_UINT8
NUMPY_TYPES[UINT16_TOKENS] = cnp.NPY_UINT16
NUMPY_TYPES[UINT32_TOKENS] = cnp.NPY_UINT32
NUMPY_TYPES[UINT64_TOKENS] = cnp.NPY_UINT64


cdef int _kind(bint signed, Py_ssize_t size) noexcept:
    if size == 8:
        return INT64_TOKENS if signed else UINT64_TOKENS
    if size == 4:
        return INT32_TOKENS if signed else UINT32_TOKENS
    if size == 2:
        return INT16_TOKENS if signed else UINT16_TOKENS
    return INT8_TOKENS if signed else UINT8_TOKENS


cdef int kind_of(object dtype) except? -1:
    """Return the kind of token that an integer dtype is for."""
    return _kind(dtype.kind == "i", dtype.itemsize)


cdef TokenView view_of(object values) noexcept:
    """Look at a one-dimensional contiguous ndarray of integers, or tensor of the host, in place."""
    cdef TokenView view
    cdef DLTensor tensor
    cdef cnp.ndarray array
    view.cells = NULL
    view.size = 0
    view.kind = NO_TOKENS
    if type(values) is cnp.ndarray:
        array = <cnp.ndarray> values
        if cnp.PyArray_NDIM(array) == 1 and cnp.PyArray_ISCARRAY_RO(array) and cnp.PyArray_ISINTEGER(array):
            view.cells = cnp.PyArray_DATA(array)
            view.size = cnp.PyArray_DIM(array, 0)
            view.kind = _kind(cnp.PyArray_ISSIGNED(array), cnp.PyArray_ITEMSIZE(array))
    elif (
        tensor_in(values, &tensor)
        and tensor.dtype.lanes == 1
        and (tensor.dtype.code == CODE_INT or tensor.dtype.code == CODE_UINT)
        and tensor.dtype.bits >= 8
    ):
        view.cells = <char*> tensor.data + tensor.byte_offset
        view.size = tensor.shape[0]
        view.kind = _kind(tensor.dtype.code == CODE_INT, tensor.dtype.bits // 8)
    return view


cdef object new_tokens(int kind, int64_t size):
    """Return a new array of `size` tokens that nobody has written yet."""
    cdef cnp.npy_intp length = size
    return cnp.PyArray_EMPTY(1, &length, NUMPY_TYPES[kind], 0)


cdef void* cells_of(object array) noexcept:
    return cnp.PyArray_DATA(<cnp.ndarray> array)


cdef object writable(object array, int64_t start, int64_t stop):
    """Return a view of an array's tokens from `start` to `stop`, counted through all its rows."""
    cdef cnp.npy_intp length = stop - start
    cdef char* cells = <char*> cells_of(array) + start * cnp.PyArray_ITEMSIZE(<cnp.ndarray> array)
    view = cnp.PyArray_SimpleNewFromData(1, &length, cnp.PyArray_TYPE(<cnp.ndarray> array), cells)
    cnp.set_array_base(view, array)
    return view


cdef object read_only(object array, int64_t start, int64_t stop):
    view = writable(array, start, stop)
    cnp.PyArray_CLEARFLAGS(<cnp.ndarray> view, cnp.NPY_ARRAY_WRITEABLE)
    return view


cdef bint owns_its_cells(object array) noexcept:
    return cnp.PyArray_CHKFLAGS(<cnp.ndarray> array, cnp.NPY_ARRAY_OWNDATA)


cdef object listed(object array, int64_t start, int64_t stop):
    """Return an array's tokens from `start` to `stop` as a list of Python ints."""
    cdef int64_t i
    cdef void* cells = cells_of(array)
    cdef int kind = _kind(cnp.PyArray_ISSIGNED(<cnp.ndarray> array), cnp.PyArray_ITEMSIZE(<cnp.ndarray> array))
    # Whatever making it runs, the array is the caller's, and so stays.
    tokens = PyList_New(stop - start)
    for i in range(stop - start):
        token = token_at(cells, kind, start + i)
        Py_INCREF(token)
        PyList_SET_ITEM(tokens, i, token)
    return tokens


cdef object packed(object values, int kind):
    """Return a list or tuple of ints as a new array; None where one is no int, or none that the kind holds."""
    cdef Py_ssize_t count
    cdef bint is_list = type(values) is list
    if not is_list and type(values) is not tuple:
        return None
    count = PyList_GET_SIZE(values) if is_list else PyTuple_GET_SIZE(values)
    array = new_tokens(kind, count)
    # Nothing promises that making the array has run no finaliser.
    return array if put_all(cells_of(array), kind, 0, count, values) == count else None


cdef int64_t put_all(void* cells, int kind, int64_t place, int64_t room, object values) noexcept:
    """Write a list or tuple of ints into cells and return their number; -1 where they are not that, or do not fit.

    One step: no Python code runs, so that nobody changes the list meanwhile.
    """
    cdef Py_ssize_t i, count
    cdef PyObject* item
    cdef bint is_list = type(values) is list
    if not is_list and type(values) is not tuple:
        return -1
    count = PyList_GET_SIZE(values) if is_list else PyTuple_GET_SIZE(values)
    if count > room:
        return -1
    for i in range(count):
        item = <PyObject*> (PyList_GET_ITEM(values, i) if is_list else PyTuple_GET_ITEM(values, i))
        if not put(cells, kind, place + i, <object> item):
            return -1
    return count


cdef object converted(object values, int kind):
    """Return int32 tokens that are held in int64, or the other way round, as a new array; None for anything else.

    None too where a token does not fit.
    """
    cdef int64_t i, number
    cdef int64_t wrong = 0
    cdef int64_t* wide
    cdef int32_t* narrow
    cdef TokenView view = view_of(values)
    cdef int64_t size = view.size
    if not (view.kind == INT64_TOKENS and kind == INT32_TOKENS or view.kind == INT32_TOKENS and kind == INT64_TOKENS):
        return None
    array = new_tokens(kind, size)
    # Nothing promises that making the array has run no finaliser.
    view = view_of(values)
    if view.size != size:
        return None
    if kind == INT64_TOKENS:
        return array if widen(view, <int64_t*> cells_of(array)) else None
    if view.kind != INT64_TOKENS:
        return None
    wide = <int64_t*> view.cells
    narrow = <int32_t*> cells_of(array)
    for i in range(size):
        number = wide[i]
        narrow[i] = <int32_t> number
        wrong |= number ^ <int32_t> number
    return None if wrong else array


cdef bint put_rare(void* cells, int kind, int64_t place, int64_t number) noexcept:
    """As `put_number`, for the kinds that few use."""
    if kind == UINT64_TOKENS and number >= 0:
        (<uint64_t*> cells)[place] = <uint64_t> number
    elif kind == UINT32_TOKENS and number == <uint32_t> number:
        (<uint32_t*> cells)[place] = <uint32_t> number
    elif kind == UINT16_TOKENS and number == <uint16_t> number:
        (<uint16_t*> cells)[place] = <uint16_t> number
    elif kind == UINT8_TOKENS and number == <uint8_t> number:
        (<uint8_t*> cells)[place] = <uint8_t> number
    elif kind == INT16_TOKENS and number == <int16_t> number:
        (<int16_t*> cells)[place] = <int16_t> number
    elif kind == INT8_TOKENS and number == <int8_t> number:
        (<int8_t*> cells)[place] = <int8_t> number
    else:
        return False
    return True


cdef bint put_large(void* cells, int64_t place, object token) noexcept:
    """Write an int over int64's into a cell of UINT64_TOKENS; False where it is over uint64's as well."""
    cdef uint64_t number
    try:
        number = PyLong_AsUnsignedLongLong(token)
    except (OverflowError, MemoryError):
        return False
    (<uint64_t*> cells)[place] = number
    return True


cdef object token_at(void* cells, int kind, int64_t place):
    """Return a token as a Python int."""
    if kind == INT64_TOKENS:
        return (<int64_t*> cells)[place]
    if kind == INT32_TOKENS:
        return (<int32_t*> cells)[place]
    if kind == INT16_TOKENS:
        return (<int16_t*> cells)[place]
    if kind == INT8_TOKENS:
        return (<int8_t*> cells)[place]
    if kind == UINT64_TOKENS:
        return (<uint64_t*> cells)[place]
    if kind == UINT32_TOKENS:
        return (<uint32_t*> cells)[place]
    if kind == UINT16_TOKENS:
        return (<uint16_t*> cells)[place]
    return (<uint8_t*> cells)[place]


cdef void swap_tokens(void* left, void* right, int kind, int64_t count) noexcept:
    """Exchange the tokens of two places that do not overlap."""
    cdef char held[4096]
    cdef char* a = <char*> left
    cdef char* b = <char*> right
    cdef int64_t rest = count * itemsize(kind)
    cdef int64_t size
    while rest > 0:
        size = min(rest, <int64_t> sizeof(held))
        memcpy(held, a, size)
        memcpy(a, b, size)
        memcpy(b, held, size)
        a += size
        b += size
        rest -= size


cdef bint widen(TokenView view, int64_t* target) noexcept:
    """Copy int64 or int32 tokens into int64 memory; False for another kind."""
    cdef int64_t i
    cdef int32_t* narrow = <int32_t*> view.cells
    if view.kind == INT64_TOKENS:
        copy_tokens(target, INT64_TOKENS, 0, view.cells, view.size)
        return True
    if view.kind == INT32_TOKENS:
        for i in range(view.size):
            target[i] = narrow[i]
        return True
    return False


cdef int64_t common_prefix(
    void* left, int left_kind, void* right, int right_kind, int64_t start, int64_t stop
) noexcept:
    """Return up to where cells agree that agree up to `start`, `stop` at most; -1 for kinds that are not compared."""
    cdef int64_t count = stop - start
    if left_kind == right_kind:
        if itemsize(left_kind) == 4:
            return start + common_prefix_32(<int32_t*> left + start, <int32_t*> right + start, count)
        if itemsize(left_kind) == 8:
            return start + common_prefix_64(<int64_t*> left + start, <int64_t*> right + start, count)
    if left_kind == INT32_TOKENS and right_kind == INT64_TOKENS:
        return start + common_prefix_mixed(<int32_t*> left + start, <int64_t*> right + start, count)
    if left_kind == INT64_TOKENS and right_kind == INT32_TOKENS:
        return start + common_prefix_mixed(<int32_t*> right + start, <int64_t*> left + start, count)
    return -1
