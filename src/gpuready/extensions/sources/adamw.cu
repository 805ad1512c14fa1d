// AdamW on the GPU: many tensors in one launch. Their addresses travel as the argument of the kernel, so that nothing
// is copied to the device and nothing has to outlive the call; it can be captured in a CUDA graph.
#include <cuda_runtime.h>

#include "adamw.h"

#ifndef GPUREADY_THREADS
#define GPUREADY_THREADS 512
#endif
#ifndef GPUREADY_UNROLL
#define GPUREADY_UNROLL 2
#endif
#ifndef GPUREADY_PASSES
#define GPUREADY_PASSES 4
#endif
#ifndef GPUREADY_STREAM
#define GPUREADY_STREAM 1  // 1: what is read and written is not worth a place in the cache
#endif

#define PUBLIC extern "C" __attribute__((visibility("default")))

namespace {

// Arguments may have 4 KB; from CUDA 13 on, whose drivers all know it, 32 KB.
#if __CUDACC_VER_MAJOR__ >= 13
constexpr int ROWS = 720;
#else
constexpr int ROWS = 88;
#endif

struct Row {
  void *p;
  const void *g;
  void *m;
  void *v;
  int64_t n;
};

struct Table {
  Rule rule;
  int count;
  int first[ROWS];  // the first block of each tensor
  Row row[ROWS];
};
static_assert(sizeof(Table) <= (__CUDACC_VER_MAJOR__ >= 13 ? 32764 : 4096), "the argument is too large");

template <int KIND> struct As;

template <> struct As<F32> {
  using Raw = float;
  static __device__ float get(Raw x) { return x; }
  static __device__ Raw put(float x) { return x; }
};

template <> struct As<BF16> {
  using Raw = uint16_t;
  static __device__ float get(Raw x) { return __uint_as_float(static_cast<uint32_t>(x) << 16); }
  static __device__ Raw put(float x) {
    Raw h;
#if __CUDA_ARCH__ >= 800
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(h) : "f"(x));
#else
    const uint32_t u = __float_as_uint(x);
    const bool nan = (u & 0x7fffffffu) > 0x7f800000u;
    h = nan ? 0x7fff : static_cast<Raw>((u + 0x7fffu + ((u >> 16) & 1u)) >> 16);
#endif
    return h;
  }
};

template <> struct As<F16> {
  using Raw = uint16_t;
  static __device__ float get(Raw h) {
    float x;
    asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"(h));
    return x;
  }
  static __device__ Raw put(float x) {
    Raw h;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(h) : "f"(x));
    return h;
  }
};

__device__ float square_root(float x) {
  float y;
  asm("sqrt.approx.f32 %0, %1;" : "=f"(y) : "f"(x));  // within an ulp, and right for subnormal numbers
  return y;
}

// One element: everything is in registers, and in float.
template <int P, int G, int S>
__device__ __forceinline__ void one(typename As<P>::Raw &p, typename As<G>::Raw g, typename As<S>::Raw &m,
                                    typename As<S>::Raw &v, const Rule &r) {
  const float old = As<P>::get(p);
  const float grad = fmaf(As<G>::get(g), r.gain, r.l2 * old);
  const float first = As<S>::get(m);
  const float mean = fmaf(grad - first, r.new1, first);
  const float square = fmaf(As<S>::get(v), r.beta2, r.new2 * grad * grad);
  const float below = fmaf(square_root(square), r.root, r.eps);
  p = As<P>::put(fmaf(-r.rate, __fdividef(mean, below), old * r.shrink));
  m = As<S>::put(mean);
  v = As<S>::put(square);
}

// As many elements as one access of 16 bytes holds of the widest type; the others take 8.
template <class T, int V> struct alignas(sizeof(T) * V) Pack {
  T x[V];
};

template <int BYTES> struct Word;
template <> struct Word<16> { using Is = uint4; };
template <> struct Word<8> { using Is = uint2; };

template <class T, int V> __device__ __forceinline__ Pack<T, V> read(const void *base, int at) {
  using Is = typename Word<sizeof(T) * V>::Is;
  union { Is word; Pack<T, V> pack; } both;
#if GPUREADY_STREAM
  both.word = __ldcs(static_cast<const Is *>(base) + at);
#else
  both.word = static_cast<const Is *>(base)[at];
#endif
  return both.pack;
}

template <class T, int V> __device__ __forceinline__ void write(void *base, int at, const Pack<T, V> &pack) {
  using Is = typename Word<sizeof(T) * V>::Is;
  union { Is word; Pack<T, V> pack; } both;
  both.pack = pack;
#if GPUREADY_STREAM
  __stcs(static_cast<Is *>(base) + at, both.word);
#else
  static_cast<Is *>(base)[at] = both.word;
#endif
}

__device__ __forceinline__ int row_of(const Table &t, int block) {
  int low = 0, high = t.count - 1;
  while (low < high) {
    const int middle = (low + high + 1) >> 1;
    if (t.first[middle] <= block) low = middle; else high = middle - 1;
  }
  return low;
}

__host__ __device__ constexpr int wide(int p, int g, int s) { return p == F32 || g == F32 || s == F32 ? 4 : 8; }

// How many elements a block takes.
__host__ __device__ constexpr int chunk(int vector) { return GPUREADY_THREADS * GPUREADY_UNROLL * GPUREADY_PASSES * vector; }

