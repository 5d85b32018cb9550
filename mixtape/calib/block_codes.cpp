#include "mixtape/calib/block_codes.h"

#include <algorithm>

#include "mixtape/calib/dwq.h"
#include "mixtape/calib/hidden_rows.h"
#include "mixtape/calib/kept_states.h"
#include "mixtape/calib/learned_codes.h"
#include "mixtape/calib/state_file.h"
#include "mixtape/ops/elementwise/cast.h"
#include "mixtape/ops/elementwise/elementwise.h"
#include "mixtape/ops/layout/layout.h"
#include "mixtape/ops/reduce/axes.h"

namespace mixtape {
namespace {

// How far a layer is from giving the targets [B, S, D].
class HiddenError final : public Objective {
 public:
  HiddenError(const CausalLm& model, std::int64_t layer, const HiddenRows& inputs, const HiddenRows& targets,
              Communicator& communicator)
      : weights_(model.weights()),
        tape_(weights_.tape()),
        layer_(model.layer(layer)),
        inputs_(inputs),
        targets_(targets),
        communicator_(communicator) {}

  // Each member's share of the rows.
  BatchLoss train(std::span<const std::size_t> rows, const Optimizer&) override {
    const std::span<const std::size_t> mine = share_of(rows, communicator_);
    const std::vector<float> weights = inputs_.weights(mine);
    const double positions = communicator_.sum_of(sum_of(weights));
    const Var errors = this->errors(mine, weights);
    std::vector<float> shares = weights;
    for (float& s : shares) s = static_cast<float>(s / positions);
    tape_.backward(errors, Buffer::from(tape_.device(), errors.shape(), shares));
    weights_.pass_gradients();
    return {communicator_.sum_of(loss(errors, weights)), positions};
  }

  BatchLoss evaluate(std::span<const std::size_t> rows) override {
    const NoGrad guard(tape_);
    const std::span<const std::size_t> mine = share_of(rows, communicator_);
    const std::vector<float> weights = inputs_.weights(mine);
    const double sum = mine.empty() ? 0.0 : loss(errors(mine, weights), weights);
    return {communicator_.sum_of(sum), communicator_.sum_of(sum_of(weights))};
  }

 private:
  // f32 [B, S, 1] of each position; of padding something finite.
  Var errors(std::span<const std::size_t> rows, std::vector<float> weights) const {
    weights_.renew();
    const Var y = cast(layer_(tape_.constant(inputs_.batch(rows))), DType::f32);  // [B, S, D]
    const Var target = cast(tape_.constant(targets_.batch(rows)), DType::f32);
    for (float& w : weights) w = w > 0.0f ? 1e-20f : 1.0f;
    const Shape by_position{y.shape()[0], y.shape()[1], 1};
    const Var least = tape_.constant(Buffer::from(tape_.device(), by_position, weights));
    const Var difference = y - target;
    return sum(difference * difference, {-1}, true) / (sum(target * target, {-1}, true) + least);
  }

  static double sum_of(const std::vector<float>& v) {
    double sum = 0.0;
    for (const float x : v) sum += static_cast<double>(x);
    return sum;
  }

  double loss(const Var& errors, const std::vector<float>& weights) const {
    tape_.encoder().commit_and_wait();
    std::vector<float> counted = errors.value().to_vector<float>();
    for (std::size_t i = 0; i < counted.size(); ++i) counted[i] *= weights[i];
    return sum_of(counted);
  }

  TapeWeights& weights_;
  Tape& tape_;
  std::function<Var(const Var& x)> layer_;
  const HiddenRows& inputs_;
  const HiddenRows& targets_;
  Communicator& communicator_;
};

// The rows that learn, and those that judge.
struct BlockRows {
  std::vector<TokenRow> all;
  std::size_t train = 0;

  BlockRows(const CalibrationData& data, std::int64_t most) {
    const auto take = [&](const std::vector<TokenRow>& from, std::size_t n) {
      for (const TokenRow& row : from) {
        if (row.size() > 1 && all.size() < n) all.push_back(row);
      }
    };
    take(data.train, static_cast<std::size_t>(most));
    train = all.size();
    take(data.validation, train + data.validation.size());
  }
};

// One walk through the layers.
class Walk {
 public:
  Walk(const BlockCodesOptions& options, const MethodInput& in, Student& student)
      : o_(options),
        in_(in),
        student_(student),
        communicator_(in.communicator ? *in.communicator : alone_),
        tape_(in.teacher.tape()),
        layers_(std::ssize(student.config.layers)),
        rows_(in.data, options.rows),
        targets_(in.teacher.model(), tape_, rows_.all),
        inputs_(embedded()) {
    if (o_.train.validate_every == 0) o_.train.validate_every = o_.train.steps;
    if (o_.rate_from_start && in.start_kl) rate_from_start(o_.train, *in.start_kl, true);
    report_.learning_rate = done_report_.learning_rate = o_.train.learning_rate;
    if (const auto file = kept_.find()) load(*file);
  }

  TrainReport run() {
    for (std::int64_t i = 0; i < layers_ && !report_.stopped_early; ++i) {
      report_.stopped_early =
          !all_have(targets_.pass(in_.teacher.model().layer(i), o_.train.batch_size, in_.hooks));
      if (report_.stopped_early) break;
      if (i >= done_) learn(i);
      if (i + 1 < layers_ && !report_.stopped_early) report_.stopped_early = !all_have(advance(i));
    }
    kept_.keep();
    return report_;
  }

