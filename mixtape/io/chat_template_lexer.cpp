#include "mixtape/io/chat_template_lexer.h"

#include <algorithm>
#include <cctype>

#include "mixtape/core/error.h"
#include "mixtape/io/text_utf8.h"

namespace mixtape::chat {
namespace {

constexpr std::string_view kOperators[] = {"==", "!=", "<=", ">=", "//", "**", "+", "-", "*",
                                           "/",  "%",  "~",  "<",  ">",  "=",  "(", ")", "[",
                                           "]",  "{",  "}",  ".",  ",",  ":",  "|", ";"};

bool is_name_start(char c) { return std::isalpha(static_cast<unsigned char>(c)) || c == '_'; }
bool is_ascii_digit(char c) { return c >= '0' && c <= '9'; }
bool is_name(char c) { return is_name_start(c) || is_ascii_digit(c); }

// Line ends become \n, and one at the very end is dropped.
std::string normalize_lines(const std::string& source) {
  std::string out;
  for (std::size_t i = 0; i < source.size(); ++i) {
    if (source[i] == '\r' && i + 1 < source.size() && source[i + 1] == '\n') continue;
    out += source[i] == '\r' ? '\n' : source[i];
  }
  if (!out.empty() && out.back() == '\n') out.pop_back();
  return out;
}

class Lexer {
 public:
  explicit Lexer(const std::string& source) : source_(normalize_lines(source)) {}

  std::vector<Token> run() {
    while (at_ < source_.size()) {
      const std::size_t tag = find_tag();
      add_text(tag);
      if (tag == source_.size()) break;
      const char kind = source_[tag + 1];
      if (kind == '%' && raw()) continue;
      advance(2);
      if (peek() == '-' || peek() == '+') advance(1);
      if (kind == '#') {
        comment();
      } else {
        code(kind == '%');
      }
    }
    add(TokenKind::end, "");
    return std::move(tokens_);
  }

 private:
  char peek(std::size_t ahead = 0) const {
    return at_ + ahead < source_.size() ? source_[at_ + ahead] : '\0';
  }
  bool next_is(std::string_view text) const { return source_.compare(at_, text.size(), text) == 0; }
  void add(TokenKind kind, std::string text) { tokens_.push_back({kind, std::move(text), line_}); }

  void advance(std::size_t count) {
    for (; count > 0; --count) line_ += source_[at_++] == '\n';
  }

  [[noreturn]] void wrong(const std::string& what) const {
    fail(ErrorCode::format, "chat template, line ", line_, ": ", what);
  }

  std::size_t find_tag() const {
    for (std::size_t at = source_.find('{', at_); at != std::string::npos; at = source_.find('{', at + 1)) {
      const char next = at + 1 < source_.size() ? source_[at + 1] : '\0';
      if (next == '{' || next == '%' || next == '#') return at;
    }
    return source_.size();
  }

  // The text before the tag at `end`; {%- and {#- strip it, a block alone at the start of its line loses its
  // indent.
  void add_text(std::size_t end) {
    std::string_view text = std::string_view(source_).substr(at_, end - at_);
    if (end < source_.size()) {
      const char kind = source_[end + 1];
      const char mark = end + 2 < source_.size() ? source_[end + 2] : '\0';
      if (mark == '-') {
        text = strip_white_space(text, false, true);
      } else if (kind != '{' && mark != '+') {
        text = strip_indent(text);
      }
    }
    if (!text.empty()) add(TokenKind::text, std::string(text));
    advance(end - at_);
  }

  std::string_view strip_indent(std::string_view text) const {
    const std::size_t line = text.rfind('\n') + 1;  // 0 if there is none
    const bool at_line_start = line > 0 || at_ == 0 || source_[at_ - 1] == '\n';
    return at_line_start && text.find_first_not_of(" \t", line) == text.npos ? text.substr(0, line) : text;
  }

  // After the closing mark: -%} takes all white space, %} of a block one line end.
  void after_tag(char mark, bool block) {
    if (mark == '-') {
      const std::string_view rest = std::string_view(source_).substr(at_);
      advance(rest.size() - strip_white_space(rest, true, false).size());
    } else if (block && mark != '+' && peek() == '\n') {
      advance(1);
    }
  }

  // The end of a tag {% NAME %} that begins at `tag`, npos if it is another; `mark` is what stands before its end.
  std::size_t end_of_word_tag(std::size_t tag, std::string_view name, char& mark) const {
    const auto skip = [this](std::size_t at) {
      return std::min(source_.find_first_not_of(" \t\n", at), source_.size());
    };
    std::size_t at = tag + 2;
    if (at < source_.size() && (source_[at] == '-' || source_[at] == '+')) ++at;
    at = skip(at);
    if (source_.compare(at, name.size(), name) != 0) return std::string::npos;
    at = skip(at + name.size());
    mark = at < source_.size() && (source_[at] == '-' || source_[at] == '+') ? source_[at++] : '\0';
    return source_.compare(at, 2, "%}") == 0 ? at + 2 : std::string::npos;
  }

