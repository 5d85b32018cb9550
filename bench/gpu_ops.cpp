// GPU time of ops at large shapes, in microseconds and as a share of the copy bandwidth measured in the same
// run:
//   gpu_ops [DEVICE] [OUT.csv] [OP]     rows: op,dtype,shape,impl,us,percent_of_copy
// OP: only those whose name begins so.
// Each timing runs over several sets of buffers that together exceed the cache; "percent" is the least
// traffic (each input read once, each output written once) over the time, as a share of a copy's.
// bench/peers/gpu_ops.py measures PyTorch at the same shapes.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <functional>

#include "mixtape/core/random.h"
#include "mixtape/core/stopwatch.h"
#include "mixtape/ops/adam/adam.h"
#include "mixtape/ops/attention/attention.h"
#include "mixtape/ops/cross_entropy/cross_entropy.h"
#include "mixtape/ops/elementwise/elementwise.h"
#include "mixtape/ops/embedding/embedding.h"
#include "mixtape/ops/gated_delta_rule/gated_delta_rule.h"
#include "mixtape/ops/kl_div/kl_div.h"
#include "mixtape/ops/moe_route/moe_route.h"
#include "mixtape/ops/quantize/quantize.h"
#include "mixtape/ops/quantized_matmul/quantized_matmul.h"
#include "mixtape/ops/rms_norm/rms_norm.h"
#include "mixtape/ops/silu_mul/silu_mul.h"
#include "mixtape/ops/softmax/softmax.h"
#include "mixtape/ops/take_along_axis/take_along_axis.h"

namespace mixtape {
namespace {

using Work = std::function<void(CommandEncoder&)>;

class Bench {
 public:
  Bench(const std::string& device, const std::string& file, std::string wanted)
      : device_(Device::open(device)), encoder_(device_), wanted_(std::move(wanted)) {
    if (!file.empty()) out_.open(file);
    out_ << "op,dtype,shape,impl,us,percent_of_copy\n";
    for (std::uint64_t i = 0; i < (1u << 22) + 3; ++i) block_.push_back(static_cast<float>(normal(7, i)));
    const Buffer a = device_.alloc(DType::f32, {1 << 28}), b = device_.alloc(DType::f32, {1 << 28});
    copy_ = static_cast<double>(2 * a.bytes()) / time([&](CommandEncoder& e) { e.copy(a, b); }, 1);
    std::printf("%s, copy %.0f GB/s\n", device_.description().c_str(), copy_ / 1e3);
  }

  const Device& device() const { return device_; }

  // Normal values: one block, repeated.
  Buffer random(DType dtype, const Shape& shape, float scale = 1.0f) {
    std::vector<float> values(static_cast<std::size_t>(shape.numel()));
    for (float& v : values) {
      v = scale * block_[at_];
      if (++at_ == block_.size()) at_ = 0;
    }
    if (dtype == DType::f32) return Buffer::from(device_, shape, values);
    return Buffer::from(device_, shape, std::vector<bf16>(values.begin(), values.end()));
  }
  Buffer indices(const Shape& shape, std::int64_t limit) {
    std::vector<std::uint32_t> values(static_cast<std::size_t>(shape.numel()));
    for (std::size_t i = 0; i < values.size(); ++i)
      values[i] = static_cast<std::uint32_t>(uniform_index(seed_, i, static_cast<std::uint64_t>(limit)));
    ++seed_;
    return Buffer::from(device_, shape, values);
  }
  Buffer output(DType dtype, const Shape& shape) { return device_.alloc(dtype, shape); }

  // `make` builds one set of buffers and the work on it; `bytes` is the least traffic of one call.
  void measure(const std::string& op, DType dtype, const std::string& shape, double bytes,
               const std::function<Work()>& make) {
    if (!op.starts_with(wanted_)) return;
    const auto count = static_cast<std::size_t>(std::clamp(512e6 / bytes + 1.0, 2.0, 8.0));
    std::vector<Work> sets;
    for (std::size_t i = 0; i < count; ++i) sets.push_back(make());
    const double us = time(
        [&](CommandEncoder& e) {
          for (const Work& work : sets) work(e);
        },
        static_cast<double>(count));
    const double percent = 100.0 * bytes / us / copy_;
    std::printf("%-22s %-5s %-28s %10.1f us %6.1f %% of copy\n", op.c_str(), name(dtype), shape.c_str(), us,
                percent);
    std::fflush(stdout);
    out_ << op << ',' << name(dtype) << ',' << shape << ",mixtape," << us << ',' << percent << '\n';
  }

