// What each stage of calibration is worth on a real model: mean KL to the teacher on texts that no stage has seen.
//   quality MODEL key=value ...
//     device=auto bits=4 group=64 length=512
//     text=FILE report=FILE      training and report texts, repeated
//     rows=N self=N              training rows of the texts together, and rows sampled from the model
//     report_rows=32 validation_rows=16 statistics_rows=128
//     stages=mlx,ls,wls,gptq     fits to measure, each one after those it needs; fwls, fgptq: that make up
//                                for the layers below
//     dwq=RATE[xSTEPS][,...]     training from the last fit; codes=RATE:CODERATE[xSTEPS][,...] codes too
//     blocks=RATE:CODERATE[xSTEPS][,...] [block_dwq=RATE[xSTEPS][,...]]   codes layer by layer on block_rows=128 rows,
//                                and then scales
//     steps=150 batch=16 temperature=1
//     grid_free=yes              the model's weights are first moved at random inside their 4-bit cells and healed by
//                                distillation from the original: a teacher without the grid of its Q4_1 file
//     save=FILE.gguf             keeps that teacher, in bf16
// Prints CSV: model,bits,group,stage,text,kl,kl_error,cut against mlx in %,seconds of the stage.
//
// With uniform=BITS:GROUP[,...] it compares plans instead: for each format the model in that format alone, and the plan
// of the same bytes at most whose bits and groups are chosen module by module; both get the last of `stages`, then the
// same training (dwq=, codes=).
//     references=2:64,3:64,4:64  formats in which each module's KL is measured; all: every one
//     kl_rows=8                  validation rows that it is measured on
//     check=yes                  compares the estimated KLs with measured ones; slow
//   quality SmolLM2-135M-Instruct.Q4_1.gguf text=novel.txt rows=400 report=wikitext2_test.txt
//     report=tinyshakespeare.txt report_rows=16 statistics_rows=64 uniform=4:64,3:64,2:64
// Prints CSV: model,plan,bytes,bits per weight,stage,text,kl,kl_error,cut against the uniform plan in %,seconds.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "bench/grid_free.h"
#include "mixtape/calib/block_codes.h"
#include "mixtape/calib/calibrate.h"
#include "mixtape/calib/checked_plan.h"
#include "mixtape/calib/dwq.h"
#include "mixtape/calib/fit_students.h"
#include "mixtape/calib/following.h"
#include "mixtape/calib/gptq.h"
#include "mixtape/calib/least_squares.h"
#include "mixtape/calib/plain_rounding.h"
#include "mixtape/calib/self_text.h"
#include "mixtape/calib/text_rows.h"
#include "mixtape/core/stopwatch.h"
#include "mixtape/quant/gguf_export.h"
#include "mixtape/quant/weight_codec.h"

namespace mixtape {
namespace {

struct Setup {
  std::string model;
  std::map<std::string, std::vector<std::string>> values;

  Setup(int argc, char** argv) : model(argv[1]) {
    for (int i = 2; i < argc; ++i) {
      const std::string argument = argv[i];
      const std::size_t equals = argument.find('=');
      require(equals != std::string::npos, "'", argument, "', expected key=value");
      values[argument.substr(0, equals)].push_back(argument.substr(equals + 1));
    }
  }
  std::string text(const std::string& key, const std::string& otherwise) const {
    const auto found = values.find(key);
    return found == values.end() ? otherwise : found->second.back();
  }
  std::int64_t whole(const std::string& key, std::int64_t otherwise) const {
    return std::stoll(text(key, std::to_string(otherwise)));
  }
  std::vector<std::string> list(const std::string& key, const std::string& otherwise) const {
    std::vector<std::string> items;
    std::istringstream in(text(key, otherwise));
    for (std::string item; std::getline(in, item, ',');) items.push_back(item);
    return items;
  }
};

class Bench {
 public:
  explicit Bench(const Setup& setup) : s_(setup), tape_(Device::open(setup.text("device", "auto"))) {
    source_ = open_model(s_.model);
    const Tokenizer tokenizer =
        Tokenizer::from_json(source_->tokenizer_json(), source_->tokenizer_config_json());
    const Teacher original(*source_, compute_dtype(source_->config()), false, tape_);
    gather(tokenizer, original.model());
    if (s_.text("grid_free", "no") == "yes") {
      original_ = std::move(source_);
      source_ = without_grid(*original_, original, data_.train, s_.whole("batch", 16));
      if (s_.values.contains("save")) save(s_.text("save", ""));
    }
  }

