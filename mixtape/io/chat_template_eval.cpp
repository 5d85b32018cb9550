#include "mixtape/io/chat_template_eval.h"

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <set>

#include "mixtape/core/error.h"
#include "mixtape/io/chat_template_builtins.h"

namespace mixtape::chat {
namespace {

constexpr int kMaxCalls = 100;  // of macros and recursive loops inside of one another

// Names defined by one block; what isn't found here is looked up in the parent.
struct Scope {
  std::map<std::string, Value> names;
  Scope* parent = nullptr;

  const Value* find(const std::string& name) const {
    for (const Scope* scope = this; scope; scope = scope->parent) {
      const auto found = scope->names.find(name);
      if (found != scope->names.end()) return &found->second;
    }
    return nullptr;
  }
};
using ScopePtr = std::shared_ptr<Scope>;

enum class Flow { normal, leave, proceed };

// What `loop` knows.
struct LoopState {
  List items;
  std::size_t at = 0;
  std::size_t depth = 1;
  std::optional<List> last;  // what changed() was called with
};

Value loop_cycle(const LoopState& loop, const Arguments& arguments) {
  require(!arguments.positional.empty(), "cycle needs a value");
  return arguments.positional[loop.at % arguments.positional.size()];
}

bool loop_changed(LoopState& loop, const Arguments& arguments) {
  if (loop.last && equal(*loop.last, arguments.positional)) return false;
  loop.last = arguments.positional;
  return true;
}

Value loop_attribute(const std::shared_ptr<LoopState>& loop, const std::string& name) {
  const std::size_t at = loop->at, size = loop->items.size();
  if (name == "index") return Value::count(at + 1);
  if (name == "index0") return Value::count(at);
  if (name == "revindex") return Value::count(size - at);
  if (name == "revindex0") return Value::count(size - at - 1);
  if (name == "first") return at == 0;
  if (name == "last") return at + 1 == size;
  if (name == "length") return Value::count(size);
  if (name == "previtem" && at > 0) return loop->items[at - 1];
  if (name == "nextitem" && at + 1 < size) return loop->items[at + 1];
  if (name == "depth") return Value::count(loop->depth);
  if (name == "depth0") return Value::count(loop->depth - 1);
  if (name == "cycle") return Function([loop](const Arguments& a) { return loop_cycle(*loop, a); });
  if (name == "changed")
    return Function([loop](const Arguments& a) { return Value(loop_changed(*loop, a)); });
  return Undefined{name};
}

class Interpreter {
 public:
  explicit Interpreter(const Entries& names) {
    for (const auto& [name, value] : names) global_->names[name] = value;
  }

  // Namespaces that hold one another would hold on for ever.
  ~Interpreter() {
    for (const auto& [members, value] : changed_) members->entries.clear();
  }
  Interpreter(const Interpreter&) = delete;
  Interpreter& operator=(const Interpreter&) = delete;

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
  static ScopePtr inside(const ScopePtr& scope) { return std::make_shared<Scope>(Scope{{}, scope.get()}); }

  Flow execute(const Block& block, const ScopePtr& scope, std::string& out) {
    for (const Statement& statement : block) {
      const Flow flow = execute(statement, scope, out);
      if (flow != Flow::normal) return flow;
    }
    return Flow::normal;
  }

  Flow execute(const Statement& statement, const ScopePtr& scope, std::string& out) {
    line_ = statement.line;
    switch (statement.kind) {
      case Statement::Kind::text:
        out += statement.text;
        break;
      case Statement::Kind::output:
        out += value_of(*statement.expression, *scope).text();
        break;
      case Statement::Kind::condition: {
        const bool holds = value_of(*statement.expression, *scope).truthy();
        return execute(holds ? statement.body : statement.otherwise, scope, out);
      }
      case Statement::Kind::loop:
        return loop(statement, value_of(*statement.expression, *scope), scope, out, 1);
      case Statement::Kind::assign:
        assign(statement.targets[0], value_of(*statement.expression, *scope), *scope);
        break;
      case Statement::Kind::capture:
        capture(statement, scope, out);
        break;
      case Statement::Kind::with:
        return with(statement, scope, out);
      case Statement::Kind::macro:
        scope->names[statement.text] = macro(statement, scope);
        break;
      case Statement::Kind::call:
        out += call(*statement.expression, *scope, macro(statement, scope)).text();
        break;
      case Statement::Kind::scope:
        return execute(statement.body, inside(scope), out);
      case Statement::Kind::leave:
        return Flow::leave;
      case Statement::Kind::proceed:
        return Flow::proceed;
    }
    return Flow::normal;
  }

