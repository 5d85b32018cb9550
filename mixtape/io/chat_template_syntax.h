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
    tuple,        // operands
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

// What a value is given to: a name, a namespace's member (name.member), or several targets, to which a sequence's items
// are given.
struct Target {
  std::string name, member;
  std::vector<Target> parts;
};

struct Statement;
using Block = std::vector<Statement>;

struct Statement {
  enum class Kind {
    text,       // text
    output,     // expression
    condition,  // if expression: body, otherwise
    loop,       // for targets[0] in expression if filter: body, otherwise
    assign,     // set targets[0] = expression
    capture,    // set targets[0] | filter %} body; without targets the text is put out
    with,       // with targets = values: body
    macro,      // text(names, defaults): body
    call,       // call(names, defaults) expression: body
    scope,      // body, whose names end with it
    leave,      // break
    proceed,    // continue
  };

  Kind kind;
  int line;
  std::string text;
  std::vector<std::string> names;
  std::vector<Target> targets;
  ExpressionPtr expression;
  ExpressionPtr filter;  // of a loop its condition; of a capture the name "" and what is done to it, or null
  std::vector<ExpressionPtr> defaults;  // one for each name, null without
  std::vector<ExpressionPtr> values;    // one for each target
  bool recursive = false;               // a loop that may call itself
  bool takes_more = false, takes_more_names = false,
       takes_caller = false;  // a macro that names varargs, kwargs, caller
  Block body, otherwise;
};

}  // namespace mixtape::chat
