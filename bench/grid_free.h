// A teacher without the grid of its quantized file.
#pragma once

#include <algorithm>
#include <cstdio>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "mixtape/calib/dwq.h"
#include "mixtape/core/random.h"
#include "mixtape/io/tensor_list.h"

namespace mixtape {

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
inline Buffer moved_in_its_cell(const Buffer& w, std::int64_t group, float steps, std::uint64_t seed) {
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

// The model with its weights moved at random inside their 4-bit cells, then trained to give the original's
// distributions on `rows`.
inline std::unique_ptr<ModelSource> without_grid(const ModelSource& original, const Teacher& teacher,
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

}  // namespace mixtape
