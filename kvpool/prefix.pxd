from libc.stdint cimport int64_t

from kvpool._crossings cimport small_int
from kvpool._token_cells cimport TokenView, common_cells, tokens_in
from kvpool.token_buffer cimport TokenBuffer

cdef TokenView _view_of(object tokens) noexcept
cdef object _converted(object tokens)