 private:
  HiddenRows embedded() const {
    TapeWeights weights(tape_, student_.parameters, Trainable::nothing);
    return HiddenRows(CausalLm(student_.config, weights, in_.teacher.compute()), tape_, rows_.all);
  }

  static std::string path_of(std::int64_t layer) { return str("model.layers.", layer, "."); }
  static std::string scope_of(std::int64_t layer) { return str("layer ", layer, " "); }

  // All members stop as soon as one was stopped.
  bool all_have(bool passed) { return communicator_.sum_of(passed ? 0.0 : 1.0) == 0.0; }

  bool advance(std::int64_t i) {
    TapeWeights weights(tape_, student_.parameters, Trainable::nothing);
    const CausalLm model(student_.config, weights, in_.teacher.compute());
    return inputs_.pass(model.layer(i), o_.train.batch_size, in_.hooks);
  }

  void learn(std::int64_t i) {
    const std::string at = path_of(i);
    add_latent_codes(student_, in_.teacher, in_.plan, at);
    TapeWeights weights(tape_, student_.parameters, Trainable::quantization);
    const CausalLm model(student_.config, weights, in_.teacher.compute());
    std::vector<NamedVar> leaves = weights.trainable();
    std::erase_if(leaves, [&](const NamedVar& leaf) { return !leaf.name.starts_with(at); });
    if (!leaves.empty()) train(i, model, leaves);
    pack_latent_codes(student_, tape_.device());
    renew_scales(student_);
    if (report_.stopped_early) return;
    done_ = i + 1;
    done_report_ = report_;
    kept_.keep_if_due();
  }

  void train(std::int64_t i, const CausalLm& model, const std::vector<NamedVar>& leaves) {
    HiddenError error(model, i, inputs_, targets_, communicator_);
    TrainState state{make_optimizer(leaves, student_.parameters, o_.train)};
    const RunHooks hooks = hooks_of(i);
    const KeptStage kept(hooks, "training", [&](const std::filesystem::path& file) { state.save(file); });
    if (const auto file = kept.find()) state.load(*file);
    const auto keep_if_due = [&](const TrainState&) {
      if (!kept.is_due(state.report.stopped_early)) return;
      const bool has_others = kept_.keep();  // the layers before it, which may have been learned since
      if (kept.keep() && has_others && i > 0) forget(in_.hooks, scope_of(i - 1));
    };
    TrainLoop loop(
        error, state,
        {rows_.train, rows_.all.size() - rows_.train,
         shuffled_batches(rows_.train, o_.train.batch_size, o_.seed + static_cast<std::uint64_t>(i))},
        o_.train, {.run = hooks, .checkpoint = keep_if_due, .communicator = &communicator_});
    loop.run();
    add(state.report);
  }

  // The layers that have learned.
  void save(const std::filesystem::path& file) const {
    StateFile state{.figures = {{"layers", done_}, {"report", to_json(done_report_)}}};
    for_each_learned(
        [&](const PlannedModule& m) { state.add(m.path, student_.parameters.quantized.at(m.path)); });
    state.save(file);
  }

  void load(const SafetensorsFile& file) {
    read_figures(file, [&](const nlohmann::json& figures) {
      figures.at("layers").get_to(done_);
      report_ = done_report_ = train_report(figures.at("report"));
    });
    for_each_learned([&](const PlannedModule& m) {
      student_.parameters.quantized.at(m.path) = weight_of(file, m.path, m, tape_.device());
    });
  }

  template <class Fn>
  void for_each_learned(const Fn& fn) const {
    for (const PlannedModule& m : in_.plan.modules) {
      for (std::int64_t i = 0; m.stored && i < done_; ++i) {
        if (m.path.starts_with(path_of(i))) fn(m);
      }
    }
  }

  void add(const TrainReport& layer) {
    if (layer.best_step > 0) report_.best_step = report_.steps_done + layer.best_step;
    report_.steps_done += layer.steps_done;
    report_.tokens_seen += layer.tokens_seen;
    report_.seconds += layer.seconds;
    report_.stopped_early = layer.stopped_early;
  }

  // A layer's steps among those of all. Its validations are of another error than the caller knows.
  RunHooks hooks_of(std::int64_t i) const {
    RunHooks hooks = within(in_.hooks, scope_of(i));
    hooks.progress = [this, i](StageProgress p) {
      if (p.validation_loss) return;
      p.stage = "learning layers";
      p.done += i * o_.train.steps;
      p.total = layers_ * o_.train.steps;
      in_.hooks.report(p);
    };
    return hooks;
  }

  BlockCodesOptions o_;
  const MethodInput& in_;
  Student& student_;
  SingleProcess alone_;
  Communicator& communicator_;
  Tape& tape_;
  std::int64_t layers_;
  BlockRows rows_;
  HiddenRows targets_, inputs_;
  TrainReport report_;
  std::int64_t done_ = 0;  // layers that have learned, and the report up to them
  TrainReport done_report_;
  KeptStage kept_{in_.hooks, "layers", [this](const std::filesystem::path& file) { save(file); }};
};

}  // namespace

Method block_codes(const BlockCodesOptions& options) {
  return {.name = "codes by layer",
          .improve = [options](const MethodInput& in,
                               Student& student) { return Walk(options, in, student).run(); },
          .check =
              [options](const ModelSource&, const CalibrationData&) {
                check(options.train);
                require(options.rows > 0, "codes by layer: rows is ", options.rows, ", expected 1 or more");
              }};
}

}  // namespace mixtape
