// What arithmetic alone takes: exp and x * sigmoid(x) of values that never leave the registers, on all
// threads, in f32 as the host kernels compute them; the bound of ops that are made of exponentials.
//   registers OUT.csv      rows: op,dtype,shape,impl,us,best_us
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "bench/registers.cpp"
#include <atomic>
#include <fstream>

#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "mixtape/backend/cpu/parallel.h"
#include "mixtape/backend/cpu/simd-inl.h"
#include "mixtape/core/error.h"
#include "mixtape/testing/copy_bandwidth.h"

HWY_BEFORE_NAMESPACE();
namespace mixtape::HWY_NAMESPACE {

template <class Function>
HWY_INLINE float sum_in_registers(std::int64_t count, Function function) {
  const Floats lowest = set(-1.0f), rise = set(0x1p-12f);
  Floats x = lowest, sum0 = zero(), sum1 = zero();
  for (std::int64_t i = 0; i < count; i += 2 * static_cast<std::int64_t>(lanes())) {
    sum0 = hn::Add(sum0, function(x));
    sum1 = hn::Add(sum1, function(hn::Mul(x, set(0.5f))));
    x = hn::Add(x, rise);
    x = hn::IfThenElse(hn::Lt(x, zero()), x, lowest);
  }
  return sum_lanes(hn::Add(sum0, sum1));
}

inline float sum_of_exp(std::int64_t count) {
  return sum_in_registers(count, [](Floats x) MIXTAPE_SUM_ATTR { return exp(x); });
}
inline float sum_of_silu(std::int64_t count) {
  return sum_in_registers(count, [](Floats x) MIXTAPE_SUM_ATTR { return silu(x); });
}

}  // namespace mixtape::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mixtape {
namespace {

HWY_EXPORT(sum_of_exp);
HWY_EXPORT(sum_of_silu);

template <class Function>
void measure(std::ofstream& out, const char* op, Function function) {
  constexpr std::int64_t kCount = std::int64_t{1} << 24;
  std::atomic<float> any = 0.0f;
  const testing::Timing found = testing::time_calls(
      [&] {
        cpu::parallel_for(kCount, std::int64_t{1} << 18,
                          [&](std::int64_t begin, std::int64_t end) { any = function(end - begin); });
      },
      0.3);
  out << str(op, ",f32,", kCount, ",registers alone,", found.median * 1e6, ",", found.best * 1e6, "\n");
}

}  // namespace
}  // namespace mixtape

int main(int count, char** arguments) {
  using namespace mixtape;
  if (count < 2) return 2;
  std::ofstream out(arguments[1]);
  out << "op,dtype,shape,impl,us,best_us\n";
  measure(out, "elementwise_exp_forward", [](std::int64_t n) { return HWY_DYNAMIC_DISPATCH(sum_of_exp)(n); });
  measure(out, "elementwise_silu_forward",
          [](std::int64_t n) { return HWY_DYNAMIC_DISPATCH(sum_of_silu)(n); });
  return 0;
}
#endif
