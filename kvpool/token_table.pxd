from libc.stdint cimport int64_t

from kvpool._crossings cimport small_int
from kvpool._token_arrays cimport INT64_TOKENS, packed, read_only, view_of
from kvpool._tokens_input cimport readable
from kvpool._token_rows cimport NOT_IN_USE, TokenRows


cdef class TokenTable:
    cdef TokenRows rows
    cdef object __weakref__

    cdef int _hold(self, TokenRows rows) except -1
    cdef object _readable(self, object tokens)
    cdef int _append_any(self, object rows, object tokens) except -1
    cdef int64_t _in_use(self, object row) except -1
    cdef int64_t _not_in_use(self, object row) except -1
    cdef int64_t _in_range(self, object row) except -1
