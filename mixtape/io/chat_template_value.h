// Values of chat templates, with Python's meaning of truth, equality, order, text and length.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace mixtape::chat {

class Value;
using List = std::vector<Value>;
using Entries = std::vector<std::pair<std::string, Value>>;  // in order of insertion

struct Undefined {
  std::string name;  // for messages
};
struct None {};
// A string that needs no escaping: what is added to it is escaped first.
struct Markup {
  std::string text;
};
struct Dict {
  std::vector<std::pair<Value, Value>> entries;  // in order of insertion; a key is a scalar or a tuple
  const Value* find(const Value& key) const;
  const Value* find(std::string_view key) const;
  void set(const Value& key, Value value);
};
struct Namespace {  // a dict that templates may change
  Dict dict;
};
struct Sequence {
  enum class Kind {
    list,
    tuple,
    group,      // a tuple (grouper, list)
    view,       // of a dict's keys, values or items
    range,      //
    generator,  // what a filter will make: true even if it will be empty
  };
  Kind kind;
  List items;
  std::string text;  // of a view its name, of a range how Python prints it
};

struct Arguments {
  List positional;
  Entries named;

  // One value for each parameter, Undefined where none was given. Throws invalid_argument for more than
  // these.
  List bind(const std::vector<std::string>& parameters, const std::string& function) const;
};
using Function = std::function<Value(const Arguments&)>;
struct Object {  // loop, cycler, joiner
  std::function<Value(const std::string&)> attribute;
  Function call;  // may be empty
};

struct JsonStyle {
  std::string indent;  // of one level
  bool one_line = true;
  std::string item_separator = ", ", key_separator = ": ";
  bool ascii = false, sorted = false;
};

class Value {
 public:
  Value() : data_(Undefined{}) {}
  Value(Undefined undefined) : data_(std::move(undefined)) {}
  Value(None none) : data_(none) {}
  Value(bool value) : data_(value) {}
  Value(std::int64_t value) : data_(value) {}
  Value(double value) : data_(value) {}
  Value(std::string value) : data_(std::move(value)) {}
  Value(const char* value) : data_(std::string(value)) {}
  Value(List list);
  Value(Dict dict);
  Value(Function function);
  Value(Markup markup) : data_(std::move(markup)) {}
  Value(Object object);
  Value(Sequence sequence);
  static Value count(std::size_t n) { return static_cast<std::int64_t>(n); }
  static Value make_namespace(Dict dict);
  static Value from_json(const nlohmann::ordered_json& json);

  template <class T>
  bool is() const {
    return std::holds_alternative<T>(data_);
  }
  bool is_undefined() const { return is<Undefined>(); }
  bool is_none() const { return is<None>(); }
  bool is_integer() const { return is<std::int64_t>(); }
  bool is_number() const { return is_integer() || is<double>() || is<bool>(); }
  bool is_string() const { return string() != nullptr; }
  bool is_markup() const { return is<Markup>(); }

  // Null unless the value is of that kind.
  const std::string* string() const;  // also of a markup
  const Sequence* sequence() const;
  const List* list() const;  // the items of a sequence of any kind
  const Dict* dict() const;  // of a dict or a namespace
  Dict* mutable_namespace() const;
  const Function* function() const;  // also of an object that can be called
  const Object* object() const;

  std::int64_t integer() const;  // of an integer or a bool, else throws invalid_argument
  double number() const;
  bool truthy() const;
  std::size_t length() const;
  List items() const;  // what a loop goes through: elements, keys, or the characters of a string
  const char* kind() const;

  std::string text() const;  // str()
  std::string repr() const;  // repr()
  // json.dumps(). Throws invalid_argument for what JSON can't hold.
  std::string json(const JsonStyle& style) const;

 private:
  std::variant<Undefined, None, bool, std::int64_t, double, std::string, Markup,
               std::shared_ptr<const Sequence>, std::shared_ptr<const Dict>, std::shared_ptr<Namespace>,
               std::shared_ptr<const Function>, std::shared_ptr<const Object>>
      data_;
};

// `text` with & < > ' " as entities; a markup stays as it is.
Markup escape(const Value& text);

bool equal(const Value& a, const Value& b);
bool identical(const Value& a, const Value& b);  // the test `sameas`
bool less(const Value& a,
          const Value& b);  // numbers, strings, and lists or tuples; else throws invalid_argument
bool contains(const Value& container, const Value& item);  // the operator `in`

// Start, stop and step as in container[start:stop:step], Undefined or None where left out.
Value slice(const Value& container, const Value& start, const Value& stop, const Value& step);

}  // namespace mixtape::chat
