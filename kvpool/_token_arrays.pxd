# Token ids in memory: cells of one of eight kinds of integer, which belong to an ndarray.

from cpython.long cimport PyLong_AsLongLongAndOverflow, PyLong_AsUnsignedLongLong, PyLong_CheckExact
from cpython.object cimport PyObject
from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcpy, memmove

cdef extern from *:
    """
    /* An int of one digit, which nearly every token is, without a call. */
    #if PY_VERSION_HEX >= 0x030C0000
    #define kvpool_is_short(token) PyUnstable_Long_IsCompact((PyLongObject *)(token))
    #define kvpool_short(token) PyUnstable_Long_CompactValue((PyLongObject *)(token))
    #else
    #define kvpool_is_short(token) (Py_SIZE(token) >= -1 && Py_SIZE(token) <= 1)
    #define kvpool_short(token) (Py_SIZE(token) * (Py_ssize_t)((PyLongObject *)(token))->ob_digit[0])
    #endif
    """
    Py_ssize_t Py_REFCNT(PyObject* held) noexcept
    bint kvpool_is_short(object token) noexcept
    Py_ssize_t kvpool_short(object token) noexcept

cdef enum:
    NO_TOKENS = -1
    INT8_TOKENS
    INT16_TOKENS
    INT32_TOKENS
    INT64_TOKENS
    UINT8_TOKENS
    UINT16_TOKENS
    UINT32_TOKENS
    UINT64_TOKENS

cdef struct TokenView:
    # Borrowed from the array or tensor that it is a view of; of the kind NO_TOKENS where that cannot be read in place.
    void* cells
    int64_t size
    int kind

cdef int kind_of(object dtype) except? -1
cdef TokenView view_of(object values) noexcept

cdef object new_tokens(int kind, int64_t size)
cdef object packed(object values, int kind)
cdef object converted(object values, int kind)
cdef int64_t put_all(void* cells, int kind, int64_t place, int64_t room, object values) noexcept
cdef object read_only(object array, int64_t start, int64_t stop)
cdef object writable(object array, int64_t start, int64_t stop)
cdef object listed(object array, int64_t start, int64_t stop)
cdef bint owns_its_cells(object array) noexcept
cdef void* cells_of(object array) noexcept

cdef void swap_tokens(void* left, void* right, int kind, int64_t count) noexcept
cdef bint widen(TokenView view, int64_t* target) noexcept
cdef int64_t common_prefix(
    void* left, int left_kind, void* right, int right_kind, int64_t start, int64_t stop
) noexcept
cdef object token_at(void* cells, int kind, int64_t place)


cdef inline int64_t itemsize(int kind) noexcept:
    if kind == INT8_TOKENS or kind == UINT8_TOKENS:
        return 1
    if kind == INT16_TOKENS or kind == UINT16_TOKENS:
        return 2
    return 4 if kind == INT32_TOKENS or kind == UINT32_TOKENS else 8


cdef inline void* behind(void* cells, int kind, int64_t count) noexcept:
    """Return where the cells behind the first `count` are."""
    return <char*> cells + count * itemsize(kind)


cdef inline bint within(int64_t number, int64_t limit) noexcept:
    """Tell whether a number is one from 0 up to a limit, which is not below 0."""
    return <uint64_t> number < <uint64_t> limit


cdef inline int64_t place_of(object bound, int64_t otherwise, int64_t length) noexcept:
    """Return the place of `length` that a slice's bound names, which is an int, or None for `otherwise`."""
    cdef int overflow = 0
    cdef int64_t place
    if bound is None:
        return otherwise
    place = PyLong_AsLongLongAndOverflow(bound, &overflow)
    if overflow:
        return length if overflow > 0 else 0
    if place < 0:
        place += length
        return place if place > 0 else 0
    return place if place < length else length


cdef inline bint may_be_seen(object array) noexcept:
    """Tell whether there may be views of an array that a field and one variable refer to.

    A view refers to whoever owns the memory, so that nothing is known of one that does not.
    """
    return Py_REFCNT(<PyObject*> array) > 2 or not owns_its_cells(array)


cdef inline bint put_number(void* cells, int kind, int64_t place, int64_t number) noexcept:
    """Write a number into a cell; False, and nothing is written, where the kind cannot hold it."""
    if kind == INT64_TOKENS:
        (<int64_t*> cells)[place] = number
        return True
    if kind == INT32_TOKENS:
        if number != <int32_t> number:
            return False
        (<int32_t*> cells)[place] = <int32_t> number
        return True
    return put_rare(cells, kind, place, number)


cdef bint put_rare(void* cells, int kind, int64_t place, int64_t number) noexcept
cdef bint put_large(void* cells, int64_t place, object token) noexcept


cdef inline bint put(void* cells, int kind, int64_t place, object token) noexcept:
    """Write a token into a cell, without running Python code; False where it is no int that the kind holds."""
    cdef int overflow = 0
    cdef int64_t number
    if not PyLong_CheckExact(token):
        return False
    if kvpool_is_short(token):
        return put_number(cells, kind, place, kvpool_short(token))
    number = PyLong_AsLongLongAndOverflow(token, &overflow)
    if overflow == 0:
        return put_number(cells, kind, place, number)
    return overflow > 0 and kind == UINT64_TOKENS and put_large(cells, place, token)


cdef inline void copy_tokens(void* target, int kind, int64_t place, void* source, int64_t count) noexcept:
    """Copy tokens of the same kind to the cells from `place` on, from memory that may overlap them."""
    if count > 0:
        memmove(behind(target, kind, place), source, count * itemsize(kind))