 private:
  // Microseconds per call: median of nine passes, each long enough to hide the wait at its end.
  double time(const Work& pass, double calls) {
    pass(encoder_);
    encoder_.commit_and_wait();
    const auto run = [&](int repeats) {
      const Stopwatch watch;
      for (int i = 0; i < repeats; ++i) pass(encoder_);
      encoder_.commit_and_wait();
      return 1e6 * watch.seconds() / repeats;
    };
    const double once = run(2);
    const int repeats = std::clamp(static_cast<int>(20000.0 / once), 2, 500);
    std::vector<double> found;
    for (int i = 0; i < 9; ++i) found.push_back(run(repeats) / calls);
    std::sort(found.begin(), found.end());
    return found[4];
  }

  Device device_;
  CommandEncoder encoder_;
  std::string wanted_;
  std::ofstream out_;
  std::vector<float> block_;
  std::size_t at_ = 0;
  std::uint64_t seed_ = 1;
  double copy_ = 1.0;
};

double bytes_of(DType dtype, double elements) { return elements * static_cast<double>(size_of(dtype)); }

void pointwise(Bench& b) {
  const std::int64_t n = 1 << 27;
  for (const DType t : {DType::f32, DType::bf16}) {
    b.measure("silu_forward", t, str(n), bytes_of(t, 2.0 * n), [&, t]() -> Work {
      const Buffer x = b.random(t, {n}), y = b.output(t, {n});
      return [=](CommandEncoder& e) { unary_forward(e, Unary::silu, x, y); };
    });
    b.measure("silu_mul_forward", t, str(n), bytes_of(t, 3.0 * n), [&, t]() -> Work {
      const Buffer x = b.random(t, {n}), u = b.random(t, {n}), y = b.output(t, {n});
      return [=](CommandEncoder& e) { silu_mul_forward(e, x, u, y); };
    });
  }
}

void softmaxes(Bench& b) {
  for (const DType t : {DType::f32, DType::bf16}) {
    for (const auto& [rows, cols] :
         {std::pair<std::int64_t, std::int64_t>{8192, 4096}, {4096, 32768}, {2048, 151936}}) {
      const Shape s{rows, cols};
      const auto n = static_cast<double>(s.numel());
      const std::string shape = str(rows, "x", cols);
      b.measure("softmax_forward", t, shape, bytes_of(t, 2 * n), [&]() -> Work {
        const Buffer x = b.random(t, s), y = b.output(t, s);
        return [=](CommandEncoder& e) { softmax_forward(e, x, y); };
      });
      b.measure("softmax_backward", t, shape, bytes_of(t, 3 * n), [&]() -> Work {
        const Buffer y = b.random(t, s), dy = b.random(t, s), dx = b.output(t, s);
        return [=](CommandEncoder& e) { softmax_backward(e, y, dy, dx); };
      });
    }
  }
}

void losses(Bench& b) {
  const std::int64_t rows = 2048, cols = 151936;
  const Shape s{rows, cols};
  const auto n = static_cast<double>(s.numel());
  for (const DType t : {DType::f32, DType::bf16}) {
    b.measure("cross_entropy_both", t, str(rows, "x", cols), bytes_of(t, 2 * n), [&]() -> Work {
      const Buffer x = b.random(t, s), dx = b.output(t, s), targets = b.indices({rows}, cols);
      const Buffer loss = b.output(DType::f32, {rows}), dloss = b.random(DType::f32, {rows});
      return [=](CommandEncoder& e) { cross_entropy_forward_backward(e, x, targets, dloss, loss, dx); };
    });
    b.measure("kl_div_both", t, str(rows, "x", cols), bytes_of(t, 3 * n), [&]() -> Work {
      const Buffer x = b.random(t, s, 2.0f), p = b.random(t, s, 2.0f), dx = b.output(t, s);
      const Buffer loss = b.output(DType::f32, {rows}), dloss = b.random(DType::f32, {rows});
      return [=](CommandEncoder& e) { kl_div_forward_backward(e, p, x, 2.0f, dloss, loss, dx); };
    });
  }
}

// Ids by Zipf's law: rank r with probability proportional to 1/r, ranks in random order.
Buffer zipf_ids(Bench& b, std::int64_t vocab, std::int64_t n) {
  std::vector<double> sums;
  double total = 0.0;
  for (std::int64_t r = 1; r <= vocab; ++r) sums.push_back(total += 1.0 / static_cast<double>(r));
  const std::vector<std::uint64_t> order = permutation(5, static_cast<std::uint64_t>(vocab));
  std::vector<std::uint32_t> ids;
  for (std::int64_t i = 0; i < n; ++i) {
    const double at = uniform(9, static_cast<std::uint64_t>(i)) * total;
    const auto rank = static_cast<std::size_t>(std::lower_bound(sums.begin(), sums.end(), at) - sums.begin());
    ids.push_back(static_cast<std::uint32_t>(order[std::min(rank, order.size() - 1)]));
  }
  return Buffer::from(b.device(), {n}, ids);
}

void embeddings(Bench& b) {
  const std::int64_t vocab = 151936, hidden = 2048, n = 65536;
  for (const DType t : {DType::f32, DType::bf16}) {
    for (const std::string kind : {"uniform", "zipf", "same"}) {
      b.measure("embedding_backward", t, str(vocab, "x", hidden, " ", n, " ", kind),
                bytes_of(t, static_cast<double>((vocab + n) * hidden)), [&]() -> Work {
                  const Buffer ids =
                      kind == "uniform" ? b.indices({n}, vocab)
                      : kind == "zipf"  ? zipf_ids(b, vocab, n)
                                        : Buffer::from(b.device(), {n}, std::vector<std::uint32_t>(n, 12345));
                  const Buffer dy = b.random(t, {n, hidden}), dtable = b.output(t, {vocab, hidden});
                  return [=](CommandEncoder& e) { embedding_backward(e, ids, dy, dtable); };
                });
    }
  }
}

void routing(Bench& b) {
  const std::int64_t rows = 131072, cols = 128, k = 8;
  const DType t = DType::f32;
  const std::string shape = str(rows, "x", cols, " k", k);
  const auto n = static_cast<double>(rows * cols);
  b.measure("gather_backward", t, shape, bytes_of(t, n), [&]() -> Work {
    const Buffer logits = b.random(t, {rows, cols}), weights = b.output(t, {rows, k});
    const Buffer indices = b.output(DType::u32, {rows, k}), dy = b.random(t, {rows, k}),
                 dx = b.output(t, {rows, cols});
    CommandEncoder encoder(b.device());
    moe_route_forward(encoder, logits, weights, indices, true);
    encoder.commit_and_wait();
    return [=](CommandEncoder& e) { take_along_axis_backward(e, indices, dy, dx); };
  });
  b.measure("routing_both", t, shape, bytes_of(t, 3 * n), [&]() -> Work {
    const Buffer logits = b.random(t, {rows, cols}), weights = b.output(t, {rows, k});
    const Buffer indices = b.output(DType::u32, {rows, k}), dw = b.random(t, {rows, k}),
                 dx = b.output(t, {rows, cols});
    return [=](CommandEncoder& e) {
      moe_route_forward(e, logits, weights, indices, true);
      moe_route_backward(e, logits, weights, indices, dw, dx, true);
    };
  });
}

void norms(Bench& b) {
  const Shape s{16384, 4096};
  const auto n = static_cast<double>(s.numel());
  for (const DType t : {DType::f32, DType::bf16}) {
    const Buffer w = b.random(t, {4096}), rstd = b.output(DType::f32, {16384}), dw = b.output(t, {4096});
    b.measure("rms_norm_forward", t, "16384x4096", bytes_of(t, 2 * n), [&]() -> Work {
      const Buffer x = b.random(t, s), y = b.output(t, s);
      return [=](CommandEncoder& e) { rms_norm_forward(e, x, w, 1e-6f, y, rstd); };
    });
    b.measure("rms_norm_backward", t, "16384x4096", bytes_of(t, 3 * n), [&]() -> Work {
      const Buffer x = b.random(t, s), dy = b.random(t, s), dx = b.output(t, s);
      return [=](CommandEncoder& e) {
        rms_norm_backward(e, x, w, rstd, dy, {dx, Accumulate::no}, {dw, Accumulate::no});
      };
    });
  }
}

void quantized(Bench& b) {
  const Shape s{4096, 4096};
  const AffineParams format{4, 64};
  b.measure("dequantize_4bit", DType::bf16, "4096x4096", 4096.0 * 4096.0 * (0.5 + 4.0 / 64 + 2.0),
            [&]() -> Work {
              const Buffer w = b.random(DType::bf16, s), y = b.output(DType::bf16, s);
              const QuantizedWeight q = alloc_quantized(b.device(), s, format, DType::bf16);
              CommandEncoder encoder(b.device());
              quantize_affine_forward(encoder, w, q);
              encoder.commit_and_wait();
              return [=](CommandEncoder& e) { dequantize_affine_forward(e, q, y); };
            });
}

void adam(Bench& b) {
  for (const auto& [t, moments] :
       {std::pair{DType::f32, DType::f32}, {DType::bf16, DType::f32}, {DType::bf16, DType::bf16}}) {
    std::vector<AdamTensor> tensors;
    for (int i = 0; i < 50; ++i) {
      const Shape s{2000000};
      tensors.push_back(
          {b.random(t, s), b.random(t, s, 1e-3f), b.output(moments, s), b.output(moments, s), 1.0f});
    }
    b.measure(str("adam moments ", moments), t, "50x2000000", bytes_of(t, 3e8) + bytes_of(moments, 4e8),
              [&]() -> Work { return [=](CommandEncoder& e) { adam_step(e, tensors, {.lr = 1e-4f}); }; });
  }
}

// What a text asks that grows by a token: one query of each sequence, rows of a token by weights of 4 bits.
void steps(Bench& b) {
  const DType t = DType::bf16;
  struct Sizes {
    std::int64_t batch, keys, q_heads, kv_heads, dim;
  };
  for (const Sizes& s : {Sizes{256, 512, 9, 3, 64}, {8, 4096, 32, 8, 128}, {1, 32768, 32, 8, 128}}) {
    const Shape of_q{s.batch, 1, s.q_heads, s.dim}, of_k{s.batch, s.keys, s.kv_heads, s.dim};
    const Buffer lse = b.output(DType::f32, {s.batch, s.q_heads, 1});
    b.measure("attention_one_query", t,
              str(s.batch, "x", s.keys, "x", s.q_heads, ":", s.kv_heads, "x", s.dim),
              bytes_of(t, 2.0 * static_cast<double>(of_q.numel() + of_k.numel())), [&]() -> Work {
                const Buffer q = b.random(t, of_q), k = b.random(t, of_k), v = b.random(t, of_k),
                             y = b.output(t, of_q);
                return [=](CommandEncoder& e) { attention_forward(e, q, k, v, {.scale = 0.1f}, y, lse); };
              });
  }
  const AffineParams format{4, 64};
  const std::int64_t experts = 128, n = 768, k = 2048;
  for (const std::int64_t rows : {8, 64, 512}) {
    std::vector<std::uint32_t> offsets(experts + 1);
    for (std::int64_t e = 0; e <= experts; ++e)
      offsets[static_cast<std::size_t>(e)] = static_cast<std::uint32_t>((e * rows + experts - 1) / experts);
    const Buffer sorted = Buffer::from(b.device(), {experts + 1}, offsets);
    const double used = static_cast<double>(std::min(rows, experts) * n * k);
    b.measure("quantized_experts", t, str(rows, " rows, ", experts, "x", n, "x", k), used * (0.5 + 4.0 / 64),
              [&]() -> Work {
                const Buffer x = b.random(t, {rows, k}), y = b.output(t, {rows, n});
                const QuantizedWeight w = alloc_quantized(b.device(), {experts, n, k}, format, t);
                return [=](CommandEncoder& e) { quantized_matmul_forward(e, x, w, sorted, y); };
              });
  }
}

// Causal, grouped heads.
void attentions(Bench& b) {
  struct Sizes {
    std::int64_t batch, length, q_heads, kv_heads, dim;
  };
  for (const Sizes& s : {Sizes{16, 1024, 16, 8, 128}, {2, 8192, 32, 8, 128}, {32, 512, 9, 3, 64}}) {
    const DType t = DType::bf16;
    const Shape of_q{s.batch, s.length, s.q_heads, s.dim}, of_k{s.batch, s.length, s.kv_heads, s.dim};
    const auto n = static_cast<double>(of_q.numel() + of_k.numel());
    const std::string shape = str(s.batch, "x", s.length, "x", s.q_heads, ":", s.kv_heads, "x", s.dim);
    const AttentionOptions options{.scale = 1.0f / std::sqrt(static_cast<float>(s.dim))};
    const Buffer lse = b.output(DType::f32, {s.batch, s.q_heads, s.length});
    b.measure("attention_forward", t, shape, bytes_of(t, 2.0 * n), [&]() -> Work {
      const Buffer q = b.random(t, of_q), k = b.random(t, of_k), v = b.random(t, of_k), y = b.output(t, of_q);
      return [=](CommandEncoder& e) { attention_forward(e, q, k, v, options, y, lse); };
    });
    b.measure("attention_backward", t, shape, bytes_of(t, 4.0 * n), [&]() -> Work {
      const Buffer q = b.random(t, of_q), k = b.random(t, of_k), v = b.random(t, of_k), y = b.output(t, of_q);
      const Buffer dy = b.random(t, of_q), dq = b.output(t, of_q), dk = b.output(t, of_k),
                   dv = b.output(t, of_k);
      CommandEncoder encoder(b.device());
      attention_forward(encoder, q, k, v, options, y, lse);
      encoder.commit_and_wait();
      return [=](CommandEncoder& e) {
        const auto no = Accumulate::no;
        attention_backward(e, q, k, v, options, y, lse, dy, {dq, no}, {dk, no}, {dv, no});
      };
    });
  }
}

struct DeltaRuleCase {
  DeltaRuleInputs in;
  Buffer y, final_state, states, dy;
  DeltaRuleTargets out;

