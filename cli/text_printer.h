// Text on standard output as its tokens come: in a file byte by byte, on a terminal without controls but line breaks and
// tabs, so that no text moves the cursor or changes colours.
#pragma once

#include "mixtape/calib/data.h"
#include "mixtape/io/tokenizer.h"

namespace mixtape::cli {

class TextPrinter {
 public:
  explicit TextPrinter(const Tokenizer& tokenizer);

  // Prints what is new since the last call: a token may end inside a character. Throws std::system_error where standard
  // output takes no more.
  void add(std::uint32_t id);

 private:
  const Tokenizer& tokenizer_;
  TokenRow ids_;
  std::size_t shown_ = 0;  // bytes
  bool is_terminal_;
};

}  // namespace mixtape::cli
