#include "mixtape/calib/input_statistics.h"

#include <algorithm>

#include "mixtape/ops/elementwise/cast.h"
#include "mixtape/ops/elementwise/elementwise.h"
#include "mixtape/ops/grouped_matmul/grouped_matmul.h"
#include "mixtape/ops/layout/layout.h"
#include "mixtape/ops/matmul/matmul.h"
#include "mixtape/runtime/creation.h"

namespace mixtape {
namespace {

// Sums over the batches of one layer, made when its first batch comes.
struct Sums {
  Buffer squares;  // f32 [K], or [E, K, 1]
  Buffer products;
  std::vector<std::int64_t> tokens;

  Sums(const Device& device, std::int64_t cols, std::int64_t experts, bool wants_products) {
    squares = zeros(device, experts > 0 ? Shape{experts, cols, 1} : Shape{cols, 1});
    tokens.resize(static_cast<std::size_t>(std::max<std::int64_t>(experts, 1)));
    if (wants_products)
      products = zeros(device, experts > 0 ? Shape{experts, cols, cols} : Shape{cols, cols});
  }

  // Sums of products are those of a matrix product's weight gradient: dW = dY^T X, here X^T X.
  void add(const Var& input, const Buffer& offsets) {
    CommandEncoder& encoder = input.tape().encoder();
    const Var flat = reshape(input, {input.shape().rows(), input.shape().cols()});
    const Var x = flat.dtype() == DType::f32 ? flat : cast(flat, DType::f32);  // [T, K]
    const Buffer squared = (x * x).value();
    const Buffer units = ones(input.tape().device(), {x.shape()[0], 1});
    if (offsets) {
      grouped_matmul_backward(encoder, units, {}, offsets, squared, {}, {squares, Accumulate::yes});
      if (products)
        grouped_matmul_backward(encoder, x.value(), {}, offsets, x.value(), {}, {products, Accumulate::yes});
      encoder.commit_and_wait();
      const std::vector<std::uint32_t> ends = offsets.to_vector<std::uint32_t>();
      for (std::size_t e = 0; e < tokens.size(); ++e) tokens[e] += ends[e + 1] - ends[e];
    } else {
      matmul_backward(encoder, units, {}, squared, {}, {squares, Accumulate::yes}, false, true);
      if (products)
        matmul_backward(encoder, x.value(), {}, x.value(), {}, {products, Accumulate::yes}, false, true);
      tokens[0] += x.shape()[0];
    }
  }

  InputStatistics result() const {
    const bool grouped = squares.shape().rank() == 3;
    const std::int64_t cols = squares.shape().rows() / std::ssize(tokens);
    std::vector<float> means = squares.to_vector<float>();
    for (std::size_t i = 0; i < means.size(); ++i) {
      const std::int64_t n = tokens[i / static_cast<std::size_t>(cols)];
      means[i] = n > 0 ? means[i] / static_cast<float>(n) : 0.0f;
    }
    const Shape shape = grouped ? Shape{std::ssize(tokens), cols} : Shape{cols};
    return {tokens, Buffer::from(squares.device(), shape, means), products};
  }
};

class Collector {
 public:
  Collector(const Teacher& teacher, const QuantizationPlan& plan, Statistics wanted)
      : plan_(plan), wants_products_(wanted == Statistics::second_moments), weights_(teacher.weights()) {
    weights_.observe_inputs(
        [this](const std::string& path, const Var& x, const Buffer& offsets) { observe(path, x, offsets); });
  }

  TapeWeights& weights() { return weights_; }

