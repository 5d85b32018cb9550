#include "mixtape/io/chat_template_eval.h"

#include <map>

#include "mixtape/core/error.h"
#include "mixtape/io/chat_template_builtins.h"

namespace mixtape::chat {
namespace {

constexpr int kMaxCalls = 100;  // of macros inside of one another

// Names defined by one block; what isn't found here is looked up in the parent.
struct Scope {
  std::map<std::string, Value> names;
  const Scope* parent = nullptr;

  const Value* find(const std::string& name) const {
    for (const Scope* scope = this; scope; scope = scope->parent) {
      const auto found = scope->names.find(name);
      if (found != scope->names.end()) return &found->second;
    }
    return nullptr;
  }
};

enum class Flow { normal, leave, proceed };

class Interpreter {
 public:
  explicit Interpreter(const Entries& names) {
    for (const auto& [name, value] : names) global_.names[name] = value;
  }

  std::string run(const Block& block) {
    std::string out;
    try {
      execute(block, global_, out);
    } catch (const Error& error) {
      fail(error.code(), "chat template, line ", line_, ": ", error.what());
    }
    return out;
  }

 private:
  Flow execute(const Block& block, Scope& scope, std::string& out) {
    for (const Statement& statement : block) {
      const Flow flow = execute(statement, scope, out);
      if (flow != Flow::normal) return flow;
    }
    return Flow::normal;
  }

  Flow execute(const Statement& statement, Scope& scope, std::string& out) {
    line_ = statement.line;
    switch (statement.kind) {
      case Statement::Kind::text:
        out += statement.text;
        break;
      case Statement::Kind::output:
        out += value_of(*statement.expression, scope).text();
        break;
      case Statement::Kind::condition: {
        const bool holds = value_of(*statement.expression, scope).truthy();
        return execute(holds ? statement.body : statement.otherwise, scope, out);
      }
      case Statement::Kind::loop:
        return loop(statement, scope, out);
      case Statement::Kind::assign:
        assign(statement.names, value_of(*statement.expression, scope), scope);
        break;
      case Statement::Kind::assign_member:
        assign_member(statement, scope);
        break;
      case Statement::Kind::capture:
        scope.names[statement.names[0]] = capture(statement.body, scope);
        break;
      case Statement::Kind::macro:
        scope.names[statement.text] = macro(statement);
        break;
      case Statement::Kind::leave:
        return Flow::leave;
      case Statement::Kind::proceed:
        return Flow::proceed;
    }
    return Flow::normal;
  }

  std::string capture(const Block& body, const Scope& scope) {
    Scope inner{{}, &scope};
    std::string out;
    execute(body, inner, out);
    return out;
  }

  static void assign(const std::vector<std::string>& names, const Value& value, Scope& scope) {
    if (names.size() == 1) {
      scope.names[names[0]] = value;
      return;
    }
    const List items = value.items();
    require(items.size() == names.size(), "cannot give ", items.size(), " values to ", names.size(),
            " names");
    for (std::size_t i = 0; i < names.size(); ++i) scope.names[names[i]] = items[i];
  }

  void assign_member(const Statement& statement, const Scope& scope) {
    const Value* target = scope.find(statement.text);
    Dict* members = target ? target->mutable_namespace() : nullptr;
    require(members, "set: ", statement.text, " is no namespace");
    members->set(statement.names[0], value_of(*statement.expression, scope));
  }

  List loop_items(const Statement& statement, const Scope& scope) {
    List items = value_of(*statement.expression, scope).items();
    if (!statement.filter) return items;
    List kept;
    for (Value& item : items) {
      Scope inner{{}, &scope};
      assign(statement.names, item, inner);
      if (value_of(*statement.filter, inner).truthy()) kept.push_back(std::move(item));
    }
    return kept;
  }

  static Value loop_state(const List& items, std::size_t at) {
    const bool last = at + 1 == items.size();
    return Dict{{{"index", Value::count(at + 1)},
                 {"index0", Value::count(at)},
                 {"revindex", Value::count(items.size() - at)},
                 {"revindex0", Value::count(items.size() - at - 1)},
                 {"first", at == 0},
                 {"last", last},
                 {"length", Value::count(items.size())},
                 {"previtem", at == 0 ? Value() : items[at - 1]},
                 {"nextitem", last ? Value() : items[at + 1]}}};
  }

  Flow loop(const Statement& statement, Scope& scope, std::string& out) {
    const List items = loop_items(statement, scope);
    if (items.empty()) return execute(statement.otherwise, scope, out);
    for (std::size_t at = 0; at < items.size(); ++at) {
      Scope inner{{}, &scope};
      inner.names["loop"] = loop_state(items, at);
      assign(statement.names, items[at], inner);
      if (execute(statement.body, inner, out) == Flow::leave) break;
    }
    return Flow::normal;
  }

