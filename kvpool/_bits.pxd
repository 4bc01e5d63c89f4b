"""Counting bits of a word, as the compiler's own instructions; `kvpool._plain` has the same in Python."""

from libc.stdint cimport uint64_t

cdef extern from *:
    """
    #include <stdint.h>
    static inline int kvpool_trailing_zeros(uint64_t word) { return word ? __builtin_ctzll(word) : 64; }
    static inline int kvpool_leading_zeros(uint64_t word) { return word ? __builtin_clzll(word) : 64; }
    static inline int kvpool_ones(uint64_t word) { return __builtin_popcountll(word); }
    """
    int trailing_zeros "kvpool_trailing_zeros" (uint64_t word) noexcept nogil
    int leading_zeros "kvpool_leading_zeros" (uint64_t word) noexcept nogil
    int ones "kvpool_ones" (uint64_t word) noexcept nogil
    uint64_t FULL_WORD "UINT64_MAX"
    uint64_t FIRST_BIT "UINT64_C(1)"
