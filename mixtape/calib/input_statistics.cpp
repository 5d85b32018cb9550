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

// f32 [T, K].
Var flat_f32(const Var& x) {
  const Var flat = reshape(x, {x.shape().rows(), x.shape().cols()});
  return flat.dtype() == DType::f32 ? flat : cast(flat, DType::f32);
}

// sum += a^T b, over tokens [T, N] and [T, K]: as a matrix product's weight gradient is computed. With offsets for each
// expert its own.
void add_products(CommandEncoder& encoder, const Buffer& a, const Buffer& b, const Buffer& offsets,
                  const Buffer& sum) {
  if (offsets) {
    grouped_matmul_backward(encoder, b, {}, offsets, a, {}, {sum, Accumulate::yes});
  } else {
    matmul_backward(encoder, b, {}, a, {}, {sum, Accumulate::yes}, false, true);
  }
}

// Sums over the batches of one layer, made when its first batch comes.
struct Sums {
  Buffer squares;  // f32 [K, 1], or [E, K, 1]
  Buffer products, cross;
  std::vector<std::int64_t> tokens;

  Sums(const Device& device, std::int64_t cols, std::int64_t experts, Statistics wanted) {
    const auto matrices = [&](std::int64_t width) {
      return zeros(device, experts > 0 ? Shape{experts, cols, width} : Shape{cols, width});
    };
    squares = matrices(1);
    tokens.resize(static_cast<std::size_t>(std::max<std::int64_t>(experts, 1)));
    if (wanted >= Statistics::second_moments) products = matrices(cols);
    if (wanted == Statistics::cross_moments && experts == 0) cross = matrices(cols);
  }

  void add_squares(const Var& input, const Buffer& offsets) {
    CommandEncoder& encoder = input.tape().encoder();
    const Var x = flat_f32(input);
    const Buffer units = ones(input.tape().device(), {x.shape()[0], 1});
    const Buffer squared = (x * x).value();
    add_products(encoder, squared, units, offsets, squares);
    if (!offsets) {
      tokens[0] += x.shape()[0];
      return;
    }
    encoder.commit_and_wait();
    const std::vector<std::uint32_t> ends = offsets.to_vector<std::uint32_t>();
    for (std::size_t e = 0; e < tokens.size(); ++e) tokens[e] += ends[e + 1] - ends[e];
  }

  // Of inputs z; x is the teacher's, where cross moments are wanted.
  void add_moments(const Var& z, const Var& x, const Buffer& offsets) const {
    CommandEncoder& encoder = z.tape().encoder();
    const Buffer b = flat_f32(z).value();
    if (products) add_products(encoder, b, b, offsets, products);
    if (cross) add_products(encoder, flat_f32(x).value(), b, offsets, cross);
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
    return {tokens, Buffer::from(squares.device(), shape, means), products, cross};
  }
};

class Collector {
 public:
  Collector(const Teacher& teacher, const QuantizationPlan& plan, Statistics wanted)
      : plan_(plan), wanted_(wanted), weights_(teacher.weights()) {
    weights_.observe_inputs(
        [this](const std::string& path, const Var& x, const Buffer& offsets) { observe(path, x, offsets); });
  }

  TapeWeights& weights() { return weights_; }
  const QuantizationPlan& plan() const { return plan_; }

  // What comes now is of the batch that went through before, behind the student's layers.
  void enter_student() { is_student_ = true; }

  // Modules that are asked one after the other about the same buffer share its sums: q, k and v; gate and up.
  void observe(const std::string& path, const Var& x, const Buffer& offsets) {
    if (is_student_) return observe_student(path, x, offsets);
    const PlannedModule* module = plan_.find(path);
    if (module == nullptr || !module->stored) return;
    const bool is_same = last_input_ && &last_input_.memory() == &x.value().memory() &&
                         last_input_.byte_offset() == x.value().byte_offset() &&
                         last_input_.numel() == x.value().numel();
    if (!is_same) {
      last_path_ = path;
      last_input_ = x.value();
      const std::int64_t experts = offsets ? offsets.numel() - 1 : 0;
      Sums& sums =
          sums_.try_emplace(path, x.tape().device(), x.shape().cols(), experts, wanted_).first->second;
      sums.add_squares(x, offsets);
      if (wanted_ == Statistics::cross_moments) {
        teachers_.insert_or_assign(path, x);
      } else {
        sums.add_moments(x, x, offsets);
      }
    }
    shared_.insert_or_assign(path, last_path_);
  }

