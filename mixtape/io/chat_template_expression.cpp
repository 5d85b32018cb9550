#include "mixtape/io/chat_template_expression.h"

#include <charconv>

namespace mixtape::chat {
namespace {

using Node = Expression::Kind;

constexpr int kMaxBrackets = 200;  // of nested brackets
constexpr int kMaxNodes = 2000;    // of one expression, since chains of operators nest as well

// From loosest to tightest: if-else, or, and, not, comparisons, + -, ~, * / // %, **, unary, then postfix and
// filters.
class ExpressionParser {
 public:
  explicit ExpressionParser(Cursor& cursor) : in_(cursor) {}

  ExpressionPtr expression(bool with_condition = true) {
    if (++depth_ > kMaxBrackets) in_.wrong("an expression nested too deeply");
    ExpressionPtr result = alternative();
    while (with_condition && in_.is_name("if")) {
      ExpressionPtr whole = make(Node::conditional);
      in_.next();
      whole->operands.push_back(std::move(result));
      whole->operands.push_back(alternative());
      whole->operands.push_back(in_.take_name("else") ? expression() : nullptr);
      result = std::move(whole);
    }
    --depth_;
    return result;
  }

  ExpressionPtr tuple(bool with_condition = true) {
    ExpressionPtr first = expression(with_condition);
    if (!in_.is_op(",")) return first;
    ExpressionPtr whole = make(Node::tuple);
    whole->operands.push_back(std::move(first));
    while (in_.take_op(",")) {
      if (!starts_expression()) break;
      whole->operands.push_back(expression(with_condition));
    }
    return whole;
  }

  ExpressionPtr block_filters() {
    std::string name = in_.expect_name();
    return filters(call(Node::filter, std::move(name), make(Node::name, "")));
  }

 private:
  ExpressionPtr make(Node kind, std::string text = "") {
    if (++nodes_ > kMaxNodes) in_.wrong("an expression too long");
    return std::make_unique<Expression>(Expression{kind, in_.peek().line, std::move(text), {}, {}, {}, {}});
  }

  ExpressionPtr join(Node kind, std::string text, ExpressionPtr left, ExpressionPtr right) {
    ExpressionPtr whole = make(kind, std::move(text));
    whole->operands.push_back(std::move(left));
    whole->operands.push_back(std::move(right));
    return whole;
  }

  bool starts_expression() const {
    return !in_.is(TokenKind::output_end) && !in_.is(TokenKind::block_end) && !in_.is_op(")") &&
           !in_.is_op("]");
  }

  ExpressionPtr alternative() {
    ExpressionPtr left = conjunction();
    while (in_.take_name("or")) left = join(Node::logical_or, "or", std::move(left), conjunction());
    return left;
  }

  ExpressionPtr conjunction() {
    ExpressionPtr left = negation();
    while (in_.take_name("and")) left = join(Node::logical_and, "and", std::move(left), negation());
    return left;
  }

  ExpressionPtr negation() {
    if (!in_.is_name("not")) return comparison();
    if (++depth_ > kMaxBrackets) in_.wrong("an expression nested too deeply");
    ExpressionPtr whole = make(Node::unary, "not");
    in_.next();
    whole->operands.push_back(negation());
    --depth_;
    return whole;
  }

  std::string comparison_operator() {
    if (in_.is(TokenKind::op) && is_one_of(in_.peek().text, {"==", "!=", "<", ">", "<=", ">="}))
      return in_.next().text;
    if (in_.take_name("in")) return "in";
    if (in_.is_name("not") && in_.peek(1).kind == TokenKind::name && in_.peek(1).text == "in") {
      in_.next();
      in_.next();
      return "not in";
    }
    return "";
  }

  ExpressionPtr comparison() {
    ExpressionPtr first = binary(0);
    std::string op = comparison_operator();
    if (op.empty()) return first;
    ExpressionPtr whole = make(Node::comparison);
    whole->operands.push_back(std::move(first));
    for (; !op.empty(); op = comparison_operator()) {
      whole->operators.push_back(op);
      whole->operands.push_back(binary(0));
    }
    return whole;
  }

  bool is_binary(int level) const {
    static constexpr std::string_view kLevels[][4] = {{"+", "-"}, {"~"}, {"*", "/", "//", "%"}, {"**"}};
    const auto& level_ops = kLevels[level];
    return in_.is(TokenKind::op) &&
           std::find(std::begin(level_ops), std::end(level_ops), in_.peek().text) != std::end(level_ops);
  }

  ExpressionPtr binary(int level) {
    constexpr int kLevelsBeforeUnary = 4;
    if (level == kLevelsBeforeUnary) return unary(true);
    ExpressionPtr left = binary(level + 1);
    while (is_binary(level)) {
      std::string op = in_.next().text;
      left = join(Node::binary, std::move(op), std::move(left), binary(level + 1));
    }
    return left;
  }

  ExpressionPtr unary(bool with_filters) {
    ExpressionPtr result;
    if (in_.is_op("-") || in_.is_op("+")) {
      if (++depth_ > kMaxBrackets) in_.wrong("an expression nested too deeply");
      result = make(Node::unary, in_.next().text);
      result->operands.push_back(unary(false));
      --depth_;
    } else {
      result = postfix(primary());
    }
    return with_filters ? filters(std::move(result)) : std::move(result);
  }

  ExpressionPtr primary() {
    const Token& token = in_.peek();
    switch (token.kind) {
      case TokenKind::name:
        return name();
      case TokenKind::integer:
      case TokenKind::real:
        return number();
      case TokenKind::string:
        return strings();
      default:
        break;
    }
    if (in_.is_op("(")) return parentheses();
    if (in_.is_op("[")) return list();
    if (in_.is_op("{")) return dict();
    in_.wrong("expected an expression");
  }

