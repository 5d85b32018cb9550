#define PCRE2_CODE_UNIT_WIDTH 8
#include "mixtape/io/tokenizer_regex.h"

#include <pcre2.h>

#include <algorithm>

#include "mixtape/core/error.h"
#include "mixtape/io/text_utf8.h"

namespace mixtape {
namespace {

// Letters, marks, digits, connectors and the circled letters.
const char* const kWord =
    "\\p{L}\\p{M}\\p{Nd}\\p{Nl}\\p{Pc}"
    "\\x{24B6}-\\x{24E9}\\x{1F130}-\\x{1F149}\\x{1F150}-\\x{1F169}\\x{1F170}-\\x{1F189}";

// What a shorthand means in the source dialect, as the inside of a character class; PCRE2's own \s and \w
// differ.
const char* class_of(char shorthand) {
  switch (shorthand) {
    case 's':
    case 'S':
      return "\\t-\\r\\x{85}\\p{Z}";
    case 'w':
    case 'W':
      return kWord;
    case 'h':
    case 'H':
      return "0-9a-fA-F";
    default:
      return nullptr;
  }
}

// Outside of a class the source dialect's \w also takes the superscript digits and fractions of Latin-1.
const char* const kLatin1Word = "\\x{B2}\\x{B3}\\x{B9}\\x{BC}-\\x{BE}";

// The same for the POSIX classes on which the dialects agree or that can be rewritten.
const char* posix_class(std::string_view name) {
  if (name == "space") return class_of('s');
  if (name == "word") return class_of('w');
  if (name == "xdigit") return class_of('h');
  if (name == "digit") return "\\p{Nd}";
  if (name == "punct") return "\\p{P}\\p{S}";
  return nullptr;
}

// Rewrites a pattern from the Oniguruma dialect to PCRE2's.
class Translator {
 public:
  explicit Translator(const std::string& pattern) : in_(pattern) {}

  std::string run() {
    while (at_ < in_.size()) {
      if (in_[at_] == '\\') {
        escape();
      } else if (in_class_) {
        inside_class();
      } else {
        in_class_ = in_[at_] == '[';
        out_ += in_[at_++];
        if (in_class_ && peek() == '^') out_ += in_[at_++];
      }
    }
    return out_;
  }

 private:
  char peek(std::size_t ahead = 0) const { return at_ + ahead < in_.size() ? in_[at_ + ahead] : '\0'; }

  void inside_class() {
    if (peek() == '[' && peek(1) == ':') return posix();
    if (peek() == '[') unsupported("a nested character class");
    if (peek() == '&' && peek(1) == '&') unsupported("a class intersection");
    in_class_ = peek() != ']';
    out_ += in_[at_++];
  }

  void posix() {
    const std::size_t end = in_.find(":]", at_);
    const char* members =
        end == std::string::npos ? nullptr : posix_class(in_.substr(at_ + 2, end - at_ - 2));
    if (members == nullptr) unsupported("this POSIX class");
    out_ += members;
    at_ = end + 2;
  }

  void escape() {
    const char c = peek(1);
    at_ += 2;
    if (c == '\0') unsupported("a trailing backslash");
    const char* members = class_of(c);
    const bool negated = c == 'S' || c == 'W' || c == 'H';
    if (c == 'u') {
      out_ += "\\x{" + in_.substr(at_, 4) + "}";
      at_ += 4;
    } else if (members == nullptr || (negated && in_class_)) {
      out_ += {'\\', c};
    } else if (in_class_) {
      out_ += members;
    } else {
      const char* more = c == 'w' || c == 'W' ? kLatin1Word : "";
      out_ += str(negated ? "[^" : "[", members, more, "]");
    }
  }

  [[noreturn]] void unsupported(const char* what) const {
    fail(ErrorCode::not_supported, "tokenizer regex ", in_, ": ", what, " at byte ", at_,
         " is not supported");
  }