  // Modules that are asked one after the other about the same buffer share its sums: q, k and v; gate and up.
  void observe(const std::string& path, const Var& x, const Buffer& offsets) {
    const PlannedModule* module = plan_.find(path);
    if (module == nullptr || !module->stored) return;
    const bool is_same = last_input_ && &last_input_.memory() == &x.value().memory() &&
                         last_input_.byte_offset() == x.value().byte_offset() &&
                         last_input_.numel() == x.value().numel();
    if (!is_same) {
      last_path_ = path;
      last_input_ = x.value();
      const std::int64_t experts = offsets ? offsets.numel() - 1 : 0;
      const auto at =
          sums_.try_emplace(path, x.tape().device(), x.shape().cols(), experts, wants_products_).first;
      at->second.add(x, offsets);
    }
    shared_.insert_or_assign(path, last_path_);
  }

  void end_batch(Tape& tape) {
    tape.encoder().commit_and_wait();
    last_input_ = Buffer();
  }

  LayerStatistics take() {
    std::map<std::string, InputStatistics> results;
    for (const auto& [path, sums] : sums_) results.emplace(path, sums.result());
    LayerStatistics statistics;
    for (const auto& [path, from] : shared_) statistics.emplace(path, results.at(from));
    sums_.clear();
    shared_.clear();
    return statistics;
  }

 private:
  const QuantizationPlan& plan_;
  bool wants_products_;
  TapeWeights weights_;
  std::map<std::string, Sums> sums_;
  std::map<std::string, std::string> shared_;  // module path -> key of sums_
  std::string last_path_;
  Buffer last_input_;
};

// Batches of rows of one length, so that no position is padding.
std::vector<std::vector<TokenRow>> equal_batches(std::span<const TokenRow> rows, std::int64_t batch_size) {
  std::vector<TokenRow> sorted(rows.begin(), rows.end());
  std::stable_sort(sorted.begin(), sorted.end(),
                   [](const TokenRow& a, const TokenRow& b) { return a.size() > b.size(); });
  std::vector<std::vector<TokenRow>> batches;
  for (TokenRow& row : sorted) {
    if (row.size() < 2) break;  // it predicts nothing
    if (batches.empty() || batches.back().front().size() != row.size() ||
        std::ssize(batches.back()) == batch_size)
      batches.emplace_back();
    batches.back().push_back(std::move(row));
  }
  return batches;
}

}  // namespace

void visit_input_statistics(const Teacher& teacher, const QuantizationPlan& plan,
                            std::span<const TokenRow> rows, std::int64_t batch_size, Statistics wanted,
                            const RunHooks& hooks, const std::function<void(const LayerStatistics&)>& visit) {
  require(batch_size > 0, "input statistics: batch size is ", batch_size, ", expected 1 or more");
  const std::string stage = "input statistics";
  Tape& tape = teacher.tape();
  const NoGrad guard(tape);
  Collector collector(teacher, plan, wanted);
  const CausalLm model(teacher.source().config(), collector.weights(), teacher.compute());
  std::vector<Buffer> hidden;  // [B, S, hidden] of each batch
  for (const std::vector<TokenRow>& batch : equal_batches(rows, batch_size)) {
    hooks.throw_if_stopped(stage);
    hidden.push_back(model.embed(make_batch(tape.device(), batch).ids).value());
    collector.end_batch(tape);
  }
  require(!hidden.empty(), "input statistics: found no row of two tokens or more, expected at least one");
  const auto layers = std::ssize(model.config().layers);
  for (std::int64_t i = 0; i < layers; ++i) {
    hooks.report({.stage = stage, .done = i, .total = layers, .unit = "layers"});
    const auto layer = model.layer(i);
    for (Buffer& x : hidden) {
      hooks.throw_if_stopped(stage);
      x = layer(tape.constant(x)).value();
      collector.end_batch(tape);
    }
    visit(collector.take());
  }
  const std::string head = plan.find("lm_head") ? "lm_head" : "model.embed_tokens";
  for (const Buffer& x : hidden) {
    hooks.throw_if_stopped(stage);
    collector.observe(head, model.final_norm(tape.constant(x)), Buffer());
    collector.end_batch(tape);
  }
  hooks.report({.stage = stage, .done = layers, .total = layers, .unit = "layers"});
  visit(collector.take());
}

}  // namespace mixtape