  // {% raw %} text {% endraw %}: the text is taken as it stands. Unlike after other tags a line end stays.
  bool raw() {
    char mark = '\0';
    const std::size_t begin = end_of_word_tag(at_, "raw", mark);
    if (begin == std::string::npos) return false;
    advance(begin - at_);
    after_tag(mark, false);
    for (std::size_t tag = source_.find("{%", at_); tag != std::string::npos;
         tag = source_.find("{%", tag + 1)) {
      const std::size_t end = end_of_word_tag(tag, "endraw", mark);
      if (end == std::string::npos) continue;
      add_text(tag);
      advance(end - tag);
      after_tag(mark, true);
      return true;
    }
    wrong("raw that does not end");
  }

  void comment() {
    const std::size_t end = source_.find("#}", at_);
    if (end == std::string::npos) wrong("a comment that does not end");
    const char mark = end > at_ ? source_[end - 1] : '\0';
    advance(end + 2 - at_);
    after_tag(mark, true);
  }

  void code(bool block) {
    add(block ? TokenKind::block_begin : TokenKind::output_begin, "");
    int depth = 0;
    while (true) {
      while (std::isspace(static_cast<unsigned char>(peek()))) advance(1);
      if (at_ >= source_.size()) wrong("a tag that does not end");
      const char mark = peek() == '-' || (peek() == '+' && block) ? peek() : '\0';
      const std::size_t skip = mark ? 1 : 0;
      if (depth == 0 && peek(skip) == (block ? '%' : '}') && peek(skip + 1) == '}') {
        add(block ? TokenKind::block_end : TokenKind::output_end, "");
        advance(skip + 2);
        return after_tag(mark, block);
      }
      depth += token();
    }
  }

  // Reads one token; returns how much deeper in brackets it leads.
  int token() {
    if (is_name_start(peek())) {
      add(TokenKind::name, take(is_name));
    } else if (is_ascii_digit(peek())) {
      number();
    } else if (peek() == '\'' || peek() == '"') {
      string();
    } else {
      return op();
    }
    return 0;
  }

  template <class Test>
  std::string take(Test test) {
    const std::size_t begin = at_;
    while (at_ < source_.size() && test(source_[at_])) ++at_;
    return source_.substr(begin, at_ - begin);
  }

  void number() {
    std::string digits = take(is_ascii_digit);
    bool real = peek() == '.' && is_ascii_digit(peek(1));
    if (real) {
      ++at_;
      digits += '.' + take(is_ascii_digit);
    }
    const std::size_t sign = peek(1) == '+' || peek(1) == '-' ? 2 : 1;
    if ((peek() == 'e' || peek() == 'E') && is_ascii_digit(peek(sign))) {
      digits += source_.substr(at_, sign);
      at_ += sign;
      digits += take(is_ascii_digit);
      real = true;
    }
    add(real ? TokenKind::real : TokenKind::integer, digits);
  }

  void string() {
    const char quote = peek();
    advance(1);
    std::string value;
    while (peek() != quote) {
      if (at_ >= source_.size()) wrong("a string that does not end");
      if (peek() == '\\') {
        advance(1);
        escape(value);
      } else {
        value += peek();
        advance(1);
      }
    }
    advance(1);
    add(TokenKind::string, value);
  }

  void escape(std::string& value) {
    const char c = peek();
    if (c == '\0') wrong("a string that does not end");
    advance(1);
    switch (c) {
      case 'n':
        value += '\n';
        break;
      case 't':
        value += '\t';
        break;
      case 'r':
        value += '\r';
        break;
      case 'f':
        value += '\f';
        break;
      case 'b':
        value += '\b';
        break;
      case '0':
        value += '\0';
        break;
      case '\n':
        break;
      case '\\':
      case '\'':
      case '"':
        value += c;
        break;
      case 'x':
        value += to_utf8(hex(2));
        break;
      case 'u':
        value += to_utf8(hex(4));
        break;
      case 'U':
        value += to_utf8(hex(8));
        break;
      default:
        value += {'\\', c};
    }
  }

  char32_t hex(std::size_t digits) {
    char32_t value = 0;
    for (; digits > 0; --digits) {
      if (!std::isxdigit(static_cast<unsigned char>(peek())))
        wrong("an escape without its hexadecimal digits");
      const char digit = source_[at_++];
      value =
          value * 16 + static_cast<char32_t>(is_ascii_digit(digit) ? digit - '0' : (digit | 0x20) - 'a' + 10);
    }
    if (value > 0x10FFFF || (value >= 0xD800 && value < 0xE000)) wrong("an escape that is no character");
    return value;
  }

  int op() {
    const auto* found = std::find_if(std::begin(kOperators), std::end(kOperators),
                                     [&](std::string_view name) { return next_is(name); });
    if (found == std::end(kOperators)) wrong(str("unexpected character ", std::string(1, peek())));
    add(TokenKind::op, std::string(*found));
    advance(found->size());
    const char first = found->front();
    return first == '(' || first == '[' || first == '{'   ? 1
           : first == ')' || first == ']' || first == '}' ? -1
                                                          : 0;
  }

  std::string source_;
  std::vector<Token> tokens_;
  std::size_t at_ = 0;
  int line_ = 1;
};

}  // namespace

std::vector<Token> tokenize(const std::string& source) { return Lexer(source).run(); }

}  // namespace mixtape::chat
