#pragma once

#include <cstdint>

namespace mixtape {

// `batch` products op(a)[m,k] * op(b)[k,n], each matrix dense and directly behind the one before.
struct MatmulParams {
  std::int64_t batch;
  std::int64_t m;
  std::int64_t n;
  std::int64_t k;
  std::uint32_t trans_a;  // a is stored [k,m]
  std::uint32_t trans_b;  // b is stored [n,k]
  std::uint32_t accumulate;
};

}  // namespace mixtape
