#include "xe_wc.h"

#include <stdint.h>
#include <string.h>

#ifdef __x86_64__
#include <smmintrin.h>

__attribute__((target("sse4.1"))) static void stream(void *to, const void *from, size_t size)
{
    const __m128i *source = from;
    __m128i *target = to;

    for (; size >= 64; size -= 64, source += 4, target += 4) {
        /* Four loads of one line in a row: the first fetches it, the others find it in the fill buffer. */
        __m128i a = _mm_stream_load_si128((__m128i *)source);
        __m128i b = _mm_stream_load_si128((__m128i *)source + 1);
        __m128i c = _mm_stream_load_si128((__m128i *)source + 2);
        __m128i d = _mm_stream_load_si128((__m128i *)source + 3);

        _mm_storeu_si128(target, a);
        _mm_storeu_si128(target + 1, b);
        _mm_storeu_si128(target + 2, c);
        _mm_storeu_si128(target + 3, d);
    }
    memcpy(target, source, size);
}

void xe_read_wc(void *to, const void *from, size_t size)
{
    size_t head = -(uintptr_t)from & 63;

    if (size < 256 || !__builtin_cpu_supports("sse4.1")) {
        memcpy(to, from, size);
        return;
    }
    memcpy(to, from, head);
    /* Streaming loads are ordered weakly: nothing read here may be older than the fence or flag read before. */
    _mm_mfence();
    stream((char *)to + head, (const char *)from + head, size - head);
}
#else
void xe_read_wc(void *to, const void *from, size_t size)
{
    memcpy(to, from, size);
}
#endif