  ExpressionPtr literal(Value value) {
    ExpressionPtr result = make(Node::literal);
    result->value = std::move(value);
    return result;
  }

  ExpressionPtr name() {
    const std::string text = in_.next().text;
    if (text == "true" || text == "True") return literal(true);
    if (text == "false" || text == "False") return literal(false);
    if (text == "none" || text == "None") return literal(None{});
    return make(Node::name, text);
  }

  template <class Number>
  Number parsed(const std::string& text) const {
    Number value{};
    if (std::from_chars(text.data(), text.data() + text.size(), value).ec != std::errc()) {
      in_.wrong(str("the number ", text, " is too large"));
    }
    return value;
  }

  ExpressionPtr number() {
    const Token token = in_.next();
    return token.kind == TokenKind::real ? literal(parsed<double>(token.text))
                                         : literal(parsed<std::int64_t>(token.text));
  }

  ExpressionPtr strings() {
    std::string text;
    while (in_.is(TokenKind::string)) text += in_.next().text;
    return literal(std::move(text));
  }

  ExpressionPtr parentheses() {
    in_.expect_op("(");
    ExpressionPtr result = in_.is_op(")") ? make(Node::tuple) : tuple();
    in_.expect_op(")");
    return result;
  }

  ExpressionPtr list() {
    ExpressionPtr result = make(Node::list);
    in_.expect_op("[");
    while (!in_.take_op("]")) {
      result->operands.push_back(expression());
      if (!in_.is_op("]")) in_.expect_op(",");
    }
    return result;
  }

  ExpressionPtr dict() {
    ExpressionPtr result = make(Node::dict);
    in_.expect_op("{");
    while (!in_.take_op("}")) {
      result->operands.push_back(expression());
      in_.expect_op(":");
      result->operands.push_back(expression());
      if (!in_.is_op("}")) in_.expect_op(",");
    }
    return result;
  }

  ExpressionPtr postfix(ExpressionPtr subject) {
    while (true) {
      if (in_.take_op(".")) {
        const bool is_index = in_.is(TokenKind::integer);
        ExpressionPtr whole = is_index ? make(Node::item) : make(Node::attribute);
        ExpressionPtr index = is_index ? number() : nullptr;
        if (!is_index) whole->text = in_.expect_name();
        whole->operands.push_back(std::move(subject));
        if (index) whole->operands.push_back(std::move(index));
        subject = std::move(whole);
      } else if (in_.take_op("[")) {
        subject = subscript(std::move(subject));
      } else if (in_.is_op("(")) {
        subject = call(Node::call, "", std::move(subject));
      } else {
        return subject;
      }
    }
  }

  ExpressionPtr subscript(ExpressionPtr subject) {
    ExpressionPtr whole = make(Node::item);
    whole->operands.push_back(std::move(subject));
    whole->operands.push_back(in_.is_op(":") ? nullptr : expression());
    while (in_.take_op(":")) {
      whole->kind = Node::slice;
      whole->operands.push_back(in_.is_op(":") || in_.is_op("]") ? nullptr : expression());
    }
    in_.expect_op("]");
    if (whole->kind == Node::slice) whole->operands.resize(4);
    return whole;
  }

  // `text` names a filter or a test; for a call the callee is the subject.
  ExpressionPtr call(Node kind, std::string text, ExpressionPtr subject) {
    ExpressionPtr whole = make(kind, std::move(text));
    whole->operands.push_back(std::move(subject));
    if (!in_.take_op("(")) return whole;
    while (!in_.take_op(")")) {
      const bool is_named =
          in_.is(TokenKind::name) && in_.peek(1).kind == TokenKind::op && in_.peek(1).text == "=";
      if (is_named) {
        std::string parameter = in_.next().text;
        in_.next();
        whole->named.emplace_back(std::move(parameter), expression());
      } else {
        whole->operands.push_back(expression());
      }
      if (!in_.is_op(")")) in_.expect_op(",");
    }
    return whole;
  }

  ExpressionPtr filters(ExpressionPtr subject) {
    while (true) {
      if (in_.take_op("|")) {
        std::string text = in_.expect_name();
        subject = call(Node::filter, std::move(text), std::move(subject));
      } else if (in_.take_name("is")) {
        subject = test(std::move(subject));
      } else if (in_.is_op("(")) {
        subject = call(Node::call, "", std::move(subject));
      } else {
        return subject;
      }
    }
  }

  ExpressionPtr test(ExpressionPtr subject) {
    const bool negated = in_.take_name("not");
    std::string text = in_.expect_name();
    ExpressionPtr whole = call(Node::test, std::move(text), std::move(subject));
    if (whole->operands.size() == 1 && starts_test_argument()) whole->operands.push_back(postfix(primary()));
    if (!negated) return whole;
    ExpressionPtr inverse = make(Node::unary, "not");
    inverse->operands.push_back(std::move(whole));
    return inverse;
  }

  // As in `x is divisibleby 3`.
  bool starts_test_argument() const {
    if (in_.is(TokenKind::name))
      return !is_one_of(in_.peek().text, {"else", "or", "and", "is", "if", "in", "not"});
    return in_.is(TokenKind::string) || in_.is(TokenKind::integer) || in_.is(TokenKind::real) ||
           in_.is_op("[") || in_.is_op("{");
  }

  Cursor& in_;
  int depth_ = 0, nodes_ = 0;
};

}  // namespace

ExpressionPtr parse_expression(Cursor& in) { return ExpressionParser(in).expression(); }

ExpressionPtr parse_filters(Cursor& in) { return ExpressionParser(in).block_filters(); }

ExpressionPtr parse_tuple(Cursor& in, bool with_conditions) {
  return ExpressionParser(in).tuple(with_conditions);
}

}  // namespace mixtape::chat
