// A router, as in a mixture of experts, learns which expert each token belongs to.
//
// Tokens come from four clusters. The router scores the experts, softmax makes the scores weights, top_k
// names the two best experts of each token, and take_along_axis picks their weights. The picked weights say
// how the experts' answers are mixed; each expert here always answers with its own unit vector, and the mix
// should be that of the token's cluster.
#include <cstdio>

#include "mixtape/mixtape.h"
using namespace mixtape;

constexpr std::int64_t kTokens = 128, kSize = 8, kExperts = 4, kChosen = 2;
constexpr int kSteps = 150;

struct Tokens {
  std::vector<float> x;       // [kTokens, kSize]
  std::vector<float> wanted;  // [kTokens, kExperts]: 1 for the token's cluster, 0 elsewhere
};

// Token t lies near the centre of cluster t % kExperts.
Tokens make_clusters() {
  Tokens batch{std::vector<float>(kTokens * kSize), std::vector<float>(kTokens * kExperts, 0.0f)};
  for (std::int64_t t = 0; t < kTokens; ++t) {
    const std::int64_t cluster = t % kExperts;
    for (std::int64_t i = 0; i < kSize; ++i) {
      const double centre = normal(1, static_cast<std::uint64_t>(cluster * kSize + i));
      const double noise = normal(2, static_cast<std::uint64_t>(t * kSize + i));
      batch.x[static_cast<std::size_t>(t * kSize + i)] = static_cast<float>(centre + 0.3 * noise);
    }
    batch.wanted[static_cast<std::size_t>(t * kExperts + cluster)] = 1.0f;
  }
  return batch;
}

int main() {
  try {
    const Device device = Device::open("auto");
    Tape tape(device);
    const Tokens batch = make_clusters();
    const Var x = tape.constant(Buffer::from(device, {kTokens, kSize}, batch.x));
    const Buffer is_cluster = Buffer::from(device, {kTokens, kExperts}, batch.wanted);
    const Var gate = tape.parameter(device.alloc(DType::f32, {kSize, kExperts}));  // zeros: no preference
    const Buffer m = device.alloc(DType::f32, gate.shape()), v = device.alloc(DType::f32, gate.shape());

    double first = 0.0, last = 0.0;
    for (int step = 1; step <= kSteps; ++step) {
      const Var scores = matmul(x, gate);
      const Buffer indices = top_k(scores, kChosen).indices;  // u32 [kTokens, kChosen]
      const Var picked = take_along_axis(softmax(scores), indices);
      const Var weights = picked / repeat(reshape(row_sum(picked), {kTokens, 1}), 1, kChosen);
      // 1 where a chosen expert is the token's own: the mix puts `weights` there and wants it to be all.
      const Var is_own = take_along_axis(tape.constant(is_cluster), indices);
      const Var miss = weights - is_own;
      const Var loss = scale(mean(miss * miss), static_cast<float>(kChosen));

      gate.clear_grad();
      tape.backward(loss);
      adam_step(tape.encoder(), {{.p = gate.value(), .g = gate.grad(), .m = m, .v = v}},
                {.lr = 0.05f, .step = step});
      tape.encoder().commit_and_wait();
      last = static_cast<double>(loss.value().to_vector<float>()[0]);
      if (step == 1) first = last;
      if (step == 1 || step % 30 == 0) std::printf("step %3d  loss %.4f\n", step, last);
    }
    return last < 0.05 * first ? 0 : 1;
  } catch (const Error& error) {
    std::fprintf(stderr, "router: %s\n", error.what());
    return 1;
  }
}