  // The text of a block, through filters, to its target or out.
  void capture(const Statement& statement, const ScopePtr& scope, std::string& out) {
    const ScopePtr inner = inside(scope);
    std::string text;
    execute(statement.body, inner, text);
    Value value = text;
    if (statement.filter) {
      inner->names[""] = value;
      value = value_of(*statement.filter, *inner);
    }
    if (statement.targets.empty()) {
      out += value.text();
    } else {
      assign(statement.targets[0], value, *scope);
    }
  }

  // The values see the names outside only.
  Flow with(const Statement& statement, const ScopePtr& scope, std::string& out) {
    const ScopePtr inner = inside(scope);
    for (std::size_t i = 0; i < statement.targets.size(); ++i)
      assign(statement.targets[i], value_of(*statement.values[i], *scope), *inner);
    return execute(statement.body, inner, out);
  }

  void assign(const Target& target, const Value& value, Scope& scope) {
    if (!target.parts.empty()) {
      const List items = value.items();
      require(items.size() == target.parts.size(), "cannot give ", items.size(), " values to ",
              target.parts.size(), " names");
      for (std::size_t i = 0; i < items.size(); ++i) assign(target.parts[i], items[i], scope);
    } else if (target.member.empty()) {
      scope.names[target.name] = value;
    } else {
      const Value* found = scope.find(target.name);
      Dict* members = found ? found->mutable_namespace() : nullptr;
      require(members, "set: ", target.name, " is no namespace");
      changed_.emplace(members, *found);
      members->set(target.member, value);
    }
  }

  List loop_items(const Statement& statement, const Value& value, const ScopePtr& scope) {
    List items = value.items();
    if (!statement.filter) return items;
    List kept;
    for (Value& item : items) {
      const ScopePtr inner = inside(scope);
      assign(statement.targets[0], item, *inner);
      if (value_of(*statement.filter, *inner).truthy()) kept.push_back(std::move(item));
    }
    return kept;
  }

  // loop(items) in a recursive loop: its text for other items.
  Value loop_again(const Statement& statement, const ScopePtr& scope, std::size_t depth,
                   const Arguments& arguments) {
    const CallGuard guard(calls_);
    std::string out;
    loop(statement, arguments.bind({"iterable"}, "loop")[0], scope, out, depth);
    return out;
  }

  Flow loop(const Statement& statement, const Value& value, const ScopePtr& scope, std::string& out,
            std::size_t depth) {
    const auto state =
        std::make_shared<LoopState>(LoopState{loop_items(statement, value, scope), 0, depth, {}});
    if (state->items.empty()) return execute(statement.otherwise, scope, out);
    Object object{[state](const std::string& name) { return loop_attribute(state, name); }, {}};
    if (statement.recursive) {
      kept_.insert(scope);
      object.call = [this, &statement, outer = std::weak_ptr(scope), depth](const Arguments& a) {
        return loop_again(statement, outer.lock(), depth + 1, a);
      };
    }
    const Value loop_value = std::move(object);
    for (; state->at < state->items.size(); ++state->at) {
      const ScopePtr inner = inside(scope);
      inner->names["loop"] = loop_value;
      assign(statement.targets[0], state->items[state->at], *inner);
      if (execute(statement.body, inner, out) == Flow::leave) break;
    }
    return Flow::normal;
  }

  // Counts calls inside of one another.
  class CallGuard {
   public:
    explicit CallGuard(int& calls) : calls_(calls) {
      require(calls < kMaxCalls, "macros call one another more than ", kMaxCalls, " deep");
      ++calls_;
    }
    ~CallGuard() { --calls_; }
    CallGuard(const CallGuard&) = delete;
    CallGuard& operator=(const CallGuard&) = delete;

   private:
    int& calls_;
  };

  // A macro sees the names of the place where it stands, as they are when it is called.
  Value macro(const Statement& statement, const ScopePtr& scope) {
    kept_.insert(scope);
    return Function([this, &statement, outer = scope.get()](const Arguments& arguments) {
      const CallGuard guard(calls_);
      const int line = line_;
      const auto inner = std::make_shared<Scope>(Scope{{}, outer});
      bind(statement, arguments, *inner);
      std::string out;
      execute(statement.body, inner, out);
      line_ = line;
      return Value(std::move(out));
    });
  }

