#include "cli/text_printer.h"

#include <fmt/core.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

#include "cli/quote.h"

namespace mixtape::cli {

TextPrinter::TextPrinter(const Tokenizer& tokenizer)
    : tokenizer_(tokenizer), is_terminal_(::isatty(STDOUT_FILENO) == 1) {}

void TextPrinter::add(std::uint32_t id) {
  ids_.push_back(id);
  const std::string text = tokenizer_.decode(ids_, true);
  if (text.size() <= shown_ || text.ends_with("\xef\xbf\xbd")) return;
  const std::string more = text.substr(shown_);
  fmt::print("{}", is_terminal_ ? printable_lines(more) : more);
  if (std::fflush(stdout) != 0) throw std::system_error(errno, std::generic_category(), "cannot write");
  shown_ = text.size();
}

}  // namespace mixtape::cli
