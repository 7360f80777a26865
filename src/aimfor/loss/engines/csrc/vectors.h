// Eight floats at a time, or sixteen where the compiler may use AVX-512. The compiler's own vector types: they are what
// the machine has, or are split into it.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

#if defined(__AVX2__)
#include <immintrin.h>
#endif

namespace aimfor {

#if defined(__AVX512DQ__)
constexpr int LANES = 16;
#else
constexpr int LANES = 8;
#endif

typedef float Floats __attribute__((vector_size(4 * LANES)));
typedef int32_t Ints __attribute__((vector_size(4 * LANES)));

// The same at any address. (A memcpy would say so too, but may go through the stack in pieces, which stalls.)
typedef Floats AnyFloats __attribute__((aligned(4), may_alias));
typedef Ints AnyInts __attribute__((aligned(1), may_alias));

inline Floats load(const float* from) { return *reinterpret_cast<const AnyFloats*>(from); }

inline Ints load(const int32_t* from) { return *reinterpret_cast<const AnyInts*>(from); }

inline void store(float* to, Floats value) { *reinterpret_cast<AnyFloats*>(to) = value; }

inline void store(int32_t* to, Ints value) { *reinterpret_cast<AnyInts*>(to) = value; }

// Past the cache, where what is written will not be read before much else; only at a multiple of the vector's size.
inline void store_past_cache(float* to, Floats value) {
#if defined(__AVX512DQ__)
    _mm512_stream_ps(to, value);
#elif defined(__AVX2__)
    _mm256_stream_ps(to, value);
#else
    store(to, value);
#endif
}

// What was stored past the cache, before other threads may look at it.
inline void finish_stores() {
#if defined(__AVX2__)
    _mm_sfence();
#endif
}

// Brings `count` numbers near, into the second-level cache: rows of a batch lie pages apart, and the processor looks
// ahead only along each. What is beyond the end of an array is not touched.
template <class Type>
inline __attribute__((always_inline)) void fetch(const Type* from, int count) {
    const char* bytes = reinterpret_cast<const char*>(from);
    for (size_t byte = 0; byte < count * sizeof(Type); byte += 64) __builtin_prefetch(bytes + byte, 0, 2);
}

// The first `count` lanes, at the end of an array; the others are 0.
inline Floats load(const float* from, int count) {
    if (count >= LANES) return load(from);
    Floats value = {};
    std::memcpy(&value, from, sizeof(float) * count);
    return value;
}

inline void store(float* to, Floats value, int count) {
    if (count >= LANES) return store(to, value);
    std::memcpy(to, &value, sizeof(float) * count);
}

inline Floats all(float value) { return Floats{} + value; }

inline Ints same(int32_t value) { return Ints{} + value; }

// One instruction each, which the compiler does not find in the comparison. Those of whole numbers are for floats that
// are not negative, and stand in the same order: additions, comparisons and choices of floats share two units of the
// processor, whole numbers have more.
#if defined(__AVX512DQ__)
inline Floats larger(Floats a, Floats b) { return _mm512_max_ps(a, b); }

inline Floats smaller(Floats a, Floats b) { return _mm512_min_ps(a, b); }

inline Ints larger(Ints a, Ints b) { return (Ints)_mm512_max_epi32((__m512i)a, (__m512i)b); }

inline Ints smaller(Ints a, Ints b) { return (Ints)_mm512_min_epi32((__m512i)a, (__m512i)b); }
#elif defined(__AVX2__)
inline Floats larger(Floats a, Floats b) { return _mm256_max_ps(a, b); }

inline Floats smaller(Floats a, Floats b) { return _mm256_min_ps(a, b); }

inline Ints larger(Ints a, Ints b) { return (Ints)_mm256_max_epi32((__m256i)a, (__m256i)b); }

inline Ints smaller(Ints a, Ints b) { return (Ints)_mm256_min_epi32((__m256i)a, (__m256i)b); }
#else
inline Floats larger(Floats a, Floats b) { return a > b ? a : b; }

inline Floats smaller(Floats a, Floats b) { return a < b ? a : b; }

inline Ints larger(Ints a, Ints b) { return a > b ? a : b; }

inline Ints smaller(Ints a, Ints b) { return a < b ? a : b; }
#endif

inline Ints is_positive(Floats value) { return (Ints)value > 0; }

inline Floats not_negative(Floats value) { return (Floats)larger((Ints)value, Ints{}); }

inline Floats at_most_one(Floats not_negative) { return (Floats)smaller((Ints)not_negative, (Ints)all(1.0f)); }

inline Floats absolute(Floats value) { return (Floats)((Ints)value & 0x7FFFFFFF); }

inline Floats root(Floats value) {
#if defined(__AVX512DQ__)
    return _mm512_sqrt_ps(value);
#elif defined(__AVX2__)
    return _mm256_sqrt_ps(value);
#else
    float lanes[LANES];  // an array, because the compiler takes the lanes of a vector one by one
    store(lanes, value);
    for (float& lane : lanes) lane = std::sqrt(lane);
    return load(lanes);
#endif
}

// value where the mask is set, else 0.
inline Floats where(Ints mask, Floats value) {
#if defined(__AVX512DQ__)
    return mask ? value : Floats{};  // in the instruction that makes the value
#else
    return (Floats)(mask & (Ints)value);
#endif
}

// count + 1 where the mask is set: one operation with AVX-512.
inline Ints count_where(Ints mask, Ints count) {
#if defined(__AVX512DQ__)
    return mask ? count + 1 : count;
#else
    return count - mask;  // a set mask is -1
#endif
}

inline Floats as_floats(Ints value) { return __builtin_convertvector(value, Floats); }

// The lanes where the mask is set, as bits.
inline uint32_t bits(Ints mask) {
#if defined(__AVX512DQ__)
    return _mm512_movepi32_mask((__m512i)mask);
#elif defined(__AVX2__)
    return static_cast<uint32_t>(_mm256_movemask_ps((Floats)mask));
#else
    uint32_t found = 0;
    for (int lane = 0; lane < LANES; ++lane) found |= (mask[lane] & 1u) << lane;
    return found;
#endif
}

// The mask whose lanes are set where the lowest bits are.
inline Ints mask_of(uint32_t bits) {
#if defined(__AVX512DQ__)
    return (Ints)_mm512_movm_epi32(static_cast<__mmask16>(bits));
#else
    const Ints one_each = {1, 2, 4, 8, 16, 32, 64, 128};
    return (static_cast<int32_t>(bits) & one_each) == one_each;
#endif
}

// The same where LANES bytes are not 0.
inline Ints mask_of(const uint8_t* from) {
#if defined(__AVX512DQ__)
    const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
    return mask_of(_mm_test_epi8_mask(bytes, bytes));
#elif defined(__AVX2__)
    return ~((Ints)_mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(from))) == 0);
