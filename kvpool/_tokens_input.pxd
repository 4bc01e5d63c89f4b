from kvpool._token_arrays cimport NO_TOKENS, converted, kind_of, packed, view_of

cdef object readable(object tokens, int kind)
