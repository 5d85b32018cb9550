// Kullback-Leibler divergence of a student's next-token distribution from a teacher's, per row. With
// p = softmax(teacher / T), q = softmax(student / T), K the teacher's k largest entries (ties: lower index),
// P and Q what p and q put outside K:
//   full       loss = sum_c p*(log p - log q)                       dstudent = dloss/T * (q - p)
//   top-k      the same over K alone, p and q renormalised there    dstudent = 0 outside K
//   top-k + rest bucket, not renormalised
//              loss = sum_K p*(log p - log q) + P*(log P - log Q)   dstudent = dloss/T * (q - p)       in K
//                                                                              dloss/T * q*(1 - P/Q) outside
// Shapes: student, dstudent, teacher [..., vocab], f32, bf16 or f16 each; loss, dloss f32 [rows]; TopKTargets
//   below. The teacher is a constant. T > 0. No T^2 factor: the caller scales.
// All in log space: log P is the log-sum-exp of the entries outside K minus that of all. No [rows, vocab]
//   temporary.
// Saved for backward: the inputs, and stats f32 [rows, kKlStats].
// Deterministic.
// Edges: p = 0 adds 0, also where q = 0; p > 0 with q = 0 is +inf; P = 0 adds 0. A loss that rounding made
//   negative is 0. A NaN in a row that the form reads makes its loss NaN. A row whose dloss is 0 has gradient
//   0, whatever its logits.
// Accuracy, with u = logits/T - max, g the mean of |u_teacher - u_student| under p, m the row's largest |u|:
//   loss 1 unit + (100 + 80 g + 2 m) * 2^-24 absolute; without rest bucket a loss of 5e-7 is right to 1 %;
//   dstudent 2 units + (90 + 4 m) * 2^-24 * |dloss|/T * (p+q);
//   with rest bucket, rest_lse in f32 adds |rest_lse| to both factors.
// Errors: invalid_argument for dtypes, ranks, shapes, devices or options that disagree, an empty row,
//   k > vocab; at wait, invalid_argument for indices that are not strictly ascending and index_out_of_range
//   for one outside the vocabulary, its row being 0.
#pragma once

#include "mixtape/autograd/tape.h"
#include "mixtape/ops/kl_div/kl_div_params.h"
#include "mixtape/runtime/command_encoder.h"

namespace mixtape {

struct KlOptions {
  float temperature = 1.0f;
  std::int64_t top_k = 0;  // 0: the full vocabulary
  bool rest_bucket = false;
};

// The teacher's K largest logits per row. What a cache of targets stores.
struct TopKTargets {
  Buffer logits;    // f32, bf16 or f16 [rows,K], not divided by T
  Buffer indices;   // u32 [rows,K], strictly ascending
  Buffer rest_lse;  // f32 [rows]: log sum exp(teacher / T) over the other entries; holds for one T. Read by
                    // the rest bucket alone
};

// teacher [..., vocab] f32, bf16 or f16; logits come as f32. rest_lse is for `temperature`.
TopKTargets make_top_k_targets(CommandEncoder& encoder, const Buffer& teacher, std::int64_t k,
                               float temperature);

void kl_div_forward(CommandEncoder& encoder, const Buffer& teacher, const Buffer& student, float temperature,
                    const Buffer& loss, const Buffer& stats);
// dstudent may be student, with Accumulate::no.
void kl_div_backward(CommandEncoder& encoder, const Buffer& teacher, const Buffer& student, float temperature,
                     const Buffer& stats, const Buffer& dloss, const Buffer& dstudent,
                     Accumulate accumulate = Accumulate::no);

// Both at once, where dloss is known beforehand: the same values as one after the other, each row read once
// where the device allows. dstudent may be student.
void kl_div_forward_backward(CommandEncoder& encoder, const Buffer& teacher, const Buffer& student,
                             float temperature, const Buffer& dloss, const Buffer& loss,
                             const Buffer& dstudent);

void kl_div_top_k_forward(CommandEncoder& encoder, const TopKTargets& teacher, const Buffer& student,
                          float temperature, bool rest_bucket, const Buffer& loss, const Buffer& stats);
// dstudent may be student, with Accumulate::no.
void kl_div_top_k_backward(CommandEncoder& encoder, const TopKTargets& teacher, const Buffer& student,
                           float temperature, bool rest_bucket, const Buffer& stats, const Buffer& dloss,
                           const Buffer& dstudent, Accumulate accumulate = Accumulate::no);

Var kl_div(const Var& student, const Buffer& teacher, const KlOptions& options);
// options.top_k is the targets' K, or 0 for "whatever they hold".
Var kl_div(const Var& student, const TopKTargets& teacher, const KlOptions& options);

}  // namespace mixtape
