// AdamW for many tensors: what the CPU and the CUDA kernel share. Plain C ABI; no torch, no Python.
#pragma once
#include <cmath>
#include <cstdint>

// How the numbers of a tensor are kept: the codes of the C interface.
enum Kind { F32 = 0, BF16 = 1, F16 = 2 };

// What a caller hands over, in double precision: in this order, as an array.
enum Setting { LR, BETA1, BETA2, EPS, DECAY, STEP, SCALE, FLAGS, SETTINGS };
enum Flag { DECOUPLED = 1, MAXIMIZE = 2 };

// What every element needs, worked out once per call in double precision.
struct Rule {
  float shrink;     // what decoupled weight decay leaves of a parameter
  float l2;         // weight decay added to the gradient, where it is not decoupled
  float gain;       // the gradient is multiplied by this: unscaling, and the sign when maximizing
  float new1;       // 1 - beta1
  float beta2;
  float new2;       // 1 - beta2
  float rate;       // lr / (1 - beta1^step)
  float root;       // 1 / sqrt(1 - beta2^step)
  float eps;
};

inline Rule rule_of(const double *s) {
  const int flags = static_cast<int>(s[FLAGS]);
  const bool decoupled = flags & DECOUPLED;
  Rule r;
  r.shrink = static_cast<float>(decoupled ? 1.0 - s[LR] * s[DECAY] : 1.0);
  r.l2 = static_cast<float>(decoupled ? 0.0 : s[DECAY]);
  r.gain = static_cast<float>(flags & MAXIMIZE ? -s[SCALE] : s[SCALE]);
  r.new1 = static_cast<float>(1.0 - s[BETA1]);
  r.beta2 = static_cast<float>(s[BETA2]);
  r.new2 = static_cast<float>(1.0 - s[BETA2]);
  r.rate = static_cast<float>(s[LR] / (1.0 - std::pow(s[BETA1], s[STEP])));
  r.root = static_cast<float>(1.0 / std::sqrt(1.0 - std::pow(s[BETA2], s[STEP])));
  r.eps = static_cast<float>(s[EPS]);
  return r;
}

// The pairs of types that are compiled: states are kept in float, or like the parameter.
// DO(parameter, gradient, state)
#define GPUREADY_TYPES(DO) \
  DO(F32, F32, F32) DO(F32, BF16, F32) DO(F32, F16, F32) \
  DO(BF16, BF16, F32) DO(BF16, BF16, BF16) DO(BF16, F32, F32) DO(BF16, F32, BF16) \
  DO(F16, F16, F32) DO(F16, F16, F16) DO(F16, F32, F32) DO(F16, F32, F16)
