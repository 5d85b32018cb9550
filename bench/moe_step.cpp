// Forward and backward of a Qwen3-MoE-shaped model with random weights, bf16, gradients of every parameter,
// no optimizer; 634 million parameters, 8 layers, 32 experts, 8 per token. Where the device can, the step is
// recorded and replayed:
//   moe_step [DEVICE] [BATCH] [LENGTH] [STEPS] [times]      defaults: cuda 4 1024 20
// times: a last step's dispatches one by one, the slowest first.
#include <cstdio>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "bench/dispatch_times.h"
#include "mixtape/calib/data.h"
#include "mixtape/calib/logit_blocks.h"
#include "mixtape/core/random.h"
#include "mixtape/core/stopwatch.h"
#include "mixtape/io/tensor_list.h"
#include "mixtape/nn/causal_lm.h"
#include "mixtape/ops/cross_entropy/cross_entropy.h"

namespace mixtape {
namespace {

ModelConfig config() {
  const nlohmann::json json = {{"model_type", "qwen3_moe"},
                               {"hidden_size", 1024},
                               {"intermediate_size", 3072},
                               {"num_hidden_layers", 8},
                               {"num_attention_heads", 16},
                               {"num_key_value_heads", 4},
                               {"head_dim", 64},
                               {"num_experts", 32},
                               {"num_experts_per_tok", 8},
                               {"moe_intermediate_size", 384},
                               {"decoder_sparse_step", 1},
                               {"norm_topk_prob", true},
                               {"mlp_only_layers", nlohmann::json::array()},
                               {"vocab_size", 151936},
                               {"rms_norm_eps", 1e-6},
                               {"rope_theta", 10000.0},
                               {"tie_word_embeddings", false},
                               {"hidden_act", "silu"},
                               {"torch_dtype", "bfloat16"}};
  return ModelConfig::parse(json, "moe_step");
}

Parameters random_parameters(const ModelConfig& config, const Device& device) {
  std::vector<bf16> block;
  for (std::uint64_t i = 0; i < (1u << 20) + 7; ++i)
    block.emplace_back(static_cast<float>(0.02 * normal(1, i)));
  Parameters parameters;
  std::size_t at = 0;
  for (const ModelTensor& t : tensor_list(config)) {
    std::vector<bf16> values(static_cast<std::size_t>(t.shape.numel()), bf16(1.0f));
    for (bf16& v : values) {
      if (t.kind == TensorKind::vector) break;
      v = block[at];
      if (++at == block.size()) at = 0;
    }
    parameters.dense.emplace(t.name, Buffer::from(device, t.shape, values));
  }
  return parameters;
}

Batch random_batch(const Device& device, std::int64_t batch, std::int64_t length, std::int64_t vocab) {
  std::vector<TokenRow> rows(static_cast<std::size_t>(batch));
  for (std::size_t r = 0; r < rows.size(); ++r) {
    for (std::uint64_t i = 0; i <= static_cast<std::uint64_t>(length); ++i)
      rows[r].push_back(
          static_cast<std::uint32_t>(uniform_index(r + 1, i, static_cast<std::uint64_t>(vocab))));
  }
  return make_batch(device, rows);
}

// One step: the head on blocks of positions, then the blocks of the model. Gradients are dropped at its end.
void step(const CausalLm& model, const TapeWeights& weights, Tape& tape, const Batch& batch,
          const Buffer& shares) {
  const Var hidden = model.hidden(batch.ids);
  const std::int64_t positions = batch.ids.numel();
  const Shape flat{positions, hidden.shape().cols()};
  const Buffer gradient = tape.alloc(hidden.dtype(), flat);
  for_each_logit_block(model, positions, tape.device(), [&](std::int64_t begin, std::int64_t end) {
    const Var leaf = tape.parameter(hidden.value().reshape(flat).slice(begin, end));
    const Var logits = model.logits(leaf, hidden.dtype());
    const Buffer dlogits = tape.alloc(logits.dtype(), logits.shape());
    cross_entropy_forward_backward(tape.encoder(), logits.value(), batch.targets.slice(begin, end),
                                   shares.slice(begin, end), tape.alloc(DType::f32, {end - begin}), dlogits);
    tape.backward(logits, dlogits);
    tape.encoder().copy(leaf.grad(), gradient.slice(begin, end));
  });
  tape.backward(hidden, gradient.reshape(hidden.shape()));
  for (const NamedVar& v : weights.trainable()) v.var.clear_grad();
}

void run(const std::string& name, std::int64_t batch_size, std::int64_t length, std::int64_t steps,
         bool times) {
  const Device device = Device::open(name);
  const ModelConfig c = config();
  const Parameters parameters = random_parameters(c, device);
  Tape tape(device);
  TapeWeights weights(tape, parameters, Trainable::everything);
  const CausalLm model(c, weights, DType::bf16);
  const Batch batch = random_batch(device, batch_size, length, c.vocab_size);
  const std::int64_t positions = batch_size * length;
  const Buffer shares = device.alloc(DType::f32, {positions});
  tape.encoder().fill(shares, 1.0f / static_cast<float>(positions));
  for (int i = 0; i < 3; ++i) step(model, weights, tape, batch, shares);
  tape.encoder().commit_and_wait();
  device.reset_peak();
  const auto replay = device.backend().can_record()
                          ? tape.encoder().record([&] { step(model, weights, tape, batch, shares); })
                          : nullptr;
  const Stopwatch watch;
  for (std::int64_t i = 0; i < steps; ++i) {
    if (replay) {
      replay->run();
    } else {
      step(model, weights, tape, batch, shares);
    }
  }
  tape.encoder().commit_and_wait();
  const double seconds = watch.seconds() / static_cast<double>(steps);
  std::printf("%s: qwen3_moe step, %lld x %lld tokens: %.2f ms, %.0f tokens/s, peak %.2f GB\n",
              device.description().c_str(), static_cast<long long>(batch_size),
              static_cast<long long>(length), 1e3 * seconds,
              static_cast<double>(batch_size * length) / seconds,
              static_cast<double>(device.memory_stats().peak_bytes) / 1e9);
  if (!times) return;
  const DispatchTimes dispatches;
  step(model, weights, tape, batch, shares);
  tape.encoder().commit_and_wait();
  dispatches.print(30);
}

}  // namespace
}  // namespace mixtape

int main(int argc, char** argv) {
  try {
    mixtape::run(argc > 1 ? argv[1] : "cuda", argc > 2 ? std::atoll(argv[2]) : 4,
                 argc > 3 ? std::atoll(argv[3]) : 1024, argc > 4 ? std::atoll(argv[4]) : 20,
                 argc > 5 && std::string(argv[5]) == "times");
  } catch (const mixtape::Error& error) {
    std::fprintf(stderr, "moe_step: %s\n", error.what());
    return 1;
  }
}
