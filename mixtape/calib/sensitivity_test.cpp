#include "mixtape/calib/sensitivity.h"

#include <gtest/gtest.h>

#include <cmath>

#include "mixtape/calib/calibrate.h"
#include "mixtape/calib/checked_plan.h"
#include "mixtape/calib/fit_students.h"
#include "mixtape/calib/module_kl.h"
#include "mixtape/calib/random_rows.h"
#include "mixtape/calib/recipe.h"
#include "mixtape/quant/gguf_export.h"
#include "mixtape/testing/check_op.h"

namespace mixtape {
namespace {

constexpr std::int64_t kVocabulary = 263;

class SensitivityTest : public ::testing::Test {
 protected:
  void open(const std::string& model, bool in_blocks = false, const std::vector<ModuleRule>& rules = {}) {
    source_ = open_model("tests/data/parity/" + model);
    teacher_ = std::make_unique<Teacher>(*source_, DType::f32, false, tape_);
    QuantizationOptions options = open_options(in_blocks);
    options.rules = rules;
    plan_ = plan_quantization(*source_, options);
  }

  SensitivityOptions options(InitialFit fit = InitialFit::gptq) const { return {.fits = fits(fit)}; }

  std::vector<ModuleLosses> losses(const SensitivityOptions& o, const RunHooks& hooks = {}) {
    return measure_sensitivity(*teacher_, plan_, data_, o, hooks);
  }

  // KL of a student that has this module alone quantized, by the evaluation that reports use.
  double directly(const std::string& path, const WeightFormat& format, const std::vector<Method>& methods) {
    QuantizationOptions o{.params = format};
    for (const PlannedModule& m : plan_.modules) {
      if (m.kind != TensorKind::vector && m.path != path) o.modules.emplace(m.path, std::nullopt);
    }
    const QuantizationPlan alone = plan_quantization(*source_, o);
    const auto fitted = fit_students(*teacher_, alone, methods, data_.train, 2);
    return evaluate_stored(fitted.back().student, *teacher_, DType::f32, data_.validation, 3).kl->mean;
  }

  Tape tape_{Device::cpu()};
  std::unique_ptr<ModelSource> source_;
  std::unique_ptr<Teacher> teacher_;
  QuantizationPlan plan_;
  // Of the file that will hold the plan.
  std::int64_t size_of(const QuantizationPlan& plan, bool in_blocks) const {
    return in_blocks ? gguf_tensor_bytes(*source_, plan, DType::f32)
                     : storage_size(*source_, plan, DType::f32).bytes;
  }

