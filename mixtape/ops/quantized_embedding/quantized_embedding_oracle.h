#pragma once

#include "mixtape/ops/embedding/embedding_oracle.h"
#include "mixtape/ops/quantize/quantize_oracle.h"

namespace mixtape::oracle {

template <class T>
std::vector<T> quantized_embedding(const std::vector<T>& words, const std::vector<T>& scales,
                                   const std::vector<T>& biases, const std::vector<double>& ids,
                                   AffineParams params, std::int64_t hidden) {
  return embedding(dequantize(words, scales, biases, params, hidden), ids, hidden);
}

// {dscales, dbiases}
inline std::vector<std::vector<double>> quantized_embedding_backward(const std::vector<double>& words,
                                                                     const std::vector<double>& ids,
                                                                     const std::vector<double>& dy,
                                                                     AffineParams params, std::int64_t rows,
                                                                     std::int64_t hidden) {
  return dequantize_backward(words, embedding_backward(ids, dy, rows, hidden), params, hidden);
}

}  // namespace mixtape::oracle