  void end_batch(Tape& tape) {
    tape.encoder().commit_and_wait();
    last_input_ = Buffer();
    teachers_.clear();
    is_student_ = false;
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
  void observe_student(const std::string& path, const Var& z, const Buffer& offsets) {
    if (const auto x = teachers_.find(path); x != teachers_.end())
      sums_.at(path).add_moments(z, x->second, offsets);
  }

  const QuantizationPlan& plan_;
  Statistics wanted_;
  TapeWeights weights_;
  std::map<std::string, Sums> sums_;
  std::map<std::string, std::string> shared_;  // module path -> key of sums_
  std::string last_path_;
  Buffer last_input_;
  std::map<std::string, Var> teachers_;  // inputs of the batch by key of sums_, where the student's follow
  bool is_student_ = false;
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

// One walk through the layers.
class Walk {
 public:
  Walk(const Teacher& teacher, const QuantizationPlan& plan, Statistics wanted, const RunHooks& hooks,
       const FittedWeight& fitted)
      : teacher_(teacher),
        tape_(teacher.tape()),
        collector_(teacher, plan, wanted),
        model_(teacher.source().config(), collector_.weights(), teacher.compute()),
        follows_(wanted == Statistics::cross_moments),
        hooks_(hooks),
        fitted_(fitted) {}

  void embed(std::span<const TokenRow> rows, std::int64_t batch_size) {
    for (const std::vector<TokenRow>& batch : equal_batches(rows, batch_size)) {
      hooks_.throw_if_stopped(kStage);
      const Buffer x = model_.embed(make_batch(tape_.device(), batch).ids).value();
      hidden_.push_back({x, x});
      collector_.end_batch(tape_);
    }
    require(!hidden_.empty(), "input statistics: found no row of two tokens or more, expected at least one");
  }

  void run(const std::function<void(const LayerStatistics&)>& visit) {
    const auto layers = std::ssize(model_.config().layers);
    const auto report = [&](std::int64_t i) {
      hooks_.report({.stage = kStage, .done = i, .total = layers, .unit = "layers"});
    };
    for (std::int64_t i = 0; i < layers; ++i) {
      report(i);
      pass(model_.layer(i));
      const LayerStatistics statistics = collector_.take();
      visit(statistics);
      if (follows_) advance(i, statistics);
    }
    pass_head();
    report(layers);
    visit(collector_.take());
  }

 private:
  static constexpr const char* kStage = "input statistics";
  // Of one batch, [B, S, hidden].
  struct Hidden {
    Buffer teacher, student;
  };

  void pass(const std::function<Var(const Var& x)>& layer) {
    for (Hidden& h : hidden_) {
      hooks_.throw_if_stopped(kStage);
      h.teacher = layer(tape_.constant(h.teacher)).value();
      if (follows_) {
        collector_.enter_student();
        layer(tape_.constant(h.student));
      }
      collector_.end_batch(tape_);
    }
  }

  void advance(std::int64_t i, const LayerStatistics& visited) {
    TapeWeights weights = teacher_.weights();
    for (const auto& [path, statistics] : visited) weights.replace(path, fitted_(path));
    const CausalLm student(model_.config(), weights, teacher_.compute());
    const auto layer = student.layer(i);
    for (Hidden& h : hidden_) {
      hooks_.throw_if_stopped(kStage);
      h.student = layer(tape_.constant(h.student)).value();
      tape_.encoder().commit_and_wait();
    }
  }

  void pass_head() {
    const std::string head = collector_.plan().find("lm_head") ? "lm_head" : "model.embed_tokens";
    for (const Hidden& h : hidden_) {
      hooks_.throw_if_stopped(kStage);
      collector_.observe(head, model_.final_norm(tape_.constant(h.teacher)), Buffer());
      if (follows_) {
        collector_.enter_student();
        collector_.observe(head, model_.final_norm(tape_.constant(h.student)), Buffer());
      }
      collector_.end_batch(tape_);
    }
  }

  const Teacher& teacher_;
  Tape& tape_;
  Collector collector_;
  CausalLm model_;
  bool follows_;
  const RunHooks& hooks_;
  const FittedWeight& fitted_;
  std::vector<Hidden> hidden_;
};

}  // namespace

void visit_input_statistics(const Teacher& teacher, const QuantizationPlan& plan,
                            std::span<const TokenRow> rows, std::int64_t batch_size, Statistics wanted,
                            const RunHooks& hooks, const std::function<void(const LayerStatistics&)>& visit,
                            const FittedWeight& fitted) {
  require(batch_size > 0, "input statistics: batch size is ", batch_size, ", expected 1 or more");
  require(wanted != Statistics::cross_moments || fitted,
          "input statistics: cross moments are wanted, expected a student that is being fitted");
  const NoGrad guard(teacher.tape());
  Walk walk(teacher, plan, wanted, hooks, fitted);
  walk.embed(rows, batch_size);
  walk.run(visit);
}

}  // namespace mixtape
