// A teacher's log-probabilities on fixed rows, saved once and compared with often. The file is the one that
// llama-perplexity writes and reads as --kl-divergence-base; little endian, T tokens in each of R rows, V in the
// vocabulary:
//   "_logits_"   u32 T   i32 V   i32 R   i32 tokens [R, T]
//   for each row, for each of its positions T/2 .. T-2:
//     f32 scale   f32 least   u16 codes [V, padded to an even number with 0]    log p = least + scale * code
// Positions of the first half, which know little of their text, are not held and not compared. `least` is the least
// log-probability, but not below the largest one - 16; scale = (largest - least) / 65535.
// Accuracy: a log-probability is off by at most 1.3e-4 (half a scale and the rounding of f32), so that a position's KL
// may come out below 0 by as much. Where the codes span 16 nats, nothing is known of tokens with code 0 but that they are at most
// e^-16 times as probable as the best one: the KL sums over the others, and the nll of a right token ends at -least.
#pragma once

#include <filesystem>
#include <span>
#include <vector>

#include "mixtape/calib/evaluate.h"
#include "mixtape/io/atomic_file.h"
#include "mixtape/io/mapped_file.h"

namespace mixtape {

class BaseLogits : public Reference {
 public:
  // Maps the file. Throws io, and format for another kind of file, a size that its head doesn't lead to, or a
  // token outside its vocabulary, with what was found and wanted.
  explicit BaseLogits(const std::filesystem::path& file);

  const std::vector<TokenRow>& rows() const { return rows_; }
  // Rows begin with `prefix` instead: llama-perplexity keeps its text's tokens and puts BOS over the first of each row
  // when it runs them.
  void begin_rows_with(std::span<const std::uint32_t> prefix);
  // Throw format, naming the file, what was found and what was wanted, unless it is of a vocabulary of this size,
  // or of these rows.
  void check_vocabulary(std::int64_t vocab_size) const;
  void check_rows(std::span<const TokenRow> rows) const;

  std::int64_t vocab_size() const override { return vocab_; }
  std::int64_t first_position() const override { return length_ / 2; }
  // Throws invalid_argument where the batch isn't the file's rows from first_row on.
  void enter(const Batch& batch, std::size_t first_row) override;
  Block block(std::int64_t begin, std::int64_t end, const Buffer& targets) override;

 private:
  // One position's record.
  const std::byte* record(std::int64_t position) const;
  void read_head();

  MappedFile file_;
  std::vector<TokenRow> rows_;
  std::int64_t length_ = 0, vocab_ = 0;
  std::int64_t first_compared_ = 0;  // of the batch's compared positions among those of the file
};

// Writes the file of `teacher` on `rows`, `batch_size` at a time, without committing it; evaluate(model, base, tape,
// base.rows(), ...) compares with it. Reports positions as the stage "saving the teacher". Throws invalid_argument for
// no rows, rows that are not of one length of 3 tokens or more, and logits that are not finite, naming row and
// position; io; interrupted.
void save_base_logits(AtomicFile& file, const CausalLm& teacher, Tape& tape, std::span<const TokenRow> rows,
                      std::int64_t batch_size, const RunHooks& hooks = {});

// Bytes of that file, rows >= 1; the largest number where they are more.
std::uint64_t base_logits_bytes(std::int64_t rows, std::int64_t length, std::int64_t vocab_size);

}  // namespace mixtape
