// A place among the tokens of a template.
#pragma once

#include <algorithm>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "mixtape/core/error.h"
#include "mixtape/io/chat_template_lexer.h"

namespace mixtape::chat {

using Names = std::initializer_list<std::string_view>;

inline bool is_one_of(std::string_view text, Names names) {
  for (const std::string_view name : names) {
    if (text == name) return true;
  }
  return false;
}

class Cursor {
 public:
  explicit Cursor(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}

  const Token& peek(std::size_t ahead = 0) const {
    return tokens_[std::min(at_ + ahead, tokens_.size() - 1)];
  }
  Token next() { return at_ + 1 < tokens_.size() ? tokens_[at_++] : tokens_[at_]; }
  bool is(TokenKind kind) const { return peek().kind == kind; }
  bool is_op(std::string_view op) const { return is(TokenKind::op) && peek().text == op; }
  bool is_name(std::string_view name) const { return is(TokenKind::name) && peek().text == name; }

  bool take_op(std::string_view op) { return is_op(op) && (next(), true); }
  bool take_name(std::string_view name) { return is_name(name) && (next(), true); }

  void expect_op(std::string_view op) {
    if (!take_op(op)) wrong(str("expected ", op));
  }
  void expect(TokenKind kind, const char* what) {
    if (!is(kind)) wrong(str("expected ", what));
    next();
  }
  std::string expect_name() {
    if (!is(TokenKind::name)) wrong("expected a name");
    return next().text;
  }

  std::size_t place() const { return at_; }
  // Whether a name occurs among the tokens from `begin` to here.
  bool named_since(std::size_t begin, std::string_view name) const {
    return std::any_of(tokens_.begin() + static_cast<std::ptrdiff_t>(begin),
                       tokens_.begin() + static_cast<std::ptrdiff_t>(at_), [&](const Token& token) {
                         return token.kind == TokenKind::name && token.text == name;
                       });
  }

  [[noreturn]] void wrong(const std::string& what) const {
    const std::string found = is(TokenKind::end)    ? "the end"
                              : peek().text.empty() ? "the end of the tag"
                                                    : peek().text;
    fail(ErrorCode::format, "chat template, line ", peek().line, ": ", what, ", found ", found);
  }

 private:
  std::vector<Token> tokens_;
  std::size_t at_ = 0;
};

}  // namespace mixtape::chat