#else
    Ints mask = {};
    for (int lane = 0; lane < LANES; ++lane) mask[lane] = from[lane] ? -1 : 0;
    return mask;
#endif
}

// Which of 32 bytes are equal to a number, as bits.
inline uint32_t equal_bytes(const uint8_t* from, uint8_t to) {
#if defined(__AVX2__)
    const __m256i bytes = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
    return static_cast<uint32_t>(_mm256_movemask_epi8(_mm256_cmpeq_epi8(bytes, _mm256_set1_epi8(static_cast<char>(to)))));
#else
    uint32_t found = 0;
    for (int byte = 0; byte < 32; ++byte) found |= static_cast<uint32_t>(from[byte] == to) << byte;
    return found;
#endif
}

inline float total(Floats value) {
    float sum = 0;
    for (int lane = 0; lane < LANES; ++lane) sum += value[lane];
    return sum;
}

inline Floats between(Floats value, float low, float high) { return larger(smaller(value, all(high)), all(low)); }

// e^x for x from -87 to 87: 2^n times a polynomial on the rest, |rest| <= ln 2 / 2.
inline Floats exponential(Floats x) {
    const float to_whole = 12582912.0f;  // 1.5 * 2^23: adding it leaves no bits for a fraction
    const Floats shifted = x * 1.44269504f + to_whole, n = shifted - to_whole;
    const Floats rest = x - n * 0.693359375f + n * 2.12194440e-4f;
    // In pairs of terms, which do not wait for one another.
    const Floats square = rest * rest;
    const Floats high = (1.9875691500e-4f * rest + 1.3981999507e-3f) * square + (8.3334519073e-3f * rest + 4.1665795894e-2f);
    const Floats low = 1.6666665459e-1f * rest + 5.0000001201e-1f;
    const Floats value = (high * square + low) * square + (rest + 1.0f);
    return (Floats)((Ints)value + ((Ints)shifted << 23));  // n more in the exponent, what is above it is shifted out
}

// log(1 + q) for q >= 0, accurate also where 1 + q rounds to 1.
inline Floats log_of_one_plus(Floats q) {
    Floats sum = q + 1.0f;
    Floats rounded_away = (q - (sum - 1.0f)) / sum;
    Ints pattern = (Ints)sum;
    Ints exponent = ((pattern >> 23) & 255) - 126;
    Floats fraction = (Floats)((pattern & 0x007FFFFF) | 0x3F000000);  // in [0.5, 1)
    Ints low = fraction < 0.707106781f;
    exponent += low;  // a set mask is -1
    Floats x = fraction + where(low, fraction) - 1.0f;
    Floats square = x * x;
    Floats series = 7.0376836292e-2f * x - 1.1514610310e-1f;
    series = series * x + 1.1676998740e-1f;
    series = series * x - 1.2420140846e-1f;
    series = series * x + 1.4249322787e-1f;
    series = series * x - 1.6668057665e-1f;
    series = series * x + 2.0000714765e-1f;
    series = series * x - 2.4999993993e-1f;
    series = series * x + 3.3333331174e-1f;
    Floats whole = as_floats(exponent);
    Floats value = series * x * square - whole * 2.12194440e-4f - 0.5f * square + x + whole * 0.693359375f;
    return value + rounded_away;
}

// -log(1 - u) for u in [0, 0.5], to 1.3e-6 of it, and sums of many to 1e-7: u times a polynomial of degree 6 that begins
// with u^6, in Knuth's form, which takes half as many products as Horner's; additions have units of their own.
inline Floats minus_log_of_rest(Floats u) {
    const Floats square = (u + 0.53189343f) * u + 0.79274434f;
    const Floats cube = (u - 1.35733545f) * square + 1.92638862f;
    return u * ((cube + (square - 1.82237709f)) * cube + 1.15244150f);
}

}  // namespace aimfor
