// The tests that chat templates may call: `x is name(y)`.
#include <algorithm>
#include <map>

#include "mixtape/core/error.h"
#include "mixtape/io/chat_template_builtins.h"
#include "mixtape/io/chat_template_letters.h"

namespace mixtape::chat {
namespace {

using Test = bool (*)(const Value&, const Value&);

bool is_iterable(const Value& x) {
  return x.list() || x.string() || (x.dict() && !x.mutable_namespace()) || x.is_undefined();
}

bool is_sequence(const Value& x) {
  const bool unordered = x.sequence() && (x.sequence()->kind == Sequence::Kind::generator ||
                                          x.sequence()->kind == Sequence::Kind::view);
  return is_iterable(x) && !unordered;
}

bool is_divisible(const Value& x, const Value& by) {
  require(by.integer() != 0, "divisibleby 0");
  return x.integer() % by.integer() == 0;
}

bool has_test(const std::string& name);

const std::map<std::string, Test>& tests() {
  static const std::map<std::string, Test> table = {
      {"boolean", [](const Value& x, const Value&) { return x.is<bool>(); }},
      {"callable", [](const Value& x, const Value&) { return x.function() != nullptr; }},
      {"escaped", [](const Value& x, const Value&) { return x.is_markup(); }},
      {"filter", [](const Value& x, const Value&) { return has_filter(x.text()); }},
      {"lower", [](const Value& x, const Value&) { return is_lower(x.text()); }},
      {"sameas", identical},
      {"test", [](const Value& x, const Value&) { return has_test(x.text()); }},
      {"upper", [](const Value& x, const Value&) { return is_upper(x.text()); }},
      {"defined", [](const Value& x, const Value&) { return !x.is_undefined(); }},
      {"divisibleby", is_divisible},
      {"eq", equal},
      {"equalto", equal},
      {"==", equal},
      {"even", [](const Value& x, const Value&) { return x.integer() % 2 == 0; }},
      {"false", [](const Value& x, const Value&) { return x.is<bool>() && !x.truthy(); }},
      {"float", [](const Value& x, const Value&) { return x.is<double>(); }},
      {"ge", [](const Value& x, const Value& y) { return !less(x, y); }},
      {">=", [](const Value& x, const Value& y) { return !less(x, y); }},
      {"gt", [](const Value& x, const Value& y) { return less(y, x); }},
      {"greaterthan", [](const Value& x, const Value& y) { return less(y, x); }},
      {">", [](const Value& x, const Value& y) { return less(y, x); }},
      {"in", [](const Value& x, const Value& y) { return contains(y, x); }},
      {"integer", [](const Value& x, const Value&) { return x.is_integer(); }},
      {"iterable", [](const Value& x, const Value&) { return is_iterable(x); }},
      {"le", [](const Value& x, const Value& y) { return !less(y, x); }},
      {"<=", [](const Value& x, const Value& y) { return !less(y, x); }},
      {"lt", less},
      {"lessthan", less},
      {"<", less},
      {"mapping", [](const Value& x, const Value&) { return x.dict() && !x.mutable_namespace(); }},
      {"ne", [](const Value& x, const Value& y) { return !equal(x, y); }},
      {"!=", [](const Value& x, const Value& y) { return !equal(x, y); }},
      {"none", [](const Value& x, const Value&) { return x.is_none(); }},
      {"number", [](const Value& x, const Value&) { return x.is_number(); }},
      {"odd", [](const Value& x, const Value&) { return x.integer() % 2 != 0; }},
      {"sequence", [](const Value& x, const Value&) { return is_sequence(x); }},
      {"string", [](const Value& x, const Value&) { return x.is_string(); }},
      {"true", [](const Value& x, const Value&) { return x.is<bool>() && x.truthy(); }},
      {"undefined", [](const Value& x, const Value&) { return x.is_undefined(); }},
  };
  return table;
}

bool is_binary_test(const std::string& name) {
  static const std::vector<std::string> kUnary = {
      "boolean", "callable", "defined",  "escaped", "even",    "false",     "filter",
      "float",   "integer",  "iterable", "lower",   "mapping", "none",      "number",
      "odd",     "sequence", "string",   "test",    "true",    "undefined", "upper"};
  return std::find(kUnary.begin(), kUnary.end(), name) == kUnary.end();
}

bool has_test(const std::string& name) { return tests().contains(name); }

}  // namespace

bool apply_test(const std::string& name, const Value& subject, const Arguments& arguments) {
  const auto found = tests().find(name);
  if (found == tests().end()) fail(ErrorCode::not_supported, "the test ", name, " is not supported");
  const std::size_t wanted = is_binary_test(name) ? 1 : 0;
  require(arguments.positional.size() == wanted && arguments.named.empty(), "the test ", name, " takes ",
          wanted, " arguments, found ", arguments.positional.size() + arguments.named.size());
  return found->second(subject, wanted ? arguments.positional[0] : Value());
}

}  // namespace mixtape::chat
