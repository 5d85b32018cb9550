#pragma once

#include "mixtape/ops/grouped_matmul/grouped_matmul_oracle.h"
#include "mixtape/ops/quantize/quantize_oracle.h"

namespace mixtape::oracle {

// One expert that has all rows is the plain product.
template <class T>
std::vector<T> quantized_matmul(const GroupedMatmulCase& c, AffineParams format, const std::vector<T>& x,
                                const std::vector<T>& words, const std::vector<T>& scales,
                                const std::vector<T>& biases) {
  return grouped_matmul(c, x, dequantize(words, scales, biases, format, c.k));
}

// {dx, nothing for the codes, dscales, dbiases}
inline std::vector<std::vector<double>> quantized_matmul_backward(
    const GroupedMatmulCase& c, AffineParams format, const std::vector<double>& x,
    const std::vector<double>& words, const std::vector<double>& scales, const std::vector<double>& biases,
    const std::vector<double>& dy) {
  const auto dense = grouped_matmul_backward(c, x, dequantize(words, scales, biases, format, c.k), dy);
  const auto groups = dequantize_backward(words, dense[1], format, c.k);
  return {dense[0], {}, groups[0], groups[1]};
}

}  // namespace mixtape::oracle
