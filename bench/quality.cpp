// What each stage of calibration is worth on a real model: mean KL to the teacher on texts that no stage has seen.
//   quality MODEL key=value ...
//     device=auto bits=4 group=64 length=512
//     text=FILE report=FILE      training and report texts, repeated
//     rows=N self=N              training rows of the texts together, and rows sampled from the model
//     report_rows=32 validation_rows=16 statistics_rows=128
//     stages=mlx,ls,wls,gptq     fits to measure, each one after those it needs
//     dwq=RATE[xSTEPS][,...]     training from the last fit; codes=RATE:CODERATE[xSTEPS][,...] codes too
//     steps=150 batch=16 temperature=1
//     grid_free=yes              the model's weights are first moved at random inside their 4-bit cells and healed by
//                                distillation from the original: a teacher without the grid of its Q4_1 file
// Prints CSV: model,bits,group,stage,text,kl,kl_error,cut against mlx in %,seconds of the stage.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "mixtape/calib/calibrate.h"
#include "mixtape/calib/dwq.h"
#include "mixtape/calib/fit_students.h"
#include "mixtape/calib/gptq.h"
#include "mixtape/calib/least_squares.h"
#include "mixtape/calib/plain_rounding.h"
#include "mixtape/calib/self_text.h"
#include "mixtape/calib/text_rows.h"
#include "mixtape/core/random.h"
#include "mixtape/io/tensor_list.h"
#include "mixtape/quant/weight_codec.h"

namespace mixtape {
namespace {

using Clock = std::chrono::steady_clock;
double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

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

// A model with some tensors exchanged, bf16.
class ExchangedSource final : public ModelSource {
 public:
  ExchangedSource(const ModelSource& base, std::map<std::string, Buffer> tensors)
      : base_(base), tensors_(std::move(tensors)) {}
  std::string where() const override { return base_.where(); }
  const nlohmann::json& config_json() const override { return base_.config_json(); }
  ModelConfig config() const override { return base_.config(); }
  std::vector<std::string> names() const override { return base_.names(); }
  bool has(const std::string& name) const override { return base_.has(name); }
  Shape shape(const std::string& name) const override { return base_.shape(name); }
  DType stored_dtype(const std::string&) const override { return DType::bf16; }
  Buffer load(const std::string& name, DType wanted, const Device& device) const override {
    const auto found = tensors_.find(name);
    if (found == tensors_.end()) return base_.load(name, wanted, device);
    const std::vector<bf16> values = found->second.to_vector<bf16>();
    if (wanted == DType::bf16) return Buffer::from(device, shape(name), values);
    return Buffer::from(device, shape(name), std::vector<float>(values.begin(), values.end()));
  }
  nlohmann::json tokenizer_json() const override { return base_.tokenizer_json(); }
  nlohmann::json tokenizer_config_json() const override { return base_.tokenizer_config_json(); }
  std::map<std::string, std::string> extra_files() const override { return base_.extra_files(); }