  void save(const std::string& path) const {
    const QuantizationPlan floats =
        plan_quantization(*source_, {.rules = {ModuleRule::parse("*=float", "teacher")}});
    AtomicFile file(path);
    write_gguf_model(file, *source_, plan_gguf(*source_, floats, DType::bf16), {});
  }

  void run() {
    if (s_.values.contains("uniform")) {
      compare_plans();
    } else {
      compare_stages();
    }
  }

 private:
  void compare_stages() {
    const Teacher teacher(*source_, compute_dtype(source_->config()), false, tape_);
    const AffineParams format{static_cast<std::int32_t>(s_.whole("bits", 4)),
                              static_cast<std::int32_t>(s_.whole("group", 64))};
    label_ = str(format.bits, ",", format.group_size);
    measure_plan(teacher, plan_of(format), 0);
  }

  // Of all stages from the given one on, and of training from the last one.
  void measure_plan(const Teacher& teacher, const QuantizationPlan& plan, std::size_t first_stage) {
    const std::vector<std::string> names = stages();
    const Stopwatch watch;
    const auto statistics = std::min(data_.train.size(), static_cast<std::size_t>(statistics_rows()));
    std::vector<FittedStudent> fitted = fit_students(
        teacher, plan, fits(), std::span(data_.train).first(statistics), s_.whole("statistics_batch", 8));
    std::fprintf(stderr, "all fits and statistics: %.1f s\n", watch.seconds());
    for (std::size_t i = first_stage; i < names.size(); ++i) {
      for (const std::string& note : fitted[i].notes) std::fprintf(stderr, "%s\n", note.c_str());
      measure(teacher, names[i], fitted[i].student, fitted[i].seconds);
    }
    const Student& fit = fitted.back().student;
    for (const std::string& rate : s_.list("codes", ""))
      train_from(teacher, plan, fit, names.back() + "+codes " + rate, codes(rate));
    for (const std::string& rate : s_.list("dwq", ""))
      train_from(teacher, plan, fit, names.back() + "+dwq " + rate, scales(rate));
    for (const std::string& rate : s_.list("blocks", "")) {
      const std::string name = names.back() + "+blocks " + rate;
      const Student learned = train_from(teacher, plan, fit, name, blocks(rate));
      for (const std::string& then : s_.list("block_dwq", ""))
        train_from(teacher, plan, learned, name + "+dwq " + then, scales(then));
    }
  }

  void compare_plans() {
    const Teacher teacher(*source_, compute_dtype(source_->config()), false, tape_);
    const QuantizationPlan open = plan_quantization(*source_, open_options());
    const DType storage = model_dtype(*source_);
    const Stopwatch watch;
    std::vector<ModuleLosses> losses = measure_sensitivity(teacher, open, data_, sensitivity());
    std::fprintf(stderr, "KL of each module: %.1f s\n", watch.seconds());
    if (s_.text("check", "no") == "yes") check_estimates(teacher, open, losses);
    for (const std::string& format : s_.list("uniform", "")) {
      const QuantizationPlan uniform = plan_of(format_of(format));
      const StorageSize size = storage_size(*source_, uniform, storage);
      const Stopwatch choice;
      const CheckedPlan checked =
          checked_plan_within(teacher, open, losses, data_, size.bytes, storage, sensitivity());
      std::fprintf(stderr, "plan: KL %.5f, checked %.5f, %.1f s\n", checked.first_kl, checked.kl,
                   choice.seconds());
      by_stage_ = true;
      baseline_.clear();
      for (const auto& [name, plan] : {std::pair("uniform", uniform), std::pair("mixed", checked.plan)}) {
        const StorageSize own = storage_size(*source_, plan, storage);
        std::fprintf(stderr, "%s: %s\n", name, counts(plan).c_str());
        label_ = str(name, " ", format, ",", own.bytes, ",", own.bits_per_weight());
        measure_plan(teacher, plan, stages().size() - 1);
      }
    }
  }