  CalibrationData data_{random_rows(4, 17, kVocabulary, 1), random_rows(3, 13, kVocabulary, 9), {}, {}};
};

TEST_F(SensitivityTest, AModulesKlIsThatOfAStudentWithItAlone) {
  data_.validation[1].resize(6);  // padding does not count
  const WeightFormat three_bits = {3, 32}, blocks = BlockType::q5_0;
  for (const auto& [model, format] :
       {std::pair("llama", three_bits), std::pair("llama_tied_bias_rope3", three_bits),
        std::pair("qwen3_moe", three_bits), std::pair("llama_tied_bias_rope3", blocks),
        std::pair("qwen3_moe", blocks)}) {
    open(model, format.is_blocks());
    SensitivityOptions o = options();
    o.references = {format.is_blocks() ? BlockType::q4_k : format};  // rows are no blocks of 256
    o.batch_size = 2;
    std::size_t measured = 0;
    for (const ModuleLosses& m : losses(o)) {
      for (const FormatLoss& f : m.formats) {
        EXPECT_EQ(f.is_measured, f.format == format) << m.path;
        if (!f.is_measured) continue;
        ++measured;
        const double expected = directly(m.path, f.format, o.fits);
        EXPECT_NEAR(f.kl, expected, 1e-6 + 1e-4 * expected) << model << ": " << m.path;
      }
    }
    EXPECT_EQ(measured, std::count_if(plan_.modules.begin(), plan_.modules.end(),
                                      [](const PlannedModule& m) { return m.stored.has_value(); }));
  }
}

// A base of two matrices: as a student that has both, whichever of them is the base and which comes on top.
TEST_F(SensitivityTest, KlFromAStudent) {
  open("llama_tied_bias_rope3");
  const std::string in = "model.embed_tokens", out = "model.layers.1.mlp.down_proj";
  QuantizationOptions two{.params = {3, 32}};
  for (const PlannedModule& m : plan_.modules) {
    if (m.path != in && m.path != out) two.modules.emplace(m.path, std::nullopt);
  }
  const std::vector<Method> methods = fits(InitialFit::gptq);
  const auto fitted =
      fit_students(*teacher_, plan_quantization(*source_, two), methods, data_.train, 2).back().student;
  const ModuleKl::Matrices& both = fitted.parameters.quantized;
  ASSERT_EQ(both.size(), 2u);
  const ModuleKl kl(*teacher_, data_.validation, 2, {}, both);
  const double whole = evaluate_stored(fitted, *teacher_, DType::f32, data_.validation, 3).kl->mean;
  const auto is_near = [&](const std::vector<float>& found, double expected) {
    EXPECT_EQ(static_cast<std::int64_t>(found.size()), count_positions(data_.validation));
    EXPECT_NEAR(mean_of(found).value, expected, 1e-6 + 1e-4 * expected);
  };
  is_near(kl.of_base(), whole);
  is_near(kl.with({{out, both.at(out)}}), whole);
  is_near(kl.with(both), whole);
  const ModuleKl teacher(*teacher_, data_.validation, 2);
  is_near(teacher.of_base(), 0.0);
  is_near(teacher.with(both), whole);
  is_near(teacher.with({{in, both.at(in)}}), directly(in, {3, 32}, methods));
  is_near(ModuleKl(*teacher_, data_.validation, 2, {}, {{in, both.at(in)}}).with({{out, both.at(out)}}),
          whole);
}

// What was chosen is measured, the better of two plans is kept, and its KL is that of the whole student.
TEST_F(SensitivityTest, PlansAreChecked) {
  for (const auto& [model, in_blocks] :
       {std::pair("qwen3", false), std::pair("qwen3_moe", false), std::pair("qwen3_moe", true)}) {
    open(model, in_blocks);
    SensitivityOptions o = options();
    o.references = {in_blocks ? BlockType::q4_0 : WeightFormat(3, 32)};
    std::vector<ModuleLosses> found = losses(o);
    const SizeRange range = possible_sizes(*source_, plan_, DType::f32);
    const std::int64_t bytes = range.least + (range.most - range.least) / 3;
    const QuantizationPlan estimated = plan_within(*source_, plan_, found, bytes, DType::f32);
    const CheckedPlan checked = checked_plan_within(*teacher_, plan_, found, data_, bytes, DType::f32, o);
    for (const ModuleLosses& m : found) {
      const auto chosen = std::find_if(m.formats.begin(), m.formats.end(), [&](const FormatLoss& f) {
        return f.format == *estimated.find(m.path)->stored;
      });
      EXPECT_TRUE(chosen->is_measured) << m.path;
      EXPECT_GE(std::count_if(m.formats.begin(), m.formats.end(),
                              [](const FormatLoss& f) { return f.is_measured; }),
                2)
          << m.path;
    }
    EXPECT_LE(size_of(checked.plan, in_blocks), bytes);
    EXPECT_LE(checked.kl, checked.first_kl);
    const auto fitted = fit_students(*teacher_, checked.plan, o.fits, data_.train, o.batch_size);
    const double kl =
        evaluate_stored(fitted.back().student, *teacher_, DType::f32, data_.validation, 3).kl->mean;
    EXPECT_NEAR(checked.kl, kl, 1e-6 + 1e-4 * kl) << model;
  }
}

// Measured everywhere, the KLs that were estimated from three formats are near.
TEST_F(SensitivityTest, EstimatesAreNearTheMeasured) {
  open("qwen3");
  const std::vector<ModuleLosses> estimated = losses(options());
  SensitivityOptions all = options();
  all.references.clear();
  const std::vector<ModuleLosses> measured = losses(all);
  double squares = 0.0, count = 0.0;
  for (std::size_t i = 0; i < measured.size(); ++i) {
    ASSERT_EQ(estimated[i].path, measured[i].path);
    for (std::size_t f = 0; f < measured[i].formats.size(); ++f) {
      const FormatLoss& e = estimated[i].formats[f];
      const FormatLoss& m = measured[i].formats[f];
      EXPECT_TRUE(m.is_measured);
      EXPECT_EQ(e.error, m.error);
      if (e.is_measured) {
        EXPECT_EQ(e.kl, m.kl);
      }
      squares += std::pow(std::log(e.kl / m.kl), 2.0);
      count += 1.0;
    }
  }
  EXPECT_LT(std::sqrt(squares / count), 0.4);
}

// The error of the outputs, in f64 from decoded weights; with the diagonal alone, and with all products. All rows of these small matrices are sampled.
TEST_F(SensitivityTest, ErrorsOfTheOutputs) {
  open("llama");
  for (const InitialFit fit : {InitialFit::least_squares, InitialFit::gptq}) {
    const std::vector<ModuleLosses> found = losses(options(fit));
    const std::string path = "model.layers.0.mlp.gate_proj";
    const auto at = std::find_if(found.begin(), found.end(), [&](const auto& m) { return m.path == path; });
    ASSERT_NE(at, found.end());
    PlannedModule module = *plan_.find(path);
    const Buffer w = source_->load(module.source, DType::f32, Device::cpu());
    InputStatistics inputs;
    visit_input_statistics(*teacher_, plan_, data_.train, 8, Statistics::second_moments, {},
                           [&](const LayerStatistics& layer) {
                             if (layer.contains(path)) inputs = layer.at(path);
                           });
    for (const FormatLoss& f : at->formats) {
      module.stored = f.format;
      std::vector<std::string> notes;
      QuantizedWeight q;
      for (const Method& m : fits(InitialFit::least_squares)) {
        const QuantizedWeight previous = q;
        q = m.fit({module, w, &inputs, previous.codes ? &previous : nullptr, DType::f32, notes});
      }
      const std::vector<float> original = w.to_vector<float>(), h = inputs.second_moments.to_vector<float>();
      const auto words = q.codes.to_vector<std::uint32_t>();
      const auto scales = q.scales.to_vector<float>(), biases = q.biases.to_vector<float>();
      const auto cols = static_cast<std::size_t>(module.shape.cols());
      const auto groups = static_cast<std::size_t>(f.format.groups(module.shape.cols()));
      const auto packed = static_cast<std::size_t>(f.format.packed_cols(module.shape.cols()));
      double expected = 0.0;
      for (std::size_t r = 0; r < original.size() / cols; ++r) {
        std::vector<float> d(cols);
        dequantize_row(std::span(words).subspan(r * packed, packed),
                       std::span(scales).subspan(r * groups, groups),
                       std::span(biases).subspan(r * groups, groups), f.format, d);
        for (std::size_t c = 0; c < cols; ++c) d[c] = original[r * cols + c] - d[c];
        for (std::size_t a = 0; a < cols; ++a) {
          for (std::size_t b = 0; b < cols; ++b) {
            if (fit == InitialFit::gptq || a == b)
              expected += static_cast<double>(d[a]) * static_cast<double>(h[a * cols + b]) *
                          static_cast<double>(d[b]);
          }
        }
      }
      EXPECT_NEAR(f.error, expected, 1e-4 * expected) << f.format.bits << " bits, " << f.format.group_size;
    }
  }
}

TEST_F(SensitivityTest, KlBetweenAndBeyondWhatWasMeasured) {
  std::vector<FormatLoss> formats = {{{2, 64}, 8.0, 0.8, true},
                                     {{2, 32}, 4.0},
                                     {{3, 64}, 2.0, 0.05, true},
                                     {{4, 64}, 0.5},
                                     {{2, 128}, 16.0}};
  estimate_kl(formats);
  EXPECT_NEAR(formats[1].kl, 0.2, 1e-12);     // halfway between their logarithms
  EXPECT_NEAR(formats[3].kl, 0.0125, 1e-12);  // in proportion
  EXPECT_NEAR(formats[4].kl, 1.6, 1e-12);
  EXPECT_EQ(formats[0].kl, 0.8);
  std::vector<FormatLoss> nothing = {{{2, 64}, 0.0, 0.0, true}, {{3, 64}, 0.0}};  // a matrix of zeros
  estimate_kl(nothing);
  EXPECT_EQ(nothing[1].kl, 0.0);
  nothing[0].is_measured = false;
  MIXTAPE_EXPECT_ERROR(estimate_kl(nothing), ErrorCode::invalid_argument, "none is measured");
}

TEST_F(SensitivityTest, AStreamedTeacherGivesTheSame) {
  open("qwen3");
  SensitivityOptions o = options(InitialFit::rounding);
  o.references = {{3, 64}};
  const std::vector<ModuleLosses> kept = losses(o);
  teacher_ = std::make_unique<Teacher>(*source_, DType::f32, true, tape_);
  const std::vector<ModuleLosses> streamed = losses(o);
  ASSERT_EQ(kept.size(), streamed.size());
  for (std::size_t i = 0; i < kept.size(); ++i) {
    for (std::size_t f = 0; f < kept[i].formats.size(); ++f)
      EXPECT_EQ(kept[i].formats[f].kl, streamed[i].formats[f].kl) << kept[i].path;
  }
}

TEST_F(SensitivityTest, StopsAndRefuses) {
  open("llama");
  std::int64_t most = 0;
  const RunHooks hooks{.progress = [&](const StageProgress& p) { most = std::max(most, p.done); },
                       .should_stop = [&] { return most == 2; }};
  MIXTAPE_EXPECT_ERROR(losses(options(InitialFit::rounding), hooks), ErrorCode::interrupted,
                       "measuring modules: interrupted");
  EXPECT_EQ(most, 2);
  const ErrorCode code = ErrorCode::invalid_argument;
  MIXTAPE_EXPECT_ERROR(losses({}), code, "no method fits");
  SensitivityOptions o = options(InitialFit::rounding);
  o.kl_rows = 0;
  MIXTAPE_EXPECT_ERROR(losses(o), code, "rows of KL and statistics are 0 and 128");
  data_.validation = {{1}};
  MIXTAPE_EXPECT_ERROR(losses(options()), code, "found no row of two tokens");
}

TEST_F(SensitivityTest, FormatsOfBothKinds) {
  const auto names = [](const std::vector<WeightFormat>& formats) {
    std::string all;
    for (const WeightFormat& f : formats) all += f.name() + " ";
    return all;
  };
  EXPECT_EQ(names(candidate_formats(512, true)), "Q2_K Q3_K Q4_0 Q4_K Q4_1 Q5_0 Q5_K Q5_1 Q6_K Q8_0 ");
  EXPECT_EQ(names(candidate_formats(96, true)), "Q4_0 Q4_1 Q5_0 Q5_1 Q8_0 ");
  EXPECT_TRUE(candidate_formats(40, true).empty());
  EXPECT_EQ(candidate_formats(512).size(), 18u);
  EXPECT_EQ(candidate_formats(96).size(), 6u);
}

// ---- plans

// Losses that fall with the bytes, for each module in its own measure.
std::vector<ModuleLosses> made_up(const QuantizationPlan& plan) {
  std::vector<ModuleLosses> all;
  double weight = 1.0;
  for (const PlannedModule& m : plan.modules) {
    if (!m.by_default) continue;
    all.push_back({m.path, {}});
    for (const WeightFormat& f : candidate_formats(m.shape.cols(), plan.config.defaults.is_blocks()))
      all.back().formats.push_back({f, 0.0, weight * std::pow(4.0, -f.bits - 8.0 / f.group_size), false});
    weight *= 1.7;
  }
  return all;
}

TEST_F(SensitivityTest, PlansOfEverySizeThatIsPossible) {
  for (const auto& [model, in_blocks] :
       {std::pair("llama", false), std::pair("llama_tied_bias_rope3", false), std::pair("qwen3_moe", false),
        std::pair("llama_tied_bias_rope3", true), std::pair("qwen3_moe", true)}) {
    open(model, in_blocks,
         {ModuleRule::parse("*.layers.0.*q_proj=6", "rule"), ModuleRule::parse("*.o_proj=float", "rule")});
    const std::vector<ModuleLosses> losses = made_up(plan_);
    const SizeRange range = possible_sizes(*source_, plan_, DType::f32);
    std::int64_t before = 0;
    for (int i = 0; i <= 8; ++i) {
      const std::int64_t bytes = range.least + (range.most - range.least) * i / 8;
      const QuantizationPlan plan = plan_within(*source_, plan_, losses, bytes, DType::f32);
      const std::int64_t size = size_of(plan, in_blocks);
      EXPECT_LE(size, bytes);
      EXPECT_GT(size, before);
      before = size;
      EXPECT_EQ(plan.find("model.layers.0.self_attn.q_proj")->stored,
                StoredAs(WeightFormat(6, in_blocks ? 32 : 64)));
      EXPECT_FALSE(plan.find("model.layers.1.self_attn.o_proj")->stored);
      EXPECT_EQ(plan.modules.size(), plan_.modules.size());
      for (std::size_t m = 0; m < plan.modules.size(); ++m)
        EXPECT_EQ(plan.modules[m].stored.has_value(), plan_.modules[m].stored.has_value());
      EXPECT_EQ(size == range.least, i == 0);
      EXPECT_EQ(size == range.most, i == 8);
    }
    const std::string sizes = str("expected ", range.least, " to ", range.most);
    for (const std::int64_t bytes : {range.least - 1, range.most + 1}) {
      MIXTAPE_EXPECT_ERROR(plan_within(*source_, plan_, losses, bytes, DType::f32),
                           ErrorCode::invalid_argument, sizes);
    }
  }
}

}  // namespace
}  // namespace mixtape
