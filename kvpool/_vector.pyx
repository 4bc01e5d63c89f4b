"""Choose the vector loops for this machine's kind of CPU once, at import; KVPOOL_CPU overrides the choice."""

import os

cdef extern from "_vector_loops.h" nogil:
    ctypedef struct kvpool_loops:
        void (*expand)(int64_t*, int64_t, int64_t) noexcept
        int (*pages_of)(const int64_t*, int64_t, int64_t, int64_t*) noexcept
        int64_t (*common_prefix_32)(const int32_t*, const int32_t*, int64_t) noexcept
        int64_t (*common_prefix_64)(const int64_t*, const int64_t*, int64_t) noexcept
        int64_t (*common_prefix_mixed)(const int32_t*, const int64_t*, int64_t) noexcept
    const kvpool_loops* kvpool_loops_for(int kind) noexcept

KINDS = ("baseline", "avx2", "avx512")

cdef const kvpool_loops* loops = NULL


def _choose(wanted):
    """Choose the loops of the kind of CPU that is wanted, or of the best that this one is; return its name."""
    global loops
    if wanted:
        if wanted not in KINDS:
            raise ValueError(f"KVPOOL_CPU must be {', '.join(KINDS[:-1])} or {KINDS[-1]}, not {wanted!r}")
        if kvpool_loops_for(KINDS.index(wanted)) == NULL:
            raise ValueError(f"KVPOOL_CPU is {wanted}, which this CPU does not support")
    for kind in reversed(KINDS):
        if not wanted or kind == wanted:
            found = kvpool_loops_for(KINDS.index(kind))
            if found != NULL:
                loops = found
                return kind


#: The kind of CPU that the loops are for.
CPU = _choose(os.environ.get("KVPOOL_CPU"))


cdef void expand(int64_t* slots, int64_t count, int64_t page_size) noexcept:
    loops.expand(slots, count, page_size)


cdef bint pages_of(const int64_t* slots, int64_t count, int64_t page_size, int64_t* pages) noexcept:
    return loops.pages_of(slots, count, page_size, pages)


cdef int64_t common_prefix_32(const int32_t* a, const int32_t* b, int64_t count) noexcept:
    return loops.common_prefix_32(a, b, count)


cdef int64_t common_prefix_64(const int64_t* a, const int64_t* b, int64_t count) noexcept:
    return loops.common_prefix_64(a, b, count)


cdef int64_t common_prefix_mixed(const int32_t* a, const int64_t* b, int64_t count) noexcept:
    return loops.common_prefix_mixed(a, b, count)
