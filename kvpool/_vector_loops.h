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

#ifdef KVPOOL_X86
#include <cpuid.h>

/* Return the best kind that this CPU is and its system supports. The compiler's own __builtin_cpu_supports is not asked:
   compiled by zig 0.17 it says no to everything. */
static int kvpool_kind_of_cpu(void) {
    const unsigned bmi = 1u << 3, avx2 = 1u << 5, bmi2 = 1u << 8, avx512f = 1u << 16, avx512dq = 1u << 17,
                   avx512bw = 1u << 30, avx512vl = 1u << 31, osxsave = 1u << 27, lzcnt = 1u << 5;
    const unsigned for_avx2 = bmi | avx2 | bmi2, for_avx512 = for_avx2 | avx512f | avx512dq | avx512bw | avx512vl;
    /* The registers that the system saves: xmm and ymm, and for AVX-512 masks and zmm beside them. */
    const unsigned ymm = 0x06, zmm = 0xe6;
    unsigned eax, ebx, ecx, edx, extensions, saved, high;
    if (!__get_cpuid(1, &eax, &ebx, &ecx, &edx) || !(ecx & osxsave)) return KVPOOL_BASELINE;
    __asm__ volatile("xgetbv" : "=a"(saved), "=d"(high) : "c"(0));
    if (!__get_cpuid(0x80000001, &eax, &ebx, &ecx, &edx) || !(ecx & lzcnt)) return KVPOOL_BASELINE;
    if (!__get_cpuid_count(7, 0, &eax, &extensions, &ecx, &edx)) return KVPOOL_BASELINE;
    if ((extensions & for_avx512) == for_avx512 && (saved & zmm) == zmm) return KVPOOL_AVX512;
    return (extensions & for_avx2) == for_avx2 && (saved & ymm) == ymm ? KVPOOL_AVX2 : KVPOOL_BASELINE;
}
#endif

/* Return the loops for a kind of CPU, NULL where this one is not of that kind. */
static const kvpool_loops *kvpool_loops_for(int kind) {
#ifdef KVPOOL_X86
    if (kind != KVPOOL_BASELINE && kind > kvpool_kind_of_cpu()) return 0;
    if (kind == KVPOOL_AVX512) return &loops_avx512;
    if (kind == KVPOOL_AVX2) return &loops_avx2;
#endif
    return kind == KVPOOL_BASELINE ? &loops_baseline : 0;
}

#endif
