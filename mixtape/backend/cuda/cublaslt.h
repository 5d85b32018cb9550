// Matrix products by cuBLASLt, found at run time.
#pragma once

#include <map>
#include <memory>
#include <tuple>

#include "mixtape/backend/cuda/driver.h"
#include "mixtape/backend/gpu/launcher.h"

namespace mixtape::cuda {

struct LtTable;
struct LtPlan;

// One device's products. Plans (descriptors and the chosen algorithm) are kept per shape. Not thread-safe.
class MatrixProducts {
 public:
  static constexpr std::size_t kWorkspaceBytes = std::size_t{32} << 20;
  // Whether cuBLASLt is there.
  static bool is_there();
  MatrixProducts();
  ~MatrixProducts();
  // Throws not_supported where cuBLASLt is missing or knows no algorithm for the shape.
  void run(const gpu::Gemm& gemm, DevicePointer a, DevicePointer b, DevicePointer c, DevicePointer addend,
           DevicePointer workspace, Stream stream);

 private:
  using Key = std::tuple<DType, DType, std::int64_t, std::int64_t, std::int64_t, bool, bool, std::int64_t,
                         std::int64_t, std::int64_t, std::int64_t, std::int64_t, std::int64_t, std::int64_t,
                         std::uint32_t, std::uint32_t, std::uint32_t>;
  LtPlan& plan(const gpu::Gemm& gemm, std::uint32_t align_a, std::uint32_t align_b, std::uint32_t align_c);
  const LtTable* lt_ = nullptr;
  void* handle_ = nullptr;
  std::map<Key, std::unique_ptr<LtPlan>> plans_;
};

}  // namespace mixtape::cuda
