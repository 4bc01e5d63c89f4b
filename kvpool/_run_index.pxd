from libc.stdint cimport int64_t, uint8_t, uint64_t

from kvpool._bits cimport FIRST_BIT, FULL_WORD, leading_zeros, ones, trailing_zeros
from kvpool._memory cimport copy_bytes, copy_words, new_bytes, new_words, zeros

cdef enum:
    WORD_PAGES = 64
    CHUNK_WORDS = 8
    CHUNK_PAGES = 512
    LONG_RUN = 64
    # Flags of a chunk: its summary may be too high; the lengths of the runs that begin in it are out of date.
    TOO_HIGH = 1
    LENGTHS_UNKNOWN = 2
    CHANGED = 3

cdef struct Summary:
    # The free run that a stretch of pages begins with, the longest in it and the one that it ends with, in pages.
    int64_t leading
    int64_t longest
    int64_t trailing
    # Bit n - 1 where a run of n pages may begin in the stretch; the last one for LONG_RUN pages or more.
    uint64_t lengths

cdef inline Summary* new_summaries(list arrays, Py_ssize_t count) except NULL:
    return <Summary*> zeros(arrays, count, sizeof(Summary))


cdef class RunIndex:
    cdef readonly int64_t num_pages
    cdef readonly int64_t chunks
    cdef readonly int64_t leaves
    cdef readonly int64_t free
    cdef readonly int64_t steps
    cdef readonly list arrays
    # The chunks among which those are whose lengths are not known.
    cdef int64_t unknown_from
    cdef int64_t unknown_to
    cdef uint64_t* words
    cdef uint8_t* flags
    cdef Summary* summaries

    cdef bint holds(self, size_t page) noexcept
    cdef void add_run(self, int64_t start, int64_t stop) noexcept
    cdef void add_pages(self, int64_t* pages, int64_t count) noexcept
    cdef void add_words(self, uint64_t* words) noexcept
    cdef void add_unmeasured(self, int64_t page) noexcept
    cdef void mark(self, int64_t page) noexcept
    cdef void unmark(self, int64_t page) noexcept
    cdef void copy_words_to(self, uint64_t* words) noexcept
    cdef void remove_run(self, int64_t start, int64_t stop) noexcept
    cdef void remove_pages(self, int64_t* pages, int64_t count) noexcept
    cdef void remove_all(self) noexcept
    cdef int64_t lowest_run(self, int64_t length) noexcept
    cdef int64_t smallest_run(self, int64_t length) noexcept
    cdef int64_t count_runs(self) noexcept
    cdef int64_t longest_run(self) noexcept
    cdef int64_t remove_largest_runs(self, int64_t* pages, int64_t count) noexcept
    cdef int64_t lowest_pages(self, int64_t* pages, int64_t count) noexcept
    cdef object state(self)

    cdef void _write(self, int64_t start, int64_t stop, bint free) noexcept
    cdef int _free_before(self, size_t page) noexcept
    cdef int _free_from(self, size_t page) noexcept
    cdef int64_t _next_free(self, int64_t page, int64_t stop) noexcept
    cdef int64_t _next_taken(self, int64_t page, int64_t stop) noexcept
    cdef void _raise_summary(self, int64_t chunk, int64_t start, int64_t stop) noexcept
    cdef void _note_length(self, int64_t start, int64_t length) noexcept
    cdef bint _make_exact(self, int64_t chunk) noexcept
    cdef void _measure_lengths(self, int64_t chunk) noexcept
    cdef bint _add_alone(self, size_t page) noexcept
    cdef void _forget_lengths(self, int64_t first, int64_t last) noexcept
    cdef void _measure_unknown(self) noexcept
    cdef bint _summarize(self, int64_t node, int64_t half) noexcept
    cdef void _climb(self, int64_t chunk) noexcept
    cdef bint _lowered(self, int64_t start, int64_t stop) noexcept
    cdef int64_t _exact_run(self, int64_t run, int64_t chunk) noexcept
    cdef int64_t _remove_runs_of(self, int64_t length, int64_t* pages, int64_t count) noexcept
    cdef uint64_t _begins_of(self, int64_t word, int64_t length) noexcept
    cdef void _drop_length(self, int64_t chunk, uint64_t named) noexcept
    cdef int64_t _lowest_naming(self, uint64_t named) noexcept
    cdef uint64_t _last_of_word(self, int64_t word) noexcept
    cdef int64_t _lowest_of_length(self, int64_t length) noexcept
    cdef int64_t _smallest_long_run(self, int64_t length) noexcept
