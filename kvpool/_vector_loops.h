/* The loops that gain from wider vectors, compiled for several kinds of CPU and chosen at run time. */

#ifndef KVPOOL_VECTOR_LOOPS_H
#define KVPOOL_VECTOR_LOOPS_H

#include <stdint.h>

typedef struct {
    /* Turn the page ids in the last `count` of `count * page_size` elements into the slots of those pages. */
    void (*expand)(int64_t *slots, int64_t count, int64_t page_size);
    /* Write the pages that `count` blocks of slots are; 0 where a block is not a page's slots in ascending order. */
    int (*pages_of)(const int64_t *slots, int64_t count, int64_t page_size, int64_t *pages);
    /* How many of their first `count` tokens two sequences have in common. */
    int64_t (*common_prefix_32)(const int32_t *a, const int32_t *b, int64_t count);
    int64_t (*common_prefix_64)(const int64_t *a, const int64_t *b, int64_t count);
    int64_t (*common_prefix_mixed)(const int32_t *a, const int64_t *b, int64_t count);
} kvpool_loops;

/* The kinds of CPU, each with all that the one before has. */
enum { KVPOOL_BASELINE, KVPOOL_AVX2, KVPOOL_AVX512, KVPOOL_KINDS };

#define KVPOOL_TARGET
#define KVPOOL_NAME(name) name##_baseline
#include "_vector_loops_body.h"
#undef KVPOOL_TARGET
#undef KVPOOL_NAME

#if defined(__x86_64__) && (defined(__GNUC__) || defined(__clang__))
#define KVPOOL_X86 1

#define KVPOOL_TARGET __attribute__((target("avx2,bmi,bmi2,lzcnt")))
#define KVPOOL_NAME(name) name##_avx2
#include "_vector_loops_body.h"
#undef KVPOOL_TARGET
#undef KVPOOL_NAME

#ifdef __clang__
#define KVPOOL_WIDTH __attribute__((min_vector_width(512)))
#define KVPOOL_PREFER
#else
#define KVPOOL_WIDTH
#define KVPOOL_PREFER ",prefer-vector-width=512"
#endif
#define KVPOOL_TARGET \
    KVPOOL_WIDTH __attribute__((target("avx2,bmi,bmi2,lzcnt,avx512f,avx512bw,avx512dq,avx512vl" KVPOOL_PREFER)))
#define KVPOOL_NAME(name) name##_avx512
#include "_vector_loops_body.h"
#undef KVPOOL_TARGET
#undef KVPOOL_NAME
#endif

/* Return the loops for a kind of CPU, NULL where this one is not of that kind. */
static const kvpool_loops *kvpool_loops_for(int kind) {
#ifdef KVPOOL_X86
    __builtin_cpu_init();
    if (kind == KVPOOL_AVX512)
        return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                       __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
                       __builtin_cpu_supports("avx2") && __builtin_cpu_supports("bmi2")
                   ? &loops_avx512
                   : 0;
    if (kind == KVPOOL_AVX2)
        return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("bmi2") ? &loops_avx2 : 0;
#endif
    return kind == KVPOOL_BASELINE ? &loops_baseline : 0;
}

#endif
