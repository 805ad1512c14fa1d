// y = a x + y on the GPU, on the caller's stream. Returns CUDA's error code, 0 where it was launched.
#include <cstdint>

__global__ void saxpy_kernel(int64_t n, float a, const float *x, float *y) {
  int64_t i = blockIdx.x * int64_t(blockDim.x) + threadIdx.x;
  if (i < n) y[i] = a * x[i] + y[i];
}

extern "C" int saxpy(int64_t n, float a, const float *x, float *y, void *stream) {
  if (n <= 0) return 0;
  const int threads = 256;
  const int64_t blocks = (n + threads - 1) / threads;
  saxpy_kernel<<<blocks, threads, 0, static_cast<cudaStream_t>(stream)>>>(n, a, x, y);
  return static_cast<int>(cudaGetLastError());
}
