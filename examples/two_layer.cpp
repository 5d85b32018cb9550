// Two layers learn a line of text by heart: embedding -> 2 x (rms_norm -> SwiGLU, added) -> logits ->
// cross_entropy. There is no attention: a token sees only itself, so the line must not go on in two ways
// after one letter.
#include <cstdio>
#include <map>

#include "mixtape/mixtape.h"
using namespace mixtape;

constexpr std::int64_t kHidden = 32, kWide = 64;
const std::string kLine = "blacksmith forge";  // no letter twice

// The trained tensors, by name, with what Adam remembers of each.
class Model {
 public:
  explicit Model(Tape& tape) : tape_(tape) {}
  // Creates the tensor at its first use: normally distributed around 0, or all ones.
  Var weight(const std::string& name, const Shape& shape, double deviation) {
    const auto found = tensors_.find(name);
    if (found != tensors_.end()) return found->second.w;
    std::vector<float> values;
    for (std::int64_t i = 0; i < shape.numel(); ++i) {
      const double value = normal(tensors_.size(), static_cast<std::uint64_t>(i));
      values.push_back(deviation == 0.0 ? 1.0f : static_cast<float>(deviation * value));
    }
    const Device& device = tape_.device();
    const Tensor tensor{tape_.parameter(Buffer::from(device, shape, values)), device.alloc(DType::f32, shape),
                        device.alloc(DType::f32, shape)};
    return tensors_.emplace(name, tensor).first->second.w;
  }
  void step(int step) {
    std::vector<AdamTensor> all;
    for (const auto& [name, t] : tensors_) all.push_back({t.w.value(), t.w.grad(), t.m, t.v});
    adam_step(tape_.encoder(), all, {.lr = 0.002f, .step = step});
    for (const auto& [name, t] : tensors_) t.w.clear_grad();
  }

 private:
  struct Tensor {
    Var w;
    Buffer m, v;
  };
  Tape& tape_;
  std::map<std::string, Tensor> tensors_;
};

Var layer(Model& model, const std::string& name, const Var& x) {
  const Var h = rms_norm(x, model.weight(name + ".norm", {kHidden}, 0.0), 1e-6f);
  const Var gate = matmul(h, model.weight(name + ".gate", {kHidden, kWide}, 0.2));
  const Var up = matmul(h, model.weight(name + ".up", {kHidden, kWide}, 0.2));
  return x + matmul(silu_mul(gate, up), model.weight(name + ".down", {kWide, kHidden}, 0.1));
}

int main() {
  try {
    Tape tape(Device::open("auto"));
    Model model(tape);
    std::vector<std::uint32_t> letters(kLine.begin(), kLine.end());
    const auto count = static_cast<std::int64_t>(letters.size()) - 1;
    const Buffer text = Buffer::from(tape.device(), {count + 1}, letters);
    const Buffer inputs = text.slice(0, count), targets = text.slice(1, count + 1);

    float loss_value = 0.0f;
    for (int step = 1; step <= 100; ++step) {
      Var x = embedding(model.weight("embedding", {128, kHidden}, 1.0), inputs);  // [count, kHidden]
      x = layer(model, "layer1", layer(model, "layer0", x));
      const Var logits = matmul(x, model.weight("head", {kHidden, 128}, 0.1));
      const Var loss = mean(cross_entropy(logits, targets));
      tape.backward(loss);
      model.step(step);
      tape.encoder().commit_and_wait();
      loss_value = loss.value().to_vector<float>()[0];
      if (step == 1 || step % 20 == 0)
        std::printf("step %3d  loss %.4f\n", step, static_cast<double>(loss_value));
    }
    return loss_value < 0.01f ? 0 : 1;
  } catch (const Error& error) {
    std::fprintf(stderr, "two_layer: %s\n", error.what());
    return 1;
  }
}
