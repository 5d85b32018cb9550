// Text on standard output as its tokens come.
#pragma once

#include "mixtape/calib/data.h"
#include "mixtape/io/tokenizer.h"

namespace mixtape::cli {

class TextPrinter {
 public:
  explicit TextPrinter(const Tokenizer& tokenizer) : tokenizer_(tokenizer) {}

  // Prints what is new since the last call: a token may end inside a character. Throws std::system_error where standard
  // output takes no more.
  void add(std::uint32_t id);

 private:
  const Tokenizer& tokenizer_;
  TokenRow ids_;
  std::size_t shown_ = 0;  // bytes
};

}  // namespace mixtape::cli
