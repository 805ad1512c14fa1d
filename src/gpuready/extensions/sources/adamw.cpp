// AdamW on the CPU. One loop, compiled for several instruction sets; the best that this processor has is taken
// when it is called, so that one library serves every machine that shares a disk.
#include <algorithm>
#include <cstring>
#include <vector>

#include "adamw.h"

#define INLINE inline __attribute__((always_inline))
#define PUBLIC extern "C" __attribute__((visibility("default")))

namespace {

INLINE uint32_t bits(float x) {
  uint32_t u;
  std::memcpy(&u, &x, 4);
  return u;
}

INLINE float number(uint32_t u) {
  float x;
  std::memcpy(&x, &u, 4);
  return x;
}

template <int KIND> struct As;

template <> struct As<F32> {
  using Raw = float;
  static INLINE float get(Raw x) { return x; }
  static INLINE Raw put(float x) { return x; }
};

template <> struct As<BF16> {
  using Raw = uint16_t;
  static INLINE float get(Raw x) { return number(static_cast<uint32_t>(x) << 16); }
  static INLINE Raw put(float x) {  // to the nearest, ties to even; a NaN stays one
    const uint32_t u = bits(x);
    const uint32_t rounded = (u + 0x7fffu + ((u >> 16) & 1u)) >> 16;
    const uint32_t nan = (u >> 16) | 0x40u;
    return static_cast<Raw>((u & 0x7fffffffu) > 0x7f800000u ? nan : rounded);
  }
};

// Half precision without branches and without F16C: it vectorises everywhere.
template <> struct As<F16> {
  using Raw = uint16_t;
  static INLINE float get(Raw h) {
    const uint32_t magnitude = h & 0x7fffu, sign = static_cast<uint32_t>(h & 0x8000u) << 16;
    // The exponent is moved by a multiplication, which also gets subnormal numbers right.
    const uint32_t finite = bits(number(magnitude << 13) * 5.192296858534828e33f);  // 2^112
    const uint32_t special = (magnitude << 13) | 0x7f800000u;
    return number((magnitude >= 0x7c00u ? special : finite) | sign);
  }
  static INLINE Raw put(float x) {
    const uint32_t u = bits(x), sign = (u >> 16) & 0x8000u, a = u & 0x7fffffffu;
    const uint32_t normal = (a + 0xc8000fffu + ((a >> 13) & 1u)) >> 13;
    const uint32_t small = bits(number(a) + 0.5f) - 0x3f000000u;  // the addition rounds at 2^-24
    const uint32_t special = a > 0x7f800000u ? 0x7e00u : 0x7c00u;
    const uint32_t found = a < 0x38800000u ? small : (a >= 0x477ff000u ? special : normal);
    return static_cast<Raw>(found | sign);
  }
};

template <int P, int G, int S>
INLINE void span(void *p_, const void *g_, void *m_, void *v_, int64_t at, int64_t n, const Rule &rule) {
  using Param = typename As<P>::Raw;
  using Grad = typename As<G>::Raw;
  using State = typename As<S>::Raw;
  Param *__restrict__ p = static_cast<Param *>(p_) + at;
  const Grad *__restrict__ g = static_cast<const Grad *>(g_) + at;
  State *__restrict__ m = static_cast<State *>(m_) + at;
  State *__restrict__ v = static_cast<State *>(v_) + at;
  const Rule r = rule;
  for (int64_t i = 0; i < n; ++i) {
    const float old = As<P>::get(p[i]);
    const float grad = As<G>::get(g[i]) * r.gain + r.l2 * old;
    const float first = As<S>::get(m[i]);
    const float mean = first + (grad - first) * r.new1;
    const float square = As<S>::get(v[i]) * r.beta2 + r.new2 * grad * grad;
    p[i] = As<P>::put(old * r.shrink - r.rate * (mean / (__builtin_sqrtf(square) * r.root + r.eps)));
    m[i] = As<S>::put(mean);
    v[i] = As<S>::put(square);
  }
}

using Span = void (*)(void *, const void *, void *, void *, int64_t, int64_t, const Rule &);

#define FLAVOUR(NAME, TARGET)                                                                             \
  template <int P, int G, int S>                                                                          \
  TARGET void NAME(void *p, const void *g, void *m, void *v, int64_t at, int64_t n, const Rule &r) {      \
    span<P, G, S>(p, g, m, v, at, n, r);                                                                  \
  }

FLAVOUR(plain, )  // SSE2 on x86, NEON on aarch64: whatever the compiler may take for granted
#if defined(__x86_64__)
FLAVOUR(avx2, __attribute__((target("avx2,fma"))))
#if defined(__clang__)
FLAVOUR(avx512, __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,fma"))))
#else
FLAVOUR(avx512, __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,fma,prefer-vector-width=512"))))
#endif
#endif

enum Flavour { AUTO, PLAIN, AVX2, AVX512 };

bool has(int flavour) {
#if defined(__x86_64__)
  __builtin_cpu_init();
  if (flavour == AVX2) return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  if (flavour == AVX512)
    return has(AVX2) && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
#endif
  return flavour == PLAIN;
}

int best() { return has(AVX512) ? AVX512 : has(AVX2) ? AVX2 : PLAIN; }

Span choose(int p, int g, int s, int flavour) {
#if defined(__x86_64__)
#define PICK(P, G, S)                  \
  if (p == P && g == G && s == S)      \
    return flavour == AVX512 ? avx512<P, G, S> : flavour == AVX2 ? avx2<P, G, S> : plain<P, G, S>;
#else
#define PICK(P, G, S) \
  if (p == P && g == G && s == S) return plain<P, G, S>;
#endif
  GPUREADY_TYPES(PICK)
  return nullptr;
}

constexpr int64_t CHUNK = 1 << 16;

}  // namespace

// The instruction set that is taken here: 1 plain, 2 AVX2, 3 AVX-512.
PUBLIC int gpuready_adamw_cpu_flavour() { return best(); }

PUBLIC int gpuready_adamw_cpu_threaded() {
#ifdef _OPENMP
  return 1;
#else
  return 0;
#endif
}

// One step over `count` tensors. 0: done; 1: these types are not compiled; 2: this processor lacks that flavour.
PUBLIC int gpuready_adamw_cpu(int64_t count, void *const *p, const void *const *g, void *const *m, void *const *v,
                            const int64_t *n, int ptype, int gtype, int stype, const double *settings,
                            int threads, int flavour) {
  const int taken = flavour == AUTO ? best() : flavour;
  if (!has(taken)) return 2;
  const Span run = choose(ptype, gtype, stype, taken);
  if (run == nullptr) return 1;
  const Rule rule = rule_of(settings);
  std::vector<int64_t> first(count + 1, 0);  // the first chunk of each tensor
  for (int64_t t = 0; t < count; ++t) first[t + 1] = first[t] + (n[t] + CHUNK - 1) / CHUNK;
  const int64_t chunks = first[count];
  (void)threads;
#ifdef _OPENMP
#pragma omp parallel for schedule(static) num_threads(threads > 0 ? threads : 1) if (chunks > 1 && threads > 1)
#endif
  for (int64_t c = 0; c < chunks; ++c) {
    const int64_t t = std::upper_bound(first.begin(), first.end(), c) - first.begin() - 1;
    const int64_t at = (c - first[t]) * CHUNK;
    run(p[t], g[t], m[t], v[t], at, std::min(CHUNK, n[t] - at), rule);
  }
  return 0;
}