  SensitivityOptions sensitivity() const {
    SensitivityOptions o{.fits = fits()};
    o.references.clear();
    if (s_.text("references", "") != "all") {
      for (const std::string& r : s_.list("references", "2:64,3:64,4:64"))
        o.references.push_back(format_of(r));
    }
    o.statistics_rows = statistics_rows();
    o.kl_rows = s_.whole("kl_rows", 8);
    return o;
  }

  // Of the logarithms: mean difference, deviation and correlation of what was not measured.
  void check_estimates(const Teacher& teacher, const QuantizationPlan& plan,
                       const std::vector<ModuleLosses>& estimated) {
    SensitivityOptions o = sensitivity();
    o.references.clear();
    const Stopwatch watch;
    const std::vector<ModuleLosses> measured = measure_sensitivity(teacher, plan, data_, o);
    std::vector<double> x, y;
    for (std::size_t i = 0; i < measured.size(); ++i) {
      for (std::size_t f = 0; f < measured[i].formats.size(); ++f) {
        if (estimated[i].formats[f].is_measured) continue;
        x.push_back(std::log(std::max(estimated[i].formats[f].kl, 1e-12)));
        y.push_back(std::log(std::max(measured[i].formats[f].kl, 1e-12)));
      }
    }
    const double n = static_cast<double>(x.size());
    double mx = 0, my = 0, xx = 0, yy = 0, xy = 0, dd = 0;
    for (std::size_t i = 0; i < x.size(); ++i) mx += x[i] / n, my += y[i] / n;
    for (std::size_t i = 0; i < x.size(); ++i) {
      xx += (x[i] - mx) * (x[i] - mx);
      yy += (y[i] - my) * (y[i] - my);
      xy += (x[i] - mx) * (y[i] - my);
      dd += (x[i] - y[i]) * (x[i] - y[i]) / n;
    }
    std::fprintf(stderr, "every KL measured: %.1f s; %zu estimated: log is off by %.3f, RMS %.3f, r %.4f\n",
                 watch.seconds(), x.size(), mx - my, std::sqrt(dd), xy / std::sqrt(xx * yy));
  }

  // "12 of 3:64, 4 of 4:32"
  static std::string counts(const QuantizationPlan& plan) {
    std::map<std::string, int> modules;
    for (const PlannedModule& m : plan.modules) {
      if (m.stored) ++modules[str(m.stored->bits, ":", m.stored->group_size)];
    }
    std::string text;
    for (const auto& [format, count] : modules) text += str(text.empty() ? "" : ", ", count, " of ", format);
    return text;
  }

  static AffineParams format_of(const std::string& text) {
    const ModuleRule rule = ModuleRule::parse("*=" + text, "format");
    return {rule.bits, rule.group_size};
  }
  QuantizationPlan plan_of(AffineParams format) const {
    return plan_quantization(*source_, {.params = format, .smaller_groups = true});
  }
  std::vector<std::string> stages() const { return s_.list("stages", "mlx,ls,wls,gptq"); }
  std::int64_t statistics_rows() const { return s_.whole("statistics_rows", 128); }
  std::vector<Method> fits() const {
    std::vector<Method> all;
    for (const std::string& name : stages()) all.push_back(fit_called(name));
    return all;
  }

  static Method fit_called(const std::string& name) {
    if (name == "mlx") return plain_rounding();
    if (name == "ls") return least_squares({.weighted = false});
    if (name == "wls") return least_squares();
    if (name == "fwls") return following(least_squares());
    if (name == "fgptq") return following(gptq());
    require(name == "gptq", "stage '", name, "' is unknown, expected mlx, ls, wls, gptq, fwls or fgptq");
    return gptq();
  }

