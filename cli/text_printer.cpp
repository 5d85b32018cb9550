#include "cli/text_printer.h"

#include <fmt/core.h>

#include <cerrno>
#include <system_error>

namespace mixtape::cli {

void TextPrinter::add(std::uint32_t id) {
  ids_.push_back(id);
  const std::string text = tokenizer_.decode(ids_, true);
  if (text.size() <= shown_ || text.ends_with("\xef\xbf\xbd")) return;
  fmt::print("{}", text.substr(shown_));
  if (std::fflush(stdout) != 0) throw std::system_error(errno, std::generic_category(), "cannot write");
  shown_ = text.size();
}

}  // namespace mixtape::cli