  const std::string& in_;
  std::string out_;
  std::size_t at_ = 0;
  bool in_class_ = false;
};

std::string message_of(int code) {
  char text[256] = "";
  pcre2_get_error_message(code, reinterpret_cast<PCRE2_UCHAR*>(text), sizeof text);
  return text;
}

// Ten million steps are PCRE2's own limit; long runs of white space take a few for each byte.
void set_match_limit(pcre2_match_context* context, std::size_t size) {
  constexpr std::size_t kFloor = 10'000'000, kCeiling = 0xFFFFFFFF;
  pcre2_set_match_limit(context, static_cast<std::uint32_t>(std::min(std::max(kFloor, 8 * size), kCeiling)));
}

std::vector<RegexMatch> find_literal(std::string_view text, const std::string& needle) {
  std::vector<RegexMatch> matches;
  for (std::size_t at = 0; (at = text.find(needle, at)) != std::string_view::npos; at += needle.size()) {
    matches.push_back({at, at + needle.size()});
  }
  return matches;
}

}  // namespace

Regex::Regex(const std::string& pattern) {
  const std::string translated = Translator(pattern).run();
  const auto options = PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C;
  int error = 0;
  PCRE2_SIZE offset = 0;
  pcre2_code* code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(translated.data()), translated.size(),
                                   options, &error, &offset, nullptr);
  if (code == nullptr) {
    fail(ErrorCode::format, "tokenizer regex ", pattern, ": ", message_of(error), " at byte ", offset, " of ",
         translated);
  }
  pcre2_jit_compile(code, PCRE2_JIT_COMPLETE);  // without JIT the interpreter runs it
  code_ = std::shared_ptr<const void>(
      code, [](const void* p) { pcre2_code_free(static_cast<pcre2_code*>(const_cast<void*>(p))); });
}

Regex Regex::literal(const std::string& text) {
  require(!text.empty(), "tokenizer pattern: the string to find is empty");
  Regex regex;
  regex.literal_ = text;
  return regex;
}

std::vector<RegexMatch> Regex::find_all(std::string_view text) const {
  if (!literal_.empty()) return find_literal(text, literal_);
  const auto* code = static_cast<const pcre2_code*>(code_.get());
  const auto* subject = reinterpret_cast<PCRE2_SPTR>(text.data());
  const std::unique_ptr<pcre2_match_data, decltype(&pcre2_match_data_free)> data(
      pcre2_match_data_create_from_pattern(code, nullptr), pcre2_match_data_free);
  const std::unique_ptr<pcre2_match_context, decltype(&pcre2_match_context_free)> context(
      pcre2_match_context_create(nullptr), pcre2_match_context_free);
  set_match_limit(context.get(), text.size());
  const PCRE2_SIZE* bounds = pcre2_get_ovector_pointer(data.get());
  std::vector<RegexMatch> matches;
  for (std::size_t at = 0; at <= text.size();) {
    int found = pcre2_match(code, subject, text.size(), at, PCRE2_NO_UTF_CHECK, data.get(), context.get());
    if (found == PCRE2_ERROR_JIT_STACKLIMIT) {  // the interpreter keeps its stack on the heap
      found = pcre2_match(code, subject, text.size(), at, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT, data.get(),
                          context.get());
    }
    if (found == PCRE2_ERROR_NOMATCH) break;
    if (found < 0) fail(ErrorCode::not_supported, "tokenizer regex at byte ", at, ": ", message_of(found));
    const RegexMatch match{bounds[0], bounds[1]};
    const bool empty = match.begin == match.end;
    if (!empty || matches.empty() || matches.back().end != match.begin) matches.push_back(match);
    at = match.end;
    if (empty) at += at < text.size() ? first_code_point(text.substr(at)).size : 1;
  }
  return matches;
}

std::string replace_all(const Regex& regex, std::string_view text, std::string_view content) {
  std::string out;
  std::size_t done = 0;
  for (const RegexMatch& match : regex.find_all(text)) {
    out += text.substr(done, match.begin - done);
    out += content;
    done = match.end;
  }
  out += text.substr(done);
  return out;
}

}  // namespace mixtape
