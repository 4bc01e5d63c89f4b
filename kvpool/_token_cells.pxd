# Memory that holds tokens, of any integer dtype, and the ways in and out of it.

cimport numpy as cnp
from cpython.long cimport PyLong_AsLongLongAndOverflow
from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t

# A code is twice the logarithm of the bytes a token takes, and one more where it has no sign.
cdef enum:
    INT8, UINT8, INT16, UINT16, INT32, UINT32, INT64, UINT64

cdef extern from *:
    """
    /* The value of an int of one digit, which most tokens are; 0 for another one. */
    static inline int kvpool_one_digit(PyObject *token, int64_t *value) {
    #if PY_VERSION_HEX >= 0x030C0000
        if (!PyUnstable_Long_IsCompact((PyLongObject *)token)) return 0;
        *value = PyUnstable_Long_CompactValue((PyLongObject *)token);
    #else
        if (Py_SIZE(token) != 1) return 0;
        *value = ((PyLongObject *)token)->ob_digit[0];
    #endif
        return 1;
    }
    """
    bint one_digit "kvpool_one_digit" (object token, int64_t* value) noexcept

cdef extern from *:
    # Have a cell's cache line at hand for the write that follows.
    void prefetch "__builtin_prefetch" (void* address, int writing) noexcept nogil

cdef struct TokenView:
    # Borrowed from the object that it is a view of; the size is -1 where that is no contiguous memory of the host.
    void* cells
    int64_t size
    int code

cdef int code_of(object dtype) except -1
cdef object new_cells(int64_t size, int code)
cdef void* cells_in(object array) noexcept
cdef void put_bits(void* cells, int64_t position, int code, object token)
cdef object int_at(void* cells, int64_t position, int code)
cdef void copy_cells(void* target, int64_t position, void* source, int64_t count, int code) noexcept
cdef object packed_tokens(object tokens, int code)
cdef object view_on(object owner, void* cells, int64_t start, int64_t stop, int code, bint writable)
# Only of int32 and int64 tokens; a size of -1 for others.
cdef TokenView view_of_cells(void* cells, int64_t size, int code) noexcept
cdef TokenView tokens_in(object tokens) noexcept
cdef bint widen(TokenView view, int64_t* target) noexcept
cdef int64_t common_cells(TokenView a, TokenView b, int64_t count) noexcept

cdef inline int64_t bytes_of(int code) noexcept:
    return 1 << (code >> 1)

cdef inline void* cell(void* cells, int64_t position, int code) noexcept:
    return <char*> cells + position * bytes_of(code)

cdef inline bint fits(int64_t token, int code) noexcept:
    """Tell whether a token fits a dtype."""
    if code == INT64:
        return True
    if code == INT32:
        return token == <int32_t> token
    if code == UINT64:
        return token >= 0
    if code == UINT32:
        return token == <uint32_t> token
    if code == INT16:
        return token == <int16_t> token
    if code == UINT16:
        return token == <uint16_t> token
    if code == INT8:
        return token == <int8_t> token
    return token == <uint8_t> token

cdef inline void put(void* cells, int64_t position, int code, int64_t token) noexcept:
    """Write a token that fits, or the bits of one."""
    if code >= INT64:
        (<int64_t*> cells)[position] = token
    elif code >= INT32:
        (<int32_t*> cells)[position] = <int32_t> token
    elif code >= INT16:
        (<int16_t*> cells)[position] = <int16_t> token
    else:
        (<int8_t*> cells)[position] = <int8_t> token

cdef inline bint put_int(void* cells, int64_t position, int code, object token) noexcept:
    """Write a Python int that fits; False, and nothing is written, for another one and for anything else."""
    cdef int overflow = 0
    cdef int64_t value
    if type(token) is not int:
        return False
    if not one_digit(token, &value):
        value = PyLong_AsLongLongAndOverflow(token, &overflow)
    if overflow or not fits(value, code):
        return False
    put(cells, position, code, value)
    return True