  void gather(const Tokenizer& tokenizer, const CausalLm& model) {
    const std::int64_t length = s_.whole("length", 512), self = s_.whole("self", 0);
    std::vector<TokenRow> texts;
    for (const std::string& file :
         s_.values.contains("text") ? s_.values.at("text") : std::vector<std::string>{}) {
      const std::vector<TokenRow> rows = text_rows({file}, tokenizer, length).rows;
      texts.insert(texts.end(), rows.begin(), rows.end());
    }
    if (!texts.empty()) texts = split_rows(texts, s_.whole("rows", 0), 0, 0, 1).train;
    Beginnings beginnings;
    beginnings.first = tokenizer.bos_id().value_or(0);
    beginnings.texts = texts;
    std::vector<TokenRow> rows = self > 0 ? self_rows(model, tape_, beginnings, self, length, 256, 2) : texts;
    if (self > 0) rows.insert(rows.end(), texts.begin(), texts.end());
    data_ = split_rows(rows, 0, s_.whole("validation_rows", 16), 0, 3);
    for (const std::string& file : s_.values.at("report")) {
      const std::vector<TokenRow> all = text_rows({file}, tokenizer, length).rows;
      const auto n = std::min(all.size(), static_cast<std::size_t>(s_.whole("report_rows", 32)));
      const std::string name = file.substr(file.rfind('/') + 1);
      // Spread over the whole text.
      for (std::size_t i = 0; i < n; ++i) report_[name].push_back(all[i * all.size() / n]);
    }
    std::fprintf(stderr, "%zu training rows, %zu for validation\n", data_.train.size(),
                 data_.validation.size());
  }

  // RATE[:CODERATE][xSTEPS]
  TrainOptions training(const std::string& rate) const {
    TrainOptions o;
    o.steps = s_.whole("steps", 150);
    o.batch_size = s_.whole("batch", 16);
    o.learning_rate = std::stod(rate);
    if (rate.find(':') != std::string::npos) o.code_rate = std::stod(rate.substr(rate.find(':') + 1));
    if (rate.find('x') != std::string::npos) o.steps = std::stoll(rate.substr(rate.find('x') + 1));
    return o;
  }

  Method scales(const std::string& rate, bool trains_codes = false) const {
    DwqOptions o;
    o.train = training(rate);
    o.trains_codes = trains_codes;
    o.loss.temperature = std::stof(s_.text("temperature", "1"));
    return dwq(o);
  }
  Method codes(const std::string& rate) const { return scales(rate, true); }
  Method blocks(const std::string& rate) const {
    return block_codes({.train = training(rate), .rows = s_.whole("block_rows", 128)});
  }

  Student train_from(const Teacher& teacher, const QuantizationPlan& plan, const Student& start,
                     const std::string& name, const Method& method) {
    Student student = copy_of(start);
    tape_.device().reset_peak();
    const Stopwatch watch;
    const RunHooks hooks;
    const TrainReport report = method.improve({teacher, plan, data_, hooks, {}}, student);
    const double seconds = watch.seconds();
    std::fprintf(stderr, "%s: best at step %lld of %lld, peak %.0f MB\n", name.c_str(),
                 static_cast<long long>(report.best_step), static_cast<long long>(report.steps_done),
                 1e-6 * static_cast<double>(tape_.device().memory_stats().peak_bytes));
    measure(teacher, name, student, seconds);
    return student;
  }

  void measure(const Teacher& teacher, const std::string& stage, const Student& student, double seconds) {
    for (const auto& [name, rows] : report_) {
      const Evaluation e = evaluate_stored(student, teacher, model_dtype(*source_), rows, 8);
      const double baseline =
          baseline_.try_emplace(by_stage_ ? stage + name : name, e.kl->mean).first->second;
      std::printf("%s,%s,%s,%s,%.5f,%.5f,%.1f,%.1f\n", s_.model.substr(s_.model.rfind('/') + 1).c_str(),
                  label_.c_str(), stage.c_str(), name.c_str(), e.kl->mean, e.kl->mean_error,
                  100.0 * (1.0 - e.kl->mean / baseline), seconds);
    }
    std::fflush(stdout);
  }

  Setup s_;
  Tape tape_;
  std::unique_ptr<ModelSource> original_, source_;
  CalibrationData data_;
  std::map<std::string, std::vector<TokenRow>> report_;
  std::string label_;                       // of what is measured: columns between model and stage
  std::map<std::string, double> baseline_;  // KL that cuts are against, by text
  bool by_stage_ = false;                   // and by stage
};

}  // namespace
}  // namespace mixtape

int main(int argc, char** argv) {
  try {
    mixtape::require(argc > 1, "usage: quality MODEL key=value ...");
    mixtape::Bench(mixtape::Setup(argc, argv)).run();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "quality: %s\n", error.what());
    return EXIT_FAILURE;
  }
  return EXIT_SUCCESS;
}