  // Macros see the names of the whole template, not those of the place that calls them.
  Value macro(const Statement& statement) {
    return Function([this, &statement](const Arguments& arguments) {
      require(++calls_ <= kMaxCalls, "macros call one another more than ", kMaxCalls, " deep");
      const int line = line_;
      Scope inner{{}, &global_};
      List bound = arguments.bind(statement.names, statement.text);
      for (std::size_t i = 0; i < bound.size(); ++i) {
        if (bound[i].is_undefined() && statement.defaults[i])
          bound[i] = value_of(*statement.defaults[i], inner);
        inner.names[statement.names[i]] = bound[i];
      }
      std::string out;
      execute(statement.body, inner, out);
      line_ = line;
      --calls_;
      return Value(std::move(out));
    });
  }

  Value value_of(const Expression& e, const Scope& scope) {
    using Kind = Expression::Kind;
    const auto operand = [&](std::size_t i) { return value_of(*e.operands[i], scope); };
    const auto optional = [&](std::size_t i) { return e.operands[i] ? operand(i) : Value(); };
    switch (e.kind) {
      case Kind::literal:
        return e.value;
      case Kind::name:
        return lookup(e.text, scope);
      case Kind::list:
        return values(e, 0, scope);
      case Kind::dict:
        return dict(e, scope);
      case Kind::attribute:
        return attribute(operand(0), e);
      case Kind::item:
        return item(operand(0), operand(1), *e.operands[0]);
      case Kind::slice:
        return slice(operand(0), optional(1), optional(2), optional(3));
      case Kind::call:
        return call(e, scope);
      case Kind::filter:
        return apply_filter(e.text, operand(0), arguments(e, scope));
      case Kind::test:
        return apply_test(e.text, operand(0), arguments(e, scope));
      case Kind::unary:
        return unary(e.text, operand(0));
      case Kind::binary:
        return apply_operator(e.text, operand(0), operand(1));
      case Kind::comparison:
        return comparison(e, scope);
      case Kind::logical_and: {
        Value left = operand(0);
        return left.truthy() ? operand(1) : left;
      }
      case Kind::logical_or: {
        Value left = operand(0);
        return left.truthy() ? left : operand(1);
      }
      case Kind::conditional:
        return operand(1).truthy() ? operand(0) : optional(2);
    }
    return {};
  }

  static Value lookup(const std::string& name, const Scope& scope) {
    if (const Value* found = scope.find(name)) return *found;
    Value function = find_function(name);
    return function.is_undefined() ? Value(Undefined{name}) : function;
  }

  List values(const Expression& e, std::size_t from, const Scope& scope) {
    List list;
    for (std::size_t i = from; i < e.operands.size(); ++i) list.push_back(value_of(*e.operands[i], scope));
    return list;
  }

  Arguments arguments(const Expression& e, const Scope& scope) {
    Arguments result{values(e, 1, scope), {}};
    for (const auto& [name, value] : e.named) result.named.emplace_back(name, value_of(*value, scope));
    return result;
  }

  Value dict(const Expression& e, const Scope& scope) {
    Dict result;
    for (std::size_t i = 0; i < e.operands.size(); i += 2) {
      const Value key = value_of(*e.operands[i], scope);
      require(key.string(), "the key of a dict is ", key.kind(), ", expected a string");
      result.set(*key.string(), value_of(*e.operands[i + 1], scope));
    }
    return result;
  }

  static std::string name_of(const Expression& e) { return e.text.empty() ? "the value" : e.text; }

  // Methods come before keys, as in Python: a key named items is reached by x["items"].
  static Value attribute(const Value& subject, const Expression& e) {
    require(!subject.is_undefined(), name_of(*e.operands[0]), " is undefined, so it has no ", e.text);
    Value method = find_method(subject, e.text);
    return method.is_undefined() ? find_item(subject, e.text) : method;
  }

  static Value item(const Value& subject, const Value& key, const Expression& e) {
    require(!subject.is_undefined(), name_of(e), " is undefined, so it has no ", key.text());
    return find_item(subject, key);
  }

  Value call(const Expression& e, const Scope& scope) {
    const Value callee = value_of(*e.operands[0], scope);
    require(callee.function(), name_of(*e.operands[0]), " is ", callee.kind(), ", not a function");
    const Arguments given = arguments(e, scope);
    line_ = e.line;
    return (*callee.function())(given);
  }

  static Value unary(const std::string& op, const Value& value) {
    if (op == "not") return !value.truthy();
    return apply_operator(op, std::int64_t{0}, value);
  }

  static bool compare(const std::string& op, const Value& a, const Value& b) {
    if (op == "==") return equal(a, b);
    if (op == "!=") return !equal(a, b);
    if (op == "in") return contains(b, a);
    if (op == "not in") return !contains(b, a);
    if (op == "<") return less(a, b);
    if (op == ">") return less(b, a);
    return op == "<=" ? !less(b, a) : !less(a, b);
  }

  Value comparison(const Expression& e, const Scope& scope) {
    Value left = value_of(*e.operands[0], scope);
    for (std::size_t i = 0; i < e.operators.size(); ++i) {
      Value right = value_of(*e.operands[i + 1], scope);
      if (!compare(e.operators[i], left, right)) return false;
      left = std::move(right);
    }
    return true;
  }

  Scope global_;
  int line_ = 1;
  int calls_ = 0;
};

}  // namespace

std::string evaluate(const Block& block, const Entries& names) { return Interpreter(names).run(block); }

}  // namespace mixtape::chat
