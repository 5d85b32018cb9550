#include "mixtape/io/chat_template_parser.h"

#include <utility>

#include "mixtape/core/error.h"
#include "mixtape/io/chat_template_expression.h"

namespace mixtape::chat {
namespace {

constexpr int kMaxBlocks = 200;  // of nested blocks

class Parser {
 public:
  explicit Parser(const std::string& source) : in_(tokenize(source)) {}

  Block run() {
    Block block = statements({});
    if (!in_.is(TokenKind::end)) in_.wrong("expected no such tag");
    return block;
  }

 private:
  // Up to a tag that begins with one of `ends`, whose name is then the next token.
  Block statements(Names ends) {
    if (++depth_ > kMaxBlocks) in_.wrong("blocks nested too deeply");
    Block block;
    while (!in_.is(TokenKind::end)) {
      if (in_.is(TokenKind::block_begin) && is_one_of(in_.peek(1).text, ends)) {
        in_.next();
        break;
      }
      statement(block);
    }
    --depth_;
    return block;
  }

  Statement make(Statement::Kind kind, std::string text = "") const {
    Statement result{};
    result.kind = kind;
    result.line = in_.peek().line;
    result.text = std::move(text);
    return result;
  }

  void end_tag() { in_.expect(TokenKind::block_end, "the end of the tag"); }

  Block body(std::string_view end) {
    end_tag();
    Block block = statements({end});
    if (!in_.take_name(end)) in_.wrong(str("expected ", end));
    end_tag();
    return block;
  }

  void statement(Block& block) {
    if (in_.is(TokenKind::text)) {
      block.push_back(make(Statement::Kind::text, in_.peek().text));
      in_.next();
    } else if (in_.is(TokenKind::output_begin)) {
      in_.next();
      Statement output = make(Statement::Kind::output);
      output.expression = parse_tuple(in_);
      in_.expect(TokenKind::output_end, "}}");
      block.push_back(std::move(output));
    } else {
      in_.expect(TokenKind::block_begin, "a tag");
      tag(block);
    }
  }

  void tag(Block& block) {
    const int line = in_.peek().line;
    const std::string name = in_.expect_name();
    if (name == "if") {
      block.push_back(condition());
    } else if (name == "for") {
      block.push_back(loop());
    } else if (name == "set") {
      block.push_back(assignment());
    } else if (name == "macro") {
      block.push_back(macro());
    } else if (name == "call") {
      block.push_back(call());
    } else if (name == "filter") {
      block.push_back(filtered());
    } else if (name == "with") {
      block.push_back(with());
    } else if (name == "break" || name == "continue") {
      if (loops_ == 0) in_.wrong(name + " outside of a loop");
      block.push_back(make(name == "break" ? Statement::Kind::leave : Statement::Kind::proceed));
      end_tag();
    } else if (name ==
               "generation") {  // marks the assistant's words for training; they are rendered as they are
      Statement result = make(Statement::Kind::scope);
      result.body = body("endgeneration");
      block.push_back(std::move(result));
    } else if (is_one_of(name, {"elif", "else", "endif", "endfor", "endset", "endmacro", "endgeneration",
                                "endcall", "endfilter", "endwith", "endraw"})) {
      fail(ErrorCode::format, "chat template, line ", line, ": ", name, " without its beginning");
    } else {
      fail(ErrorCode::not_supported, "chat template, line ", line, ": the tag ", name, " is not supported");
    }
  }

  Statement condition() {
    Statement result = make(Statement::Kind::condition);
    result.expression = parse_tuple(in_);
    end_tag();
    result.body = statements({"elif", "else", "endif"});
    if (in_.take_name("elif")) {
      if (++depth_ > kMaxBlocks) in_.wrong("blocks nested too deeply");
      result.otherwise.push_back(condition());
      --depth_;
    } else if (in_.take_name("else")) {
      result.otherwise = body("endif");
    } else {
      if (!in_.take_name("endif")) in_.wrong("expected endif");
      end_tag();
    }
    return result;
  }

