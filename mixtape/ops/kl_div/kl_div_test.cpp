#include "mixtape/ops/kl_div/kl_div.h"

#include <cmath>

#include "mixtape/ops/kl_div/kl_div_check.h"
#include "mixtape/testing/check_op.h"

namespace mixtape {
namespace {

using oracle::KlForm;
using testing::Doubles;
using testing::HostTensor;
using testing::upload;

TEST(KlDiv, MatchesOracle) {
  for (const Device& device : testing::test_devices()) {
    for (const DType dtype : testing::kValueDtypes) check_ops(device, kl_div_checks(device, dtype));
  }
}

TEST(KlDiv, WideRows) {
  for (const Device& device : testing::test_devices()) {
    check_op(device, kl_div_check(device, DType::bf16, DType::bf16, 2, 20011, {2.0}));
    check_op(device, kl_div_check(device, DType::f32, DType::f32, 2, 20011, {2.0, 1024, false}));
    check_op(device, kl_div_check(device, DType::bf16, DType::bf16, 2, 20011, {2.0, 1024, true}));
    check_op(device, kl_div_check(device, DType::f16, DType::f16, 2, 20011, {2.0, 1024, true}));
  }
}

// On the CPU with the same bits. Each width takes another path on a GPU.
TEST(KlDiv, BothAtOnce) {
  for (const Device& device : testing::test_devices()) {
    for (const auto& [t_dtype, dtype] : {std::pair{DType::f32, DType::f32},
                                         {DType::bf16, DType::bf16},
                                         {DType::f16, DType::f16},
                                         {DType::f32, DType::bf16},
                                         {DType::f16, DType::bf16}}) {
      for (const std::int64_t cols : {1, 33, 4096, 20000, 40000, 80000, 151936}) {
        if (device.name() == "sim" && cols > 4096) continue;
        const testing::Poison poison(device);
        const Shape shape{3, cols};
        const Buffer t = upload(device, testing::random_tensor(t_dtype, shape, 5, 2.0));
        const Buffer s = upload(device, testing::random_tensor(dtype, shape, 6, 2.0));
        const Buffer dloss = Buffer::from(device, {3}, std::vector<float>{1.0f, 0.0f, -0.25f});
        const Buffer stats = device.alloc(DType::f32, {3, kKlStats});
        const Buffer loss = device.alloc_uninitialized(DType::f32, {3}), ds = device.alloc(dtype, shape);
        const Buffer loss_2 = device.alloc_uninitialized(DType::f32, {3});
        CommandEncoder encoder(device);
        kl_div_forward(encoder, t, s, 2.0f, loss, stats);
        kl_div_backward(encoder, t, s, 2.0f, stats, dloss, ds);
        kl_div_forward_backward(encoder, t, s, 2.0f, dloss, loss_2, s);
        encoder.commit_and_wait();
        if (device == Device::cpu()) {
          EXPECT_EQ(testing::download_bytes(loss), testing::download_bytes(loss_2));
          EXPECT_EQ(testing::download_bytes(ds), testing::download_bytes(s));
        }
        const std::string what = str(t_dtype, " ", dtype, " ", cols);
        testing::expect_close(what, testing::download(loss_2), testing::download(loss).values, {2.0, 5e-5});
        testing::expect_close(what, testing::download(s), testing::download(ds).values, {2.0, 2e-5});
      }
    }
  }
}

struct Result {
  std::vector<float> loss;
  std::vector<float> gradient;
};

// One forward and backward of f32 rows with dloss 1.
Result run(const Device& device, const std::vector<float>& teacher, const std::vector<float>& student,
           const KlOptions& options, float dloss = 1.0f) {
  const testing::Poison poison(device);
  Tape tape(device);
  const Shape shape{1, static_cast<std::int64_t>(student.size())};
  const Var s = tape.parameter(Buffer::from(device, shape, student));
  const Var loss = kl_div(s, Buffer::from(device, shape, teacher), options);
  tape.backward(loss, Buffer::from(device, {1}, std::vector<float>{dloss}));
  tape.encoder().commit_and_wait();
  return {loss.value().to_vector<float>(), s.grad().to_vector<float>()};
}

constexpr float kInf = HUGE_VALF;

TEST(KlDiv, A11_NoTeacherMassAddsNothing) {
  for (const Device& device : testing::test_devices()) {
    // p = (1/2, 1/2, 0), q = (1/2, 1/2, 0)
    const Result both = run(device, {0.0f, 0.0f, -kInf}, {3.0f, 3.0f, -kInf}, {});
    EXPECT_EQ(both.loss[0], 0.0f);
    EXPECT_EQ(both.gradient, std::vector<float>(3, 0.0f));
    // p = (1/2, 1/2, 0), q = 1/3: the gradient at p = 0 is q/T.
    const Result one = run(device, {0.0f, 0.0f, -kInf}, {1.0f, 1.0f, 1.0f}, {.temperature = 2.0f});
    EXPECT_FLOAT_EQ(one.loss[0], 0.405465108f);  // log(3/2)
    EXPECT_FLOAT_EQ(one.gradient[0], -1.0f / 12);
    EXPECT_FLOAT_EQ(one.gradient[2], 1.0f / 6);
  }
}

TEST(KlDiv, A11_TeacherMassWithoutStudentMassIsInfinite) {
  for (const Device& device : testing::test_devices()) {
    const Result full = run(device, {0.0f, 0.0f, 0.0f}, {0.0f, 0.0f, -kInf}, {});
    EXPECT_EQ(full.loss[0], kInf);
    EXPECT_FLOAT_EQ(full.gradient[0], 1.0f / 6);
    EXPECT_FLOAT_EQ(full.gradient[2], -1.0f / 3);
    const Result inside =
        run(device, {2.0f, 1.0f, 0.0f}, {-kInf, 0.0f, 0.0f}, {.top_k = 2, .rest_bucket = true});
    EXPECT_EQ(inside.loss[0], kInf);
    for (const float g : inside.gradient) EXPECT_TRUE(std::isfinite(g));
    // The whole rest is impossible for the student: its gradient is 0 there.
    const Result rest =
        run(device, {1.0f, 0.0f, 0.0f}, {1.0f, -kInf, -kInf}, {.top_k = 1, .rest_bucket = true});
    EXPECT_EQ(rest.loss[0], kInf);
    EXPECT_FLOAT_EQ(rest.gradient[0], 1.0f - 0.576116885f);
    EXPECT_EQ(rest.gradient[1], 0.0f);
  }
}

TEST(KlDiv, A11_EmptyRestAddsNothing) {
  for (const Device& device : testing::test_devices()) {
    const KlOptions bucket{.top_k = 2, .rest_bucket = true};
    const Result r = run(device, {0.0f, 0.0f, -kInf}, {0.0f, 0.0f, 0.0f}, bucket);
    EXPECT_FLOAT_EQ(r.loss[0], 0.405465108f);
    EXPECT_FLOAT_EQ(r.gradient[0], -1.0f / 6);
    EXPECT_FLOAT_EQ(r.gradient[2], 1.0f / 3);
    EXPECT_EQ(run(device, {0.0f, 0.0f, -kInf}, {5.0f, 5.0f, -kInf}, bucket).loss[0], 0.0f);
  }
}

TEST(KlDiv, A12_MaskedRowIsZeroWhateverItsLogits) {
  for (const Device& device : testing::test_devices()) {
    for (const KlOptions& options :
         {KlOptions{}, KlOptions{.top_k = 2}, KlOptions{.top_k = 2, .rest_bucket = true}}) {
      const Result r = run(device, {NAN, 0.0f, 1.0f}, {1.0f, NAN, 2.0f}, options, 0.0f);
      EXPECT_EQ(r.gradient, std::vector<float>(3, 0.0f));
    }
  }
}

TEST(KlDiv, A10_EveryWidthTo130) {
  for (const Device& device : testing::test_devices()) {
    for (const DType dtype : testing::kValueDtypes) {
      for (std::int64_t cols = 1; cols <= 130; ++cols)
        check_op(device, kl_div_check(device, dtype, dtype, 1, cols, {1.5}), 1);
    }
  }
}

TEST(KlDiv, A12_EmptyBatch) {
  for (const Device& device : testing::test_devices()) {
    for (const KlOptions& options : {KlOptions{}, KlOptions{.top_k = 2, .rest_bucket = true}}) {
      Tape tape(device);
      const Var s = tape.parameter(device.alloc(DType::f32, {0, 5}));
      const Var loss = kl_div(s, device.alloc(DType::f32, {0, 5}), options);
      EXPECT_EQ(loss.shape(), Shape({0}));
      tape.backward(loss, device.alloc(DType::f32, {0}));
      EXPECT_EQ(s.grad().shape(), Shape({0, 5}));
    }
  }
}

// Rows that differ by 1e-3: their divergence, 5e-7, is the difference of sums that agree in six digits.
TEST(KlDiv, NearlyEqualRowsKeepTheirDivergence) {
  constexpr std::int64_t kRows = 8;
  for (const Device& device : testing::test_devices()) {
    for (const std::int64_t cols : {100, 3000}) {
      const testing::HostTensor teacher = testing::random_tensor(DType::f32, {kRows, cols}, 3, 3.0),
                                change = testing::random_tensor(DType::f32, {kRows, cols}, 4, 1e-3);
      testing::Doubles moved = teacher.values;
      for (std::size_t i = 0; i < moved.size(); ++i) moved[i] += change.values[i];
      const testing::HostTensor student = testing::make_tensor(DType::f32, {kRows, cols}, moved);
      for (const oracle::KlForm& form : {oracle::KlForm{1.0}, oracle::KlForm{1.0, 64, false}}) {
        Tape tape(device);
        const Var loss =
            kl_div(tape.constant(upload(device, student)), upload(device, teacher), options_of(form));
        tape.encoder().commit_and_wait();
        const testing::Doubles wanted = oracle::kl_div(teacher.values, student.values, cols, form);
        const std::vector<float> found = loss.value().to_vector<float>();
        double found_mean = 0.0, wanted_mean = 0.0;
        for (std::size_t r = 0; r < wanted.size(); ++r) {
          found_mean += found[r] / kRows;
          wanted_mean += wanted[r] / kRows;
        }
        EXPECT_LT(wanted_mean, 1e-6);
        EXPECT_NEAR(found_mean, wanted_mean, 0.01 * wanted_mean) << device.name() << " " << cols;
      }
    }
  }
}

TEST(KlDiv, NanReachesTheLoss) {
  for (const Device& device : testing::test_devices()) {
    const std::vector<float> fine = {3.0f, 2.0f, 1.0f, 0.0f}, low = {3.0f, 2.0f, 1.0f, NAN},
                             high = {NAN, 2.0f, 1.0f, 0.0f};
    for (const KlOptions& options : {KlOptions{}, KlOptions{.top_k = 2, .rest_bucket = true}}) {
      for (const auto& bad : {low, high}) {
        EXPECT_TRUE(std::isnan(run(device, bad, fine, options).loss[0]));
        EXPECT_TRUE(std::isnan(run(device, fine, bad, options).loss[0]));
        for (const float g : run(device, fine, bad, options).gradient) EXPECT_TRUE(std::isnan(g));
      }
    }
  }
}

// The rest's mass is below the rounding of the whole on one side: 1 - sum would be 0.
TEST(KlDiv, SharpRowsKeepTheRest) {
  for (const Device& device : testing::test_devices()) {
    const KlForm form{1.0, 1, true};
    for (const float teacher_top : {0.0f, 25.0f, 90.0f, 200.0f}) {
      for (const float student_top : {0.0f, 25.0f, 90.0f, 200.0f}) {
        const std::vector<float> t = {teacher_top, -0.5f, 0.25f}, s = {student_top, 0.75f, -1.0f};
        const Result r = run(device, t, s, options_of(form));
        const Doubles teacher(t.begin(), t.end()), student(s.begin(), s.end());
        const Doubles loss = oracle::kl_div(teacher, student, 3, form);
        const Doubles gradient = oracle::kl_div_backward(teacher, student, 3, form, {1.0});
        EXPECT_NEAR(r.loss[0], loss[0], 1e-6 + 4e-7 * loss[0]) << teacher_top << " " << student_top;
        for (std::size_t c = 1; c < 3; ++c) {
          EXPECT_NEAR(r.gradient[c], gradient[c], 3e-5 * std::abs(gradient[c]) + 1e-37)
              << teacher_top << " " << student_top;
        }
      }
    }
  }
}

// Both maxima move all the way, over ranges whose exponentials f32 does not hold.
TEST(KlDiv, MovingMaxima) {
  for (const Device& device : testing::test_devices()) {
    const std::size_t cols = 20000;
    std::vector<float> rising(cols), falling(cols), far(cols, -1e30f);
    for (std::size_t c = 0; c < cols; ++c) {
      rising[c] = static_cast<float>(c) / 64.0f - 200.0f;
      falling[c] = static_cast<float>(c) / -256.0f;
    }
    far[cols - 1] = 0.0f;
    for (const auto& [t, s] : {std::pair{rising, falling}, {falling, rising}, {rising, rising}, {far, far}}) {
      const Doubles teacher(t.begin(), t.end()), student(s.begin(), s.end());
      const double wanted = oracle::kl_div(teacher, student, cols, {1.0})[0];
      EXPECT_NEAR(run(device, t, s, {}).loss[0], wanted, 1e-5 + 1e-5 * wanted);
    }
  }
}

// A row of several parts whose chosen entries are marked one after the other.
TEST(KlDiv, ManyColumns) {
  for (const Device& device : testing::test_devices()) {
    const std::int64_t cols = 140000;
    const KlForm form{2.0, 64, true};
    const Doubles teacher = testing::random_tensor(DType::f32, {cols}, 31, 3.0).values;
    const Doubles student = testing::random_tensor(DType::f32, {cols}, 32, 3.0).values;
    const Result r =
        run(device, {teacher.begin(), teacher.end()}, {student.begin(), student.end()}, options_of(form));
    EXPECT_NEAR(r.loss[0], oracle::kl_div(teacher, student, cols, form)[0], 1e-5);
    const Doubles gradient = oracle::kl_div_backward(teacher, student, cols, form, {1.0});
    for (std::size_t c = 0; c < gradient.size(); ++c)
      ASSERT_NEAR(r.gradient[c], gradient[c], 1e-10 + 3e-5 * std::abs(gradient[c])) << c;
  }
}

TEST(KlDiv, LargeLogitsKeepTheirDifferences) {
  for (const Device& device : testing::test_devices()) {
    const Result r = run(device, {1e8f, 1e8f}, {-1e8f, -1e8f}, {});
    EXPECT_EQ(r.loss[0], 0.0f);
    EXPECT_EQ(r.gradient, std::vector<float>(2, 0.0f));
  }
}

// Differences of logits past 65504 are those of f32.
TEST(KlDiv, RangeOfF16) {
  for (const Device& device : testing::test_devices()) {
    Tape tape(device);
    const Var s = tape.parameter(upload(device, {DType::f16, {2, 3}, {6e4, 6e4, -6e4, 6e4, -6e4, -6e4}}));
    const Buffer t = upload(device, {DType::f16, {2, 3}, {6e4, 6e4, -6e4, -6e4, 6e4, -6e4}});
    const Var loss = kl_div(s, t, {});
    tape.backward(loss, Buffer::from(device, {2}, std::vector<float>(2, 1.0f)));
    tape.encoder().commit_and_wait();
    EXPECT_EQ(loss.value().to_vector<float>(), (std::vector<float>{0.0f, 120000.0f}));
    EXPECT_EQ(testing::download(s.grad()).values, (Doubles{0.0, 0.0, 0.0, 1.0, -1.0, 0.0}));
  }
}

// The brute-force choice: every entry sorted.
void expect_targets(const Device& device, const HostTensor& teacher, std::int64_t k) {
  const testing::Poison poison(device);
  CommandEncoder encoder(device);
  const TopKTargets found = make_top_k_targets(encoder, upload(device, teacher), k, 2.0f);
  encoder.commit_and_wait();
  const auto logits = found.logits.to_vector<float>();
  const auto indices = found.indices.to_vector<std::uint32_t>();
  const std::int64_t cols = teacher.shape.cols();
  for (std::int64_t r = 0; r < teacher.shape.rows(); ++r) {
    const double* row = teacher.values.data() + r * cols;
    const std::vector<bool> in = oracle::largest(row, cols, k);
    std::size_t at = static_cast<std::size_t>(r * k);
    for (std::int64_t c = 0; c < cols; ++c) {
      if (!in[c]) continue;
      ASSERT_EQ(indices[at], c) << "row " << r << " of " << teacher.shape << ", k " << k;
      ASSERT_EQ(logits[at++], static_cast<float>(row[c]));
    }
    const double rest = oracle::log_sum_exp(row, in, false, 2.0);
    const double bound = 1e-5 + 1e-6 * std::abs(rest);
    if (cols == k) {
      EXPECT_EQ(found.rest_lse.to_vector<float>()[r], -kInf);
    } else {
      EXPECT_NEAR(found.rest_lse.to_vector<float>()[r], rest, bound);
    }
  }
}

TEST(TopKTargets, MatchesSorting) {
  for (const Device& device : testing::test_devices()) {
    for (const DType dtype : testing::kValueDtypes) {  // bf16: many ties
      for (const std::int64_t cols : {1, 2, 15, 16, 17, 100, 1000, 5003}) {
        for (const std::int64_t k : {1, 2, 16, 1000, 5003}) {
          if (k <= cols) expect_targets(device, testing::random_tensor(dtype, {3, cols}, 3), k);
        }
      }
    }
    expect_targets(device, testing::random_tensor(DType::f32, {2, 49152}, 4), 1024);
    expect_targets(device, testing::random_tensor(DType::bf16, {1, 140000}, 4), 1024);
    expect_targets(device, testing::random_tensor(DType::f32, {1, 131075}, 4), 131070);
  }
}

TEST(TopKTargets, TiesGoToTheLowerIndex) {
  for (const Device& device : testing::test_devices()) {
    expect_targets(device, testing::make_tensor(DType::f32, {1, 777}, Doubles(777, 3.0)), 5);
    expect_targets(device, testing::make_tensor(DType::bf16, {2, 5000}, Doubles(10000, 3.0)), 5);
    Doubles zeros(300, -1.0);
    for (std::size_t i = 0; i < zeros.size(); i += 7) zeros[i] = i % 2 == 0 ? -0.0 : 0.0;
    expect_targets(device, testing::make_tensor(DType::f32, {1, 300}, zeros), 11);
    Doubles rising(4000);
    for (std::size_t i = 0; i < rising.size(); ++i) rising[i] = static_cast<double>(i / 10);
    expect_targets(device, testing::make_tensor(DType::f32, {1, 4000}, rising), 1005);
    const std::vector<double> hidden = {-HUGE_VAL, -HUGE_VAL, 1.0, -HUGE_VAL};
    CommandEncoder encoder(device);
    const TopKTargets t = make_top_k_targets(encoder, upload(device, {DType::f32, {1, 4}, hidden}), 2, 1.0f);
    encoder.commit_and_wait();
    EXPECT_EQ(t.indices.to_vector<std::uint32_t>(), (std::vector<std::uint32_t>{0, 2}));
    EXPECT_EQ(t.rest_lse.to_vector<float>()[0], -kInf);
  }
}

TEST(TopKTargets, NanIsAboveEverything) {
  for (const Device& device : testing::test_devices()) {
    for (const std::size_t at : {0, 5, 900}) {
      std::vector<float> x(1000, 2.0f);
      x[at] = NAN;
      x[7] = kInf;
      CommandEncoder encoder(device);
      const TopKTargets t = make_top_k_targets(encoder, Buffer::from(device, {1, 1000}, x), 2, 1.0f);
      encoder.commit_and_wait();
      const auto low = static_cast<std::uint32_t>(std::min<std::size_t>(at, 7));
      const auto high = static_cast<std::uint32_t>(std::max<std::size_t>(at, 7));
      EXPECT_EQ(t.indices.to_vector<std::uint32_t>(), (std::vector<std::uint32_t>{low, high}));
    }
  }
}

TEST(TopKTargets, SameBits) {
  for (const Device& device : testing::test_devices()) {
    const bool is_sim = device.name() == "sim";
    const Buffer teacher = upload(device, testing::random_tensor(DType::bf16, {is_sim ? 2 : 9, 5003}, 5));
    testing::expect_same_bits(
        "make_top_k_targets",
        [&]() -> std::vector<Buffer> {
          CommandEncoder encoder(device);
          const TopKTargets t = make_top_k_targets(encoder, teacher, 100, 2.0f);
          encoder.commit_and_wait();
          return {t.logits, t.indices, t.rest_lse};
        },
        is_sim ? 2 : 20);
  }
}

// Targets that were stored, in f32 or, where they are exact, in 16 bits, give what the live teacher gives.
TEST(KlDiv, CachedTargetsEqualLiveOnes) {
  for (const Device& device : testing::test_devices()) {
    const HostTensor teacher = testing::random_tensor(DType::bf16, {4, 300}, 6);
    const Buffer student = upload(device, testing::random_tensor(DType::f32, {4, 300}, 7));
    for (const bool rest : {false, true}) {
      const KlOptions options{2.0f, 20, rest};
      Tape tape(device);
      const Var live = kl_div(tape.constant(student), upload(device, teacher), options);
      TopKTargets targets = make_top_k_targets(tape.encoder(), upload(device, teacher), 20, 2.0f);
      const Var cached = kl_div(tape.constant(student), targets, options);
      tape.encoder().commit_and_wait();
      EXPECT_EQ(cached.value().to_vector<float>(), live.value().to_vector<float>());
      const HostTensor logits = testing::download(targets.logits);
      for (const DType dtype : {DType::bf16, DType::f16}) {
        targets.logits = upload(device, {dtype, logits.shape, logits.values});
        const Var half = kl_div(tape.constant(student), targets, options);
        tape.encoder().commit_and_wait();
        EXPECT_EQ(half.value().to_vector<float>(), live.value().to_vector<float>());
      }
    }
  }
}

TEST(KlDiv, GradientInPlace) {
  for (const Device& device : testing::test_devices()) {
    const Buffer teacher = upload(device, testing::random_tensor(DType::f32, {3, 77}, 8));
    const HostTensor logits = testing::random_tensor(DType::bf16, {3, 77}, 9);
    const Buffer dloss = upload(device, testing::random_tensor(DType::f32, {3}, 10));
    const Buffer loss = device.alloc(DType::f32, {3}), stats = device.alloc(DType::f32, {3, kKlStats});
    CommandEncoder encoder(device);
    const TopKTargets targets = make_top_k_targets(encoder, teacher, 9, 2.0f);
    const auto check = [&](const auto& backward) {
      const Buffer student = upload(device, logits), apart = device.alloc(DType::bf16, {3, 77});
      backward(student, apart);
      backward(student, student);
      encoder.commit_and_wait();
      EXPECT_EQ(testing::download_bytes(student), testing::download_bytes(apart));
    };
    kl_div_forward(encoder, teacher, upload(device, logits), 2.0f, loss, stats);
    check([&](const Buffer& s, const Buffer& ds) {
      kl_div_backward(encoder, teacher, s, 2.0f, stats, dloss, ds);
    });
    kl_div_top_k_forward(encoder, targets, upload(device, logits), 2.0f, true, loss, stats);
    check([&](const Buffer& s, const Buffer& ds) {
      kl_div_top_k_backward(encoder, targets, s, 2.0f, true, stats, dloss, ds);
    });
  }
}

TEST(KlDiv, BadTargetsSurfaceAtWait) {
  for (const Device& device : testing::test_devices()) {
    const testing::Poison poison(device);
    CommandEncoder encoder(device);
    const Buffer student = upload(device, testing::random_tensor(DType::f32, {2, 8}, 1));
    const auto targets = [&](const std::vector<std::uint32_t>& indices) {
      return TopKTargets{device.alloc(DType::f32, {2, 2}), Buffer::from(device, {2, 2}, indices),
                         device.alloc(DType::f32, {2})};
    };
    const Buffer loss = device.alloc_uninitialized(DType::f32, {2}),
                 stats = device.alloc(DType::f32, {2, kKlStats});
    kl_div_top_k_forward(encoder, targets({1, 3, 0, 8}), student, 1.0f, true, loss, stats);
    MIXTAPE_EXPECT_ERROR(encoder.commit_and_wait(), ErrorCode::index_out_of_range, "8");
    EXPECT_EQ(loss.to_vector<float>()[1], 0.0f);
    const Buffer ds = device.alloc_uninitialized(DType::f32, {2, 8});
    kl_div_top_k_backward(encoder, targets({1, 3, 0, 8}), student, 1.0f, true, stats, loss, ds);
    MIXTAPE_EXPECT_ERROR(encoder.commit_and_wait(), ErrorCode::index_out_of_range, "8");
    EXPECT_EQ(ds.slice(1, 2).to_vector<float>(), std::vector<float>(8, 0.0f));
    for (const auto& indices : {std::vector<std::uint32_t>{1, 3, 5, 4}, {1, 3, 4, 4}}) {
      kl_div_top_k_forward(encoder, targets(indices), student, 1.0f, true, loss, stats);
      MIXTAPE_EXPECT_ERROR(encoder.commit_and_wait(), ErrorCode::invalid_argument,
                           "teacher.indices[1,1] is 4");
    }
  }
}

TEST(KlDiv, RefusesBadArguments) {
  const Device device = Device::cpu();
  Tape tape(device);
  CommandEncoder& encoder = tape.encoder();
  const Buffer x = device.alloc(DType::f32, {4, 8});
  const Var s = tape.parameter(x);
  const auto code = ErrorCode::invalid_argument;
  MIXTAPE_EXPECT_ERROR(kl_div(s, x.slice(0, 3), KlOptions{}), code,
                       "kl_div: teacher is f32[3,8], expected the shape of student f32[4,8]");
  MIXTAPE_EXPECT_ERROR(kl_div(s, device.alloc(DType::u32, {4, 8}), KlOptions{}), code, "teacher is u32[4,8]");
  MIXTAPE_EXPECT_ERROR(kl_div(s, x, KlOptions{.temperature = 0.0f}), code, "temperature is 0");
  MIXTAPE_EXPECT_ERROR(kl_div(s, x, KlOptions{.temperature = NAN}), code, "temperature is");
  MIXTAPE_EXPECT_ERROR(kl_div(s, x, KlOptions{.top_k = 9}), code, "k is 9, expected 1 to the vocabulary");
  MIXTAPE_EXPECT_ERROR(kl_div(s, x, KlOptions{.top_k = -1}), code, "top_k is -1");
  MIXTAPE_EXPECT_ERROR(kl_div(s, x, KlOptions{.rest_bucket = true}), code,
                       "rest_bucket is set, but top_k is 0");
  const TopKTargets targets = make_top_k_targets(encoder, x, 3, 1.0f);
  MIXTAPE_EXPECT_ERROR(kl_div(s, targets, KlOptions{.top_k = 2}), code, "top_k is 2, expected 3");
  const TopKTargets fewer{targets.logits, targets.indices.slice(0, 3), targets.rest_lse};
  MIXTAPE_EXPECT_ERROR(kl_div(s, fewer, KlOptions{}), code, "teacher.indices is u32[3,3], expected u32[4,3]");
  const Buffer loss = device.alloc(DType::f32, {4}), stats = device.alloc(DType::f32, {4, kKlStats});
  MIXTAPE_EXPECT_ERROR(kl_div_forward(encoder, x, x, 1.0f, stats, stats), code,
                       "loss is f32[4,5], expected f32[4]");
  MIXTAPE_EXPECT_ERROR(kl_div_forward(encoder, x, x, 1.0f, loss, loss), code,
                       "stats is f32[4], expected f32[4,5]");
  MIXTAPE_EXPECT_ERROR(kl_div_backward(encoder, x, x, 1.0f, stats, loss, x), code,
                       "dstudent shares memory with teacher");
  const Buffer y = device.alloc(DType::f32, {4, 8});
  MIXTAPE_EXPECT_ERROR(kl_div_backward(encoder, x, y, 1.0f, stats, loss, y, Accumulate::yes), code,
                       "dstudent shares memory with student");
}

}  // namespace
}  // namespace mixtape