  // Gives arguments to a macro's names, and what is left over to varargs, kwargs and caller if it names them.
  void bind(const Statement& statement, const Arguments& arguments, Scope& scope) {
    const std::size_t count = statement.names.size();
    List more;
    Entries named = arguments.named;
    for (std::size_t i = count; i < arguments.positional.size(); ++i) more.push_back(arguments.positional[i]);
    require(more.empty() || statement.takes_more, statement.text, " takes at most ", count,
            " arguments, found ", arguments.positional.size());
    for (std::size_t i = 0; i < count; ++i) {
      const auto given = std::find_if(named.begin(), named.end(),
                                      [&](const auto& entry) { return entry.first == statement.names[i]; });
      Value& value = scope.names[statement.names[i]];
      if (i < arguments.positional.size()) {
        value = arguments.positional[i];
      } else if (given != named.end()) {
        value = given->second;
        named.erase(given);
      } else {
        value = Undefined{statement.names[i]};
        if (statement.defaults[i]) value = value_of(*statement.defaults[i], scope);
      }
    }
    bind_rest(statement, std::move(more), std::move(named), scope);
  }

  static void bind_rest(const Statement& statement, List more, Entries named, Scope& scope) {
    const auto caller =
        std::find_if(named.begin(), named.end(), [](const auto& e) { return e.first == "caller"; });
    if (statement.takes_caller && !scope.names.contains("caller")) {
      scope.names["caller"] = caller == named.end() ? Value(Undefined{"caller"}) : caller->second;
      if (caller != named.end()) named.erase(caller);
    }
    require(named.empty() || statement.takes_more_names, statement.text, " has no argument ",
            named.empty() ? "" : named[0].first);
    if (statement.takes_more) scope.names["varargs"] = Sequence{Sequence::Kind::tuple, std::move(more), ""};
    if (!statement.takes_more_names) return;
    Dict rest;
    for (auto& [name, value] : named) rest.set(name, std::move(value));
    scope.names["kwargs"] = std::move(rest);
  }

  Value value_of(const Expression& e, Scope& scope) {
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
      case Kind::tuple:
        return Sequence{Sequence::Kind::tuple, values(e, 0, scope), ""};
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

  static Value lookup(const std::string& name, Scope& scope) {
    if (const Value* found = scope.find(name)) return *found;
    Value function = find_function(name);
    return function.is_undefined() ? Value(Undefined{name}) : function;
  }

  List values(const Expression& e, std::size_t from, Scope& scope) {
    List list;
    for (std::size_t i = from; i < e.operands.size(); ++i) list.push_back(value_of(*e.operands[i], scope));
    return list;
  }

  Arguments arguments(const Expression& e, Scope& scope) {
    Arguments result{values(e, 1, scope), {}};
    for (const auto& [name, value] : e.named) result.named.emplace_back(name, value_of(*value, scope));
    return result;
  }

  Value dict(const Expression& e, Scope& scope) {
    Dict result;
    for (std::size_t i = 0; i < e.operands.size(); i += 2) {
      const Value key = value_of(*e.operands[i], scope);
      result.set(key, value_of(*e.operands[i + 1], scope));
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

  // Keys come before methods here.
  static Value item(const Value& subject, const Value& key, const Expression& e) {
    require(!subject.is_undefined(), name_of(e), " is undefined, so it has no ", key.text());
    Value found = find_item(subject, key);
    return found.is_undefined() && key.string() ? find_method(subject, *key.string()) : found;
  }

  // `caller` is what a call block passes on.
  Value call(const Expression& e, Scope& scope, const Value& caller = {}) {
    const Value callee = value_of(*e.operands[0], scope);
    require(callee.function(), name_of(*e.operands[0]), " is ", callee.kind(), ", not a function");
    Arguments given = arguments(e, scope);
    if (!caller.is_undefined()) given.named.emplace_back("caller", caller);
    line_ = e.line;
    return (*callee.function())(given);
  }

  static Value unary(const std::string& op, const Value& value) {
    if (op == "not") return !value.truthy();
    if (op == "-" && value.is<double>()) return -value.number();  // 0 - 0.0 has another sign
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

  Value comparison(const Expression& e, Scope& scope) {
    Value left = value_of(*e.operands[0], scope);
    for (std::size_t i = 0; i < e.operators.size(); ++i) {
      Value right = value_of(*e.operands[i + 1], scope);
      if (!compare(e.operators[i], left, right)) return false;
      left = std::move(right);
    }
    return true;
  }

  ScopePtr global_ = std::make_shared<Scope>();
  std::set<ScopePtr> kept_;         // those that macros look into, to the end
  std::map<Dict*, Value> changed_;  // namespaces, which may hold one another
  int line_ = 1;
  int calls_ = 0;
};

}  // namespace

std::string evaluate(const Block& block, const Entries& names) { return Interpreter(names).run(block); }

}  // namespace mixtape::chat
