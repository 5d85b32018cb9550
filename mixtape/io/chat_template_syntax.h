// The parsed form of a chat template.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "mixtape/io/chat_template_value.h"

namespace mixtape::chat {

struct Expression;
using ExpressionPtr = std::unique_ptr<Expression>;

struct Expression {
  enum class Kind {
    literal,      // value
    name,         // text
    list,         // operands
    dict,         // operands: key, value, key, value, ...
    attribute,    // operands[0].text
    item,         // operands[0][operands[1]]
    slice,        // operands[0][operands[1]:operands[2]:operands[3]], null where left out
    call,         // operands[0](the other operands, named)
    filter,       // operands[0] | text(the other operands, named)
    test,         // operands[0] is text(the other operands)
    unary,        // text operands[0]: + - not
    binary,       // operands[0] text operands[1]
    comparison,   // operands[0] operators[0] operands[1] operators[1] operands[2] ...
    logical_and,  // operands[0] and operands[1]
    logical_or,
    conditional,  // operands[0] if operands[1] else operands[2], which may be null
  };

  Kind kind;
  int line;
  std::string text;
  Value value;
  std::vector<ExpressionPtr> operands;
  std::vector<std::pair<std::string, ExpressionPtr>> named;
  std::vector<std::string> operators;
};

struct Statement;
using Block = std::vector<Statement>;

struct Statement {
  enum class Kind {
    text,           // text
    output,         // expression
    condition,      // if expression: body, otherwise
    loop,           // for names in expression if filter: body, otherwise
    assign,         // set names = expression
    assign_member,  // set text.names[0] = expression
    capture,        // set names[0] %} body
    macro,          // text(names, defaults): body
    leave,          // break
    proceed,        // continue
  };

  Kind kind;
  int line;
  std::string text;
  std::vector<std::string> names;
  ExpressionPtr expression, filter;
  std::vector<ExpressionPtr> defaults;  // one for each name, null without
  Block body, otherwise;
};

}  // namespace mixtape::chat
