/* What a process needs to have single calls counted by callgrind, so that the same call costs the same number.
 *
 * It is preloaded, which makes its memory allocator that of the whole process. The C library's takes another path
 * through its lists for every history of a heap, and a copy takes another loop for every alignment: both change the
 * count of a call, by up to some percent, with anything that is done differently before it. Here a piece of memory
 * comes from a list of free ones of its size, where a call that has been made before finds those that it gave back, and
 * a large one begins at a multiple of 64.
 *
 * Build it with -fno-builtin: a compiler that knows what malloc and memset do makes calloc of them. */

#include <errno.h>
#include <sched.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>

enum { UNIT = 16, LINE = 64, SMALL_KINDS = 16, KINDS = 256 };
#define ARENA ((size_t)64 << 20)
#define LARGEST ((size_t)1 << 46)

/* Stands before each piece, and before the address in it where one was asked for with an alignment. */
struct header {
    size_t kind;
    struct piece *piece;
};

struct piece {
    struct piece *next;
};

/* Of each kind of size, the pieces that are free, the last one freed first. */
static struct piece *pieces[KINDS];
/* What new pieces are cut from: small ones, and large ones. */
static struct arena {
    char *next, *end;
} arenas[2];
static volatile char busy;

static struct header *header_of(void *memory)
{
    return (struct header *)memory - 1;
}

/* Small pieces have up to 16 units; large ones up to 5 lines, 6, 7, 8, and then four sizes for every doubling. */
static size_t kind_of(size_t size)
{
    size_t last = size ? size - 1 : 0;
    if (last < SMALL_KINDS * UNIT)
        return last / UNIT;
    last /= LINE;
    size_t exponent = 63 - __builtin_clzl(last);
    return SMALL_KINDS + 4 * (exponent - 2) + ((last >> (exponent - 2)) & 3);
}

static size_t size_of(size_t kind)
{
    if (kind < SMALL_KINDS)
        return (kind + 1) * UNIT;
    kind -= SMALL_KINDS;
    return ((5 + kind % 4) << kind / 4) * LINE;
}

static struct piece *new_piece(size_t kind)
{
    size_t before = kind < SMALL_KINDS ? UNIT : LINE, size = before + size_of(kind);
    struct arena *arena = &arenas[kind < SMALL_KINDS];
    if (size > (size_t)(arena->end - arena->next)) {
        size_t whole = size > ARENA ? size : ARENA;
        void *found = mmap(NULL, whole, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (found == MAP_FAILED)
            return NULL;
        *arena = (struct arena){found, (char *)found + whole};
    }
    struct piece *piece = (struct piece *)(arena->next + before);
    *header_of(piece) = (struct header){kind, piece};
    arena->next += size;
    return piece;
}

static void lock(void)
{
    while (__atomic_test_and_set(&busy, __ATOMIC_ACQUIRE))
        sched_yield();
}

static void unlock(void)
{
    __atomic_clear(&busy, __ATOMIC_RELEASE);
}

void *malloc(size_t size)
{
    struct piece *piece = NULL;
    if (size <= LARGEST) {
        size_t kind = kind_of(size);
        lock();
        piece = pieces[kind];
        if (piece)
            pieces[kind] = piece->next;
        else
            piece = new_piece(kind);
        unlock();
    }
    if (!piece)
        errno = ENOMEM;
    return piece;
}

void free(void *memory)
{
    if (!memory)
        return;
    struct header header = *header_of(memory);
    lock();
    header.piece->next = pieces[header.kind];
    pieces[header.kind] = header.piece;
    unlock();
}

size_t malloc_usable_size(void *memory)
{
    if (!memory)
        return 0;
    struct header *header = header_of(memory);
    return size_of(header->kind) - (size_t)((char *)memory - (char *)header->piece);
}

void *calloc(size_t count, size_t size)
{
    size_t whole;
    void *memory = malloc(__builtin_mul_overflow(count, size, &whole) ? SIZE_MAX : whole);
    return memory ? memset(memory, 0, whole) : NULL;
}

void *realloc(void *memory, size_t size)
{
    if (!memory)
        return malloc(size);
    size_t held = malloc_usable_size(memory);
    if (size <= held && kind_of(size) == header_of(memory)->kind)
        return memory;
    void *moved = malloc(size);
    if (moved) {
        memcpy(moved, memory, size < held ? size : held);
        free(memory);
    }
    return moved;
}

void *reallocarray(void *memory, size_t count, size_t size)
{
    size_t whole;
    return realloc(memory, __builtin_mul_overflow(count, size, &whole) ? SIZE_MAX : whole);
}

void *memalign(size_t alignment, size_t size)
{
    char *memory = malloc(alignment <= UNIT || size > LARGEST ? size : size + alignment);
    if (!memory || !((uintptr_t)memory & (alignment - 1)))
        return memory;
    char *aligned = (char *)(((uintptr_t)memory + alignment - 1) & -alignment);
    *header_of(aligned) = *header_of(memory);
    return aligned;
}

void *aligned_alloc(size_t alignment, size_t size)
{
    return memalign(alignment, size);
}

int posix_memalign(void **result, size_t alignment, size_t size)
{
    void *memory = memalign(alignment, size);
    if (!memory)
        return ENOMEM;
    *result = memory;
    return 0;
}

void *valloc(size_t size)
{
    return memalign(4096, size);
}

void *pvalloc(size_t size)
{
    return valloc((size + 4095) & -(size_t)4096);
}

/* What valgrind looks for in the code it runs: these rotations, which change nothing, before an exchange of a register
 * with itself. A processor passes over them; valgrind does what the block asks for, of which rax holds the address, and
 * leaves its answer in rdx. */
static uintptr_t ask_valgrind(uintptr_t request, uintptr_t argument)
{
    volatile uintptr_t block[6] = {request, argument, 0, 0, 0, 0};
    uintptr_t answer = 0;
    __asm__ volatile("rolq $3, %%rdi; rolq $13, %%rdi; rolq $61, %%rdi; rolq $51, %%rdi; xchgq %%rbx, %%rbx"
                     : "+d"(answer)
                     : "a"(block)
                     : "cc", "memory");
    return answer;
}

/* Requests to callgrind: its two letters, and a number. */
enum { ZERO = 0x43540001, TOGGLE, DUMP_AS, START };

/* Have callgrind see every instruction from now on; before, the process runs several times as fast. */
void start_counting(void)
{
    ask_valgrind(START, 0);
}

/* Call a Python function by `call`, which is PyObject_Call, have what that alone took written out under a name, and
 * return its result. */
void *count_call(void *(*call)(void *, void *, void *), void *function, void *arguments, const char *name)
{
    ask_valgrind(ZERO, 0);
    ask_valgrind(TOGGLE, 0);
    void *result = call(function, arguments, NULL);
    ask_valgrind(TOGGLE, 0);
    ask_valgrind(DUMP_AS, (uintptr_t)name);
    return result;
}