  Target target(bool with_members) {
    if (++depth_ > kMaxBlocks) in_.wrong("targets nested too deeply");
    Target result;
    if (in_.take_op("(")) {
      result = targets(with_members);
      in_.expect_op(")");
    } else {
      result.name = in_.expect_name();
      if (with_members && in_.take_op(".")) result.member = in_.expect_name();
    }
    --depth_;
    return result;
  }

  // One target, or several with commas.
  Target targets(bool with_members) {
    Target first = target(with_members);
    if (!in_.is_op(",")) return first;
    Target result;
    result.parts.push_back(std::move(first));
    while (in_.take_op(",")) {
      if (!in_.is(TokenKind::name) && !in_.is_op("(")) break;
      result.parts.push_back(target(with_members));
    }
    return result;
  }

  Statement loop() {
    Statement result = make(Statement::Kind::loop);
    result.targets.push_back(targets(false));
    if (!in_.take_name("in")) in_.wrong("expected in");
    result.expression = parse_tuple(in_, false);
    if (in_.take_name("if")) result.filter = parse_expression(in_);
    result.recursive = in_.take_name("recursive");
    end_tag();
    ++loops_;
    result.body = statements({"else", "endfor"});
    --loops_;
    if (in_.take_name("else")) {
      result.otherwise = body("endfor");
    } else {
      if (!in_.take_name("endfor")) in_.wrong("expected endfor");
      end_tag();
    }
    return result;
  }

  Statement assignment() {
    Statement result = make(Statement::Kind::assign);
    result.targets.push_back(targets(true));
    if (in_.take_op("=")) {
      result.expression = parse_tuple(in_);
      end_tag();
      return result;
    }
    if (!result.targets[0].parts.empty()) in_.wrong("expected =");
    result.kind = Statement::Kind::capture;
    if (in_.take_op("|")) result.filter = parse_filters(in_);
    result.body = body("endset");
    return result;
  }

  Statement filtered() {
    Statement result = make(Statement::Kind::capture);
    result.filter = parse_filters(in_);
    result.body = body("endfilter");
    return result;
  }

  Statement with() {
    Statement result = make(Statement::Kind::with);
    while (!in_.is(TokenKind::block_end)) {
      if (!result.targets.empty()) in_.expect_op(",");
      result.targets.push_back(target(false));
      in_.expect_op("=");
      result.values.push_back(parse_expression(in_));
    }
    result.body = body("endwith");
    return result;
  }

  void parameters(Statement& result) {
    in_.expect_op("(");
    while (!in_.take_op(")")) {
      result.names.push_back(in_.expect_name());
      result.defaults.push_back(in_.take_op("=") ? parse_expression(in_) : nullptr);
      if (!in_.is_op(")")) in_.expect_op(",");
    }
  }

  // A macro can't leave a loop that it stands in.
  void macro_body(Statement& result, std::string_view end) {
    const int loops = std::exchange(loops_, 0);
    const std::size_t begin = in_.place();
    result.body = body(end);
    result.takes_more = in_.named_since(begin, "varargs");
    result.takes_more_names = in_.named_since(begin, "kwargs");
    result.takes_caller = in_.named_since(begin, "caller");
    loops_ = loops;
  }

  Statement macro() {
    Statement result = make(Statement::Kind::macro, in_.expect_name());
    parameters(result);
    macro_body(result, "endmacro");
    return result;
  }

  Statement call() {
    Statement result = make(Statement::Kind::call, "caller");
    if (in_.is_op("(")) parameters(result);
    result.expression = parse_expression(in_);
    if (result.expression->kind != Expression::Kind::call) in_.wrong("expected a call");
    macro_body(result, "endcall");
    return result;
  }

  Cursor in_;
  int depth_ = 0, loops_ = 0;
};

}  // namespace

Block parse(const std::string& source) { return Parser(source).run(); }

}  // namespace mixtape::chat
