#include "mixtape/backend/cpu/gemm.h"

#include <unistd.h>

#include <cmath>
#include <fstream>

#include "mixtape/testing/check_op.h"

namespace mixtape::cpu {
namespace {

using testing::HostTensor;

struct Case {
  Gemm gemm;
  HostTensor a, b, c;  // c: what is there before
};

// Operands with two elements of padding behind every row.
Case make_case(DType ab, DType c, bool trans_a, bool trans_b, std::int64_t m, std::int64_t n, std::int64_t k,
               bool accumulate) {
  Case made{
      {.a = ab, .b = ab, .c = c, .trans_a = trans_a, .trans_b = trans_b, .m = m, .n = n, .k = k}, {}, {}, {}};
  const Shape a = trans_a ? Shape{k, m + 2} : Shape{m, k + 2};
  const Shape b = trans_b ? Shape{n, k + 2} : Shape{k, n + 2};
  made.gemm.lda = a[1];
  made.gemm.ldb = b[1];
  made.gemm.ldc = n + 2;
  made.gemm.accumulate = accumulate;
  made.a = testing::random_tensor(ab, a, 1);
  made.b = testing::random_tensor(ab, b, 2);
  made.c = testing::random_tensor(c, {m, n + 2}, 3);
  return made;
}

std::vector<double> expected(const Case& x) {
  const Gemm& g = x.gemm;
  std::vector<double> c = x.c.values;
  for (std::int64_t i = 0; i < g.m; ++i) {
    for (std::int64_t j = 0; j < g.n; ++j) {
      double sum = g.accumulate ? c[i * g.ldc + j] : 0.0;
      for (std::int64_t l = 0; l < g.k; ++l) {
        sum += x.a.values[g.trans_a ? l * g.lda + i : i * g.lda + l] *
               x.b.values[g.trans_b ? j * g.ldb + l : l * g.ldb + j];
      }
      c[i * g.ldc + j] = sum;
    }
  }
  return c;
}

Buffer run(const Case& x, bool on_this_thread = false) {
  const Device device = Device::cpu();
  const Buffer a = upload(device, x.a), b = upload(device, x.b), c = upload(device, x.c);
  (on_this_thread ? gemm_on_this_thread : gemm)(x.gemm, a.host_bytes(), b.host_bytes(), c.host_bytes());
  return c;
}

// A sum of k products of standard normals errs by at most k * 2^-24 * (sum of magnitudes, below 1.5 k for
// these); in practice by its square root, and one rounding of the result.
void check(const Case& x, const std::string& what) {
  const double k = static_cast<double>(x.gemm.k);
  const testing::Bound bound{1.0, 8.0 * (k + 1.0) * 0x1p-24};
  testing::expect_close(what, run(x), expected(x), bound);
}

TEST(Gemm, EveryLayoutAndType) {
  for (const auto& [ab, c] : {std::pair{DType::f32, DType::f32},
                              {DType::bf16, DType::bf16},
                              {DType::bf16, DType::f32},
                              {DType::f32, DType::bf16},
                              {DType::f16, DType::f16},
                              {DType::f16, DType::f32},
                              {DType::f32, DType::f16}}) {
    for (int flags = 0; flags < 8; ++flags) {
      for (const auto& [m, n, k] : {std::array<std::int64_t, 3>{1, 1, 1},
                                    {1, 7, 5},
                                    {6, 1, 3},
                                    {17, 33, 31},
                                    {4, 20, 150},
                                    {64, 48, 96},
                                    {2, 300, 19}}) {
        const Case x = make_case(ab, c, flags & 1, flags & 2, m, n, k, flags & 4);
        check(x, str(ab, "->", c, " flags ", flags, " ", m, "x", n, "x", k));
      }
    }
  }
}

TEST(Gemm, SeveralTilesAndDepths) {
  for (int flags = 0; flags < 8; ++flags) {
    for (const DType dtype : testing::kValueDtypes) {
      check(make_case(dtype, dtype, flags & 1, flags & 2, 530, 310, 20, flags & 4), str("wide ", flags));
      check(make_case(dtype, dtype, flags & 1, flags & 2, 20, 18, 1601, flags & 4), str("deep ", flags));
    }
  }
}

TEST(Gemm, SameBitsForAnyThreadCount) {
  for (const DType dtype : testing::kValueDtypes) {
    for (int flags = 0; flags < 4; ++flags) {
      const Case x = make_case(dtype, dtype, flags & 1, flags & 2, 520, 300, 780, false);
      testing::expect_same_bits(
          "gemm",
          [&] {
            return std::vector<Buffer>{run(x), run(x, true)};
          },
          3);
    }
  }
}

// The smallest numbers of bf16 are lost where it is multiplied faster, and nowhere else.
TEST(Gemm, SubnormalsOfBf16) {
  for (const DType dtype : {DType::bf16, DType::f16}) {
    Case x = make_case(dtype, DType::f32, false, true, 8, 16, 32, false);
    for (double& v : x.a.values) v = 0x1p-130;
    for (double& v : x.b.values) v = 1.0;
    const bool lost = dtype == DType::f16 || has_fast_bf16();  // f16 has no such number
    EXPECT_EQ(testing::download(run(x)).values[0], lost ? 0.0 : 32 * 0x1p-130) << dtype;
  }
}

TEST(Gemm, SizesThatVary) {
  for (const DType dtype : testing::kValueDtypes) {
    for (int flags = 0; flags < 8; ++flags) {
      for (const std::int64_t size : {1, 4, 5, 8, 9, 37, 65, 130, 521, 900}) {
        for (const auto& [m, k] : {std::pair<std::int64_t, std::int64_t>{size, 19}, {19, size}}) {
          Case x = make_case(dtype, dtype, flags & 1, flags & 2, m, 33, k, flags & 4);
          x.gemm.sizes_vary = true;
          check(x, str(dtype, " ", flags, " ", m, "x33x", k));
        }
      }
    }
  }
}

std::int64_t resident_bytes() {
  std::ifstream statm("/proc/self/statm");
  std::int64_t all = 0, resident = 0;
  statm >> all >> resident;
  return resident * ::sysconf(_SC_PAGESIZE);
}

// oneDNN keeps some 60 KB for every size that it was asked for.
TEST(Gemm, SizesThatVaryDoNotFillTheMemory) {
  const auto run_all = [](std::int64_t step) {
    for (std::int64_t rows = step; rows <= 512; rows += step) {
      Case x = make_case(DType::f32, DType::f32, false, false, rows, 24, 24, false);
      x.gemm.sizes_vary = true;
      run(x);
    }
  };
  run_all(8);
  const std::int64_t before = resident_bytes();
  run_all(1);
  EXPECT_LT(resident_bytes() - before, 8 << 20);
}

TEST(Gemm, DepthZeroGivesZeroOrKeeps) {
  for (const bool accumulate : {false, true}) {
    const Case x = make_case(DType::f32, DType::f32, false, false, 3, 4, 0, accumulate);
    testing::expect_close("k = 0", run(x), expected(x), {0.0, 0.0});
  }
}

TEST(Gemm, NanStaysInItsRow) {
  Case x = make_case(DType::bf16, DType::f32, false, true, 20, 20, 70, false);
  x.a.values[5 * x.gemm.lda + 3] = NAN;
  const std::vector<float> c = run(x).to_vector<float>();
  for (std::int64_t i = 0; i < 20; ++i) {
    for (std::int64_t j = 0; j < 20; ++j)
      EXPECT_EQ(std::isnan(c[i * x.gemm.ldc + j]), i == 5) << i << "," << j;
  }
}

TEST(Gemm, AllProductsOfAList) {
  const Device device = Device::cpu();
  std::vector<Case> cases;
  std::vector<Buffer> buffers;
  std::vector<GemmCall> calls;
  for (const std::int64_t m : {1, 600, 0, 40}) {
    cases.push_back(make_case(DType::f32, DType::f32, false, true, m, 30, 8, false));
    for (const HostTensor* t : {&cases.back().a, &cases.back().b, &cases.back().c})
      buffers.push_back(upload(device, *t));
    const auto* last = buffers.data() + buffers.size() - 3;
    calls.push_back({cases.back().gemm, last[0].host_bytes(), last[1].host_bytes(), last[2].host_bytes()});
  }
  gemm_all(calls);
  for (std::size_t i = 0; i < cases.size(); ++i)
    testing::expect_close(str("product ", i), buffers[3 * i + 2], expected(cases[i]), {1.0, 1e-5});
}

}  // namespace
}  // namespace mixtape::cpu
