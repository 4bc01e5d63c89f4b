/* Included by _vector_loops.h once for each kind of CPU, with KVPOOL_TARGET and KVPOOL_NAME for that kind. */

#define SAME_BLOCK 64

KVPOOL_TARGET static void KVPOOL_NAME(expand)(int64_t *slots, int64_t count, int64_t page_size) {
    /* A block is written only over ids that have been read: block i ends at or before id i + 1. */
    const int64_t *ids = slots + count * (page_size - 1);
    if (page_size == 64) {
        for (int64_t i = 0; i < count; i++) {
            int64_t first = ids[i] * 64;
            for (int64_t offset = 0; offset < 64; offset++) slots[i * 64 + offset] = first + offset;
        }
    } else if (page_size == 16) {
        for (int64_t i = 0; i < count; i++) {
            int64_t first = ids[i] * 16;
            for (int64_t offset = 0; offset < 16; offset++) slots[i * 16 + offset] = first + offset;
        }
    } else if (page_size > 1) {
        for (int64_t i = 0; i < count; i++) {
            int64_t first = ids[i] * page_size;
            for (int64_t offset = 0; offset < page_size; offset++) slots[i * page_size + offset] = first + offset;
        }
    }
}

/* The block's page, -1 where it is none; each slot is read once, as nobody may hold its owner back from writing. */
#define PAGE_OF(SIZE)                                                                             \
    int64_t first = block[0];                                                                     \
    uint64_t wrong = 0;                                                                           \
    for (int64_t offset = 1; offset < (SIZE); offset++)                                           \
        wrong |= (uint64_t)block[offset] ^ ((uint64_t)first + (uint64_t)offset);                  \
    if (wrong != 0 || first < 0 || first % (SIZE) != 0) return 0;                                 \
    pages[i] = first / (SIZE);

KVPOOL_TARGET static int KVPOOL_NAME(pages_of)(const int64_t *slots, int64_t count, int64_t page_size,
                                               int64_t *pages) {
    if (page_size == 64) {
        for (int64_t i = 0; i < count; i++) {
            const int64_t *block = slots + i * 64;
            PAGE_OF(64)
        }
    } else if (page_size == 16) {
        for (int64_t i = 0; i < count; i++) {
            const int64_t *block = slots + i * 16;
            PAGE_OF(16)
        }
    } else if (page_size == 1) {
        int64_t sign = 0;
        for (int64_t i = 0; i < count; i++) sign |= pages[i] = slots[i];
        return sign >= 0;
    } else {
        for (int64_t i = 0; i < count; i++) {
            const int64_t *block = slots + i * page_size;
            PAGE_OF(page_size)
        }
    }
    return 1;
}

#undef PAGE_OF

/* Blocks are compared without a branch inside, so that they are vectorised; the rest and the block in which two
   sequences part are gone through one by one. */
#define COMMON_PREFIX(NAME, A, B)                                                                 \
    KVPOOL_TARGET static int64_t KVPOOL_NAME(NAME)(const A *a, const B *b, int64_t count) {       \
        int64_t start = 0;                                                                        \
        for (; start < count && start < 16; start++)                                              \
            if (a[start] != b[start]) return start;                                               \
        for (; start + SAME_BLOCK <= count; start += SAME_BLOCK) {                                \
            uint64_t differing = 0;                                                               \
            for (int64_t i = 0; i < SAME_BLOCK; i++) differing |= (uint64_t)(a[start + i] ^ b[start + i]); \
            if (differing) break;                                                                 \
        }                                                                                         \
        while (start < count && a[start] == b[start]) start++;                                    \
        return start;                                                                             \
    }

COMMON_PREFIX(common_prefix_32, int32_t, int32_t)
COMMON_PREFIX(common_prefix_64, int64_t, int64_t)
COMMON_PREFIX(common_prefix_mixed, int32_t, int64_t)

#undef COMMON_PREFIX
#undef SAME_BLOCK

static const kvpool_loops KVPOOL_NAME(loops) = {
    KVPOOL_NAME(expand),
    KVPOOL_NAME(pages_of),
    KVPOOL_NAME(common_prefix_32),
    KVPOOL_NAME(common_prefix_64),
    KVPOOL_NAME(common_prefix_mixed),
};