 private:
  const ModelSource& base_;
  std::map<std::string, Buffer> tensors_;
};

// Each weight moved by up to half a step of its cell: of a Q4_1 block of 32, (max - min) / 15; of a Q8_0 row, about
// its largest magnitude / 127.
Buffer moved_in_its_cell(const Buffer& w, std::int64_t group, float steps, std::uint64_t seed) {
  std::vector<float> v = w.to_vector<float>();
  for (std::size_t begin = 0; begin < v.size(); begin += static_cast<std::size_t>(group)) {
    const auto first = v.begin() + static_cast<std::ptrdiff_t>(begin);
    const auto [least, most] = std::minmax_element(first, first + group);
    const float step = (*most - *least) / steps;
    for (std::size_t i = begin; i < begin + static_cast<std::size_t>(group); ++i)
      v[i] += step * static_cast<float>(uniform(seed, i) - 0.5);
  }
  return Buffer::from(w.device(), w.shape(), v);
}

std::unique_ptr<ModelSource> without_grid(const ModelSource& original, const Teacher& teacher,
                                          const std::vector<TokenRow>& rows, std::int64_t batch) {
  Tape& tape = teacher.tape();
  Parameters moved;
  std::uint64_t seed = 5;
  for (const ModelTensor& t : tensor_list(original.config())) {
    const Buffer w = original.load(t.name, DType::f32, tape.device());
    const bool is_embedding = t.kind == TensorKind::embedding;
    moved.dense.emplace(t.name, t.kind == TensorKind::vector
                                    ? w
                                    : moved_in_its_cell(w, is_embedding ? t.shape.cols() : 32,
                                                        is_embedding ? 254.0f : 15.0f, ++seed));
  }
  LiveTeacher signal(teacher.model(), tape, {.temperature = 1.0f});
  TrainOptions options;
  options.steps = 250;
  options.batch_size = batch;
  options.learning_rate = 1.5e-4;
  options.relative_rate = false;
  options.trainable = Trainable::everything;
  const std::span<const TokenRow> all(rows);
  const TrainReport report =
      train(original.config(), moved, teacher.compute(), signal, tape,
            {all.subspan(16), all.first(16), shuffled_batches(all.size() - 16, batch, 11)}, options);
  std::fprintf(stderr, "healed: validation KL %.4f at first, %.4f\n", report.validation.front().loss,
               report.best_loss);
  std::map<std::string, Buffer> tensors;
  for (const auto& [name, value] : moved.dense) tensors.emplace(name, stored_as(DType::bf16, name, value));
  return std::make_unique<ExchangedSource>(original, std::move(tensors));
}

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
    }
  }

  void run() {
    const Teacher teacher(*source_, compute_dtype(source_->config()), false, tape_);
    const AffineParams format{static_cast<std::int32_t>(s_.whole("bits", 4)),
                              static_cast<std::int32_t>(s_.whole("group", 64))};
    const QuantizationPlan plan = plan_quantization(*source_, {.params = format, .smaller_groups = true});
    std::vector<Method> fits;
    std::vector<std::string> names = s_.list("stages", "mlx,ls,wls,gptq");
    for (const std::string& name : names) fits.push_back(fit_called(name));
    const auto start = Clock::now();
    const auto statistics =
        std::min(data_.train.size(), static_cast<std::size_t>(s_.whole("statistics_rows", 128)));
    std::vector<FittedStudent> fitted = fit_students(
        teacher, plan, fits, std::span(data_.train).first(statistics), s_.whole("statistics_batch", 8));
    std::fprintf(stderr, "all fits and statistics: %.1f s\n", seconds_since(start));
    for (std::size_t i = 0; i < fits.size(); ++i) {
      for (const std::string& note : fitted[i].notes) std::fprintf(stderr, "%s\n", note.c_str());
      measure(teacher, names[i], fitted[i].student, fitted[i].seconds);
    }
    for (const std::string& rate : s_.list("codes", ""))
      train_from(teacher, plan, fitted.back().student, names.back(), rate, true);
    for (const std::string& rate : s_.list("dwq", ""))
      train_from(teacher, plan, fitted.back().student, names.back(), rate, false);
  }

 private:
  static Method fit_called(const std::string& name) {
    if (name == "mlx") return plain_rounding();
    if (name == "ls") return least_squares({.weighted = false});
    if (name == "wls") return least_squares();
    require(name == "gptq", "stage '", name, "' is unknown, expected mlx, ls, wls or gptq");
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

  void train_from(const Teacher& teacher, const QuantizationPlan& plan, const Student& start,
                  const std::string& from, const std::string& rate, bool codes) {
    DwqOptions o;
    o.train.steps = s_.whole("steps", 150);
    o.train.batch_size = s_.whole("batch", 16);
    o.train.learning_rate = std::stod(rate);
    if (rate.find(':') != std::string::npos) o.train.code_rate = std::stod(rate.substr(rate.find(':') + 1));
    if (rate.find('x') != std::string::npos) o.train.steps = std::stoll(rate.substr(rate.find('x') + 1));
    o.trains_codes = codes;
    o.loss.temperature = std::stof(s_.text("temperature", "1"));
    Student student = copy_of(start);
    const auto begin = Clock::now();
    const RunHooks hooks;
    const TrainReport report = dwq(o).improve({teacher, plan, data_, hooks, {}}, student);
    const std::string name = str(from, codes ? "+codes " : "+dwq ", rate);
    std::fprintf(stderr, "%s: validation %.4f to %.4f at step %lld\n", name.c_str(),
                 report.validation.front().loss, report.best_loss, static_cast<long long>(report.best_step));
    measure(teacher, name, student, seconds_since(begin));
  }

  void measure(const Teacher& teacher, const std::string& stage, const Student& student, double seconds) {
    const AffineParams& format = student.parameters.quantized.begin()->second.format;
    for (const auto& [name, rows] : report_) {
      const Evaluation e = evaluate_stored(student, teacher, model_dtype(*source_), rows, 8);
      baseline_.try_emplace(name, e.kl->mean);
      std::printf("%s,%d,%d,%s,%s,%.5f,%.5f,%.1f,%.1f\n", s_.model.substr(s_.model.rfind('/') + 1).c_str(),
                  format.bits, format.group_size, stage.c_str(), name.c_str(), e.kl->mean, e.kl->mean_error,
                  100.0 * (1.0 - e.kl->mean / baseline_.at(name)), seconds);
    }
    std::fflush(stdout);
  }

  Setup s_;
  Tape tape_;
  std::unique_ptr<ModelSource> original_, source_;
  CalibrationData data_;
  std::map<std::string, std::vector<TokenRow>> report_;
  std::map<std::string, double> baseline_;
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