template <int P, int G, int S>
__global__ void __launch_bounds__(GPUREADY_THREADS) step(const __grid_constant__ Table t) {
  using Param = typename As<P>::Raw;
  using Grad = typename As<G>::Raw;
  using State = typename As<S>::Raw;
  constexpr int V = wide(P, G, S), CHUNK = chunk(V);
  const int which = row_of(t, blockIdx.x);
  const Row row = t.row[which];
  const int64_t start = static_cast<int64_t>(blockIdx.x - t.first[which]) * CHUNK;
  const int n = static_cast<int>(min(static_cast<int64_t>(CHUNK), row.n - start));
  Param *p = static_cast<Param *>(row.p) + start;
  const Grad *g = static_cast<const Grad *>(row.g) + start;
  State *m = static_cast<State *>(row.m) + start;
  State *v = static_cast<State *>(row.v) + start;
  const Rule r = t.rule;

  const uintptr_t odd = reinterpret_cast<uintptr_t>(p) % (V * sizeof(Param)) |
                        reinterpret_cast<uintptr_t>(g) % (V * sizeof(Grad)) |
                        reinterpret_cast<uintptr_t>(m) % (V * sizeof(State)) |
                        reinterpret_cast<uintptr_t>(v) % (V * sizeof(State));
  const int packs = odd ? 0 : n / V;
  for (int base = threadIdx.x; base < packs; base += GPUREADY_THREADS * GPUREADY_UNROLL) {
    Pack<Param, V> pp[GPUREADY_UNROLL];
    Pack<Grad, V> gg[GPUREADY_UNROLL];
    Pack<State, V> mm[GPUREADY_UNROLL], vv[GPUREADY_UNROLL];
#pragma unroll
    for (int u = 0; u < GPUREADY_UNROLL; ++u) {
      const int at = base + u * GPUREADY_THREADS;
      if (at < packs) {
        gg[u] = read<Grad, V>(g, at);
        pp[u] = read<Param, V>(p, at);
        mm[u] = read<State, V>(m, at);
        vv[u] = read<State, V>(v, at);
      }
    }
#pragma unroll
    for (int u = 0; u < GPUREADY_UNROLL; ++u) {
      const int at = base + u * GPUREADY_THREADS;
      if (at < packs) {
#pragma unroll
        for (int k = 0; k < V; ++k) one<P, G, S>(pp[u].x[k], gg[u].x[k], mm[u].x[k], vv[u].x[k], r);
        write<Param, V>(p, at, pp[u]);
        write<State, V>(m, at, mm[u]);
        write<State, V>(v, at, vv[u]);
      }
    }
  }
  // What does not fill a pack, and tensors that do not begin on a multiple of one.
  for (int i = packs * V + threadIdx.x; i < n; i += GPUREADY_THREADS) one<P, G, S>(p[i], g[i], m[i], v[i], r);
}

using Launch = void (*)(const Table &, int, cudaStream_t);

template <int P, int G, int S> void launch(const Table &t, int blocks, cudaStream_t stream) {
  step<P, G, S><<<blocks, GPUREADY_THREADS, 0, stream>>>(t);
}

Launch choose(int p, int g, int s) {
#define PICK(P, G, S) \
  if (p == P && g == G && s == S) return launch<P, G, S>;
  GPUREADY_TYPES(PICK)
  return nullptr;
}

// The device is made current for a call and given back: the caller's thread keeps its own.
struct On {
  int before = -1;
  cudaError_t error;
  explicit On(int device) {
    error = cudaGetDevice(&before);
    if (error == cudaSuccess && before != device) error = cudaSetDevice(device);
    after = device;
  }
  ~On() { if (before >= 0 && before != after) cudaSetDevice(before); }
  int after;
};

}  // namespace

PUBLIC const char *gpuready_cuda_says(int error) { return cudaGetErrorString(static_cast<cudaError_t>(error)); }

// One step over `count` tensors, on a device and one of its streams. 0: launched; -1: these types are not compiled;
// else the error of CUDA.
PUBLIC int gpuready_adamw_cuda(int64_t count, void *const *p, const void *const *g, void *const *m, void *const *v,
                             const int64_t *n, int ptype, int gtype, int stype, const double *settings, int device,
                             void *stream) {
  const Launch run = choose(ptype, gtype, stype);
  if (run == nullptr) return -1;
  const On on(device);
  if (on.error != cudaSuccess) return on.error;
  static thread_local Table t;  // 32 KB: too much for some stacks
  t.rule = rule_of(settings);
  const int64_t each = chunk(wide(ptype, gtype, stype));
  int64_t at = 0;
  while (at < count) {
    t.count = 0;
    int64_t blocks = 0;
    for (; at < count && t.count < ROWS; ++at) {
      const int64_t more = (n[at] + each - 1) / each;
      if (more == 0) continue;
      if (blocks + more > 0x7fffffff) break;
      t.first[t.count] = static_cast<int>(blocks);
      t.row[t.count++] = Row{p[at], g[at], m[at], v[at], n[at]};
      blocks += more;
    }
    if (blocks == 0) break;
    run(t, static_cast<int>(blocks), static_cast<cudaStream_t>(stream));
    const cudaError_t error = cudaGetLastError();
    if (error != cudaSuccess) return error;
  }
  return 0;
}