  DeltaRuleCase(Bench& b, DType t, const Shape& s) {
    const Shape gates{s[0], s[1], s[2]};
    const Buffer zeros =
        b.output(DType::f32, gates);  // nothing is forgotten; beta a half: the work is any gates'
    const Buffer halves =
        Buffer::from(b.device(), gates, std::vector<float>(static_cast<std::size_t>(gates.numel()), 0.5f));
    const float unit = 1.0f / std::sqrt(static_cast<float>(s[3]));  // keys of length 1
    in = {b.random(t, s, unit), b.random(t, s, unit), b.random(t, s), zeros, halves, {}, unit};
    y = b.output(t, s), dy = b.random(t, s);
    final_state = b.output(DType::f32, {s[0], s[2], s[3], s[3]});
    out.q.buffer = b.output(t, s), out.k.buffer = b.output(t, s), out.v.buffer = b.output(t, s);
    out.g.buffer = b.output(DType::f32, gates), out.beta.buffer = b.output(DType::f32, gates);
  }
  void forward(CommandEncoder& e) const { gated_delta_rule_forward(e, in, y, final_state, states); }
  void both(CommandEncoder& e) const {
    forward(e);
    gated_delta_rule_backward(e, in, states, dy, {}, out);
  }
};

void delta_rule(Bench& b) {
  const Shape s{4, 4096, 16, 128};
  const auto n = static_cast<double>(s.numel());
  for (const DType t : {DType::f32, DType::bf16}) {
    for (const bool is_both : {false, true}) {
      b.measure(is_both ? "gated_delta_rule_both" : "gated_delta_rule_forward", t, "4x4096x16x128",
                bytes_of(t, is_both ? 9 * n : 4 * n), [&]() -> Work {
                  auto c = std::make_shared<DeltaRuleCase>(b, t, s);
                  c->states = is_both ? b.output(DType::f32, gated_delta_rule_states(s, s)) : Buffer();
                  return [c, is_both](CommandEncoder& e) { is_both ? c->both(e) : c->forward(e); };
                });
    }
    DeltaRuleCase c(b, t, s);
    CommandEncoder encoder(b.device());
    const std::size_t before = b.device().memory_stats().live_bytes;
    b.device().reset_peak();
    c.states = b.output(DType::f32, gated_delta_rule_states(s, s));
    c.both(encoder);
    encoder.commit_and_wait();
    std::printf("gated_delta_rule_both  %-5s peak beyond inputs and gradients %.0f MB\n", name(t),
                static_cast<double>(b.device().memory_stats().peak_bytes - before) / 1e6);
  }
}

}  // namespace
}  // namespace mixtape

int main(int argc, char** argv) {
  using namespace mixtape;
  try {
    Bench bench(argc > 1 ? argv[1] : "cuda", argc > 2 ? argv[2] : "", argc > 3 ? argv[3] : "");
    for (void (*part)(Bench&) : {pointwise, softmaxes, losses, embeddings, routing, norms, quantized, adam,
                                 steps, attentions, delta_rule})
      part(bench);
  } catch (const Error& error) {
    std::fprintf(stderr, "gpu_ops: %s\n", error.what());
    return 1;
  }
}
