#include "mixtape/io/chat_template_builtins.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "mixtape/core/error.h"
#include "mixtape/io/chat_template_strings.h"
#include "mixtape/io/text_utf8.h"

namespace mixtape::chat {
namespace {

constexpr std::int64_t kMaxRange = 100000;

using Filter = Value (*)(const Value&, const Arguments&);
using Test = bool (*)(const Value&, const Value&);

bool flag(const Value& value, bool otherwise) { return value.is_undefined() ? otherwise : value.truthy(); }

const std::string& text_of(const Value& value) {
  require(value.string(), "expected a string, found ", value.kind());
  return *value.string();
}

Value last_of(const List& items) { return items.empty() ? Value() : items.back(); }

// One attribute of each item, which may be written a.b.
Value attribute_of(const Value& item, const Value& path) {
  if (path.is_integer()) return find_item(item, path);
  Value value = item;
  std::string rest = text_of(path);
  while (!rest.empty()) {
    const std::size_t dot = std::min(rest.find('.'), rest.size());
    value = find_item(value, rest.substr(0, dot));
    rest.erase(0, dot + 1);
  }
  return value;
}

Value filter_tojson(const Value& subject, const Arguments& arguments) {
  const List bound = arguments.bind({"indent", "ensure_ascii", "sort_keys"}, "tojson");
  const int indent =
      bound[0].is_undefined() || bound[0].is_none() ? -1 : static_cast<int>(bound[0].integer());
  require(indent <= 64, "tojson: an indent of ", indent);
  return subject.json(indent, flag(bound[1], false), flag(bound[2], false));
}

Value filter_default(const Value& subject, const Arguments& arguments) {
  const List bound = arguments.bind({"default_value", "boolean"}, "default");
  const bool keep = flag(bound[1], false) ? subject.truthy() : !subject.is_undefined();
  if (keep) return subject;
  return bound[0].is_undefined() ? Value("") : bound[0];
}

Value filter_join(const Value& subject, const Arguments& arguments) {
  const List bound = arguments.bind({"d", "attribute"}, "join");
  std::string out;
  bool first = true;
  for (const Value& item : subject.items()) {
    if (!first) out += bound[0].text();
    first = false;
    out += (bound[1].is_undefined() ? item : attribute_of(item, bound[1])).text();
  }
  return out;
}

Value filter_map(const Value& subject, const Arguments& arguments) {
  List out;
  if (arguments.positional.empty()) {
    const List bound = arguments.bind({"attribute", "default"}, "map");
    for (const Value& item : subject.items()) {
      Value value = attribute_of(item, bound[0]);
      out.push_back(value.is_undefined() && !bound[1].is_undefined() ? bound[1] : std::move(value));
    }
    return out;
  }
  const Arguments rest{{arguments.positional.begin() + 1, arguments.positional.end()}, arguments.named};
  for (const Value& item : subject.items()) {
    out.push_back(apply_filter(text_of(arguments.positional[0]), item, rest));
  }
  return out;
}

// select, reject, selectattr and rejectattr: the items whose value passes the test, or is true without a
// test.
template <bool kByAttribute, bool kKeep>
Value filter_select(const Value& subject, const Arguments& arguments) {
  List rest = arguments.positional;
  Value attribute;
  if (kByAttribute) {
    require(!rest.empty(), "selectattr needs an attribute");
    attribute = rest.front();
    rest.erase(rest.begin());
  }
  std::string test;
  if (!rest.empty()) {
    test = text_of(rest.front());
    rest.erase(rest.begin());
  }
  List out;
  for (const Value& item : subject.items()) {
    const Value value = kByAttribute ? attribute_of(item, attribute) : item;
    const bool passes = test.empty() ? value.truthy() : apply_test(test, value, {rest, {}});
    if (passes == kKeep) out.push_back(item);
  }
  return out;
}

Value filter_items(const Value& subject, const Arguments&) {
  if (subject.is_undefined()) return List{};
  require(subject.dict(), "items: expected a dict, found ", subject.kind());
  List out;
  for (const auto& [key, value] : subject.dict()->entries) out.push_back(List{key, value});
  return out;
}

Value filter_dictsort(const Value& subject, const Arguments& arguments) {
  arguments.bind({}, "dictsort");
  List items = *filter_items(subject, {}).list();
  const auto key = [](const Value& item) { return to_lower(text_of(item.list()->front())); };
  std::stable_sort(items.begin(), items.end(),
                   [&](const Value& a, const Value& b) { return key(a) < key(b); });
  return items;
}

Value filter_unique(const Value& subject, const Arguments& arguments) {
  arguments.bind({}, "unique");
  List out;
  const auto same = [](const Value& a, const Value& b) {
    return a.string() && b.string() ? to_lower(*a.string()) == to_lower(*b.string()) : equal(a, b);
  };
  for (const Value& item : subject.items()) {
    if (std::none_of(out.begin(), out.end(), [&](const Value& other) { return same(item, other); })) {
      out.push_back(item);
    }
  }
  return out;
}

Value filter_reverse(const Value& subject, const Arguments& arguments) {
  arguments.bind({}, "reverse");
  return slice(subject.list() || subject.string() ? subject : Value(subject.items()), {}, {},
               std::int64_t{-1});
}

Value filter_int(const Value& subject, const Arguments& arguments) {
  const List bound = arguments.bind({"default"}, "int");
  const Value otherwise = bound[0].is_undefined() ? Value(std::int64_t{0}) : bound[0];
  if (subject.string()) return parse_integer(*subject.string(), otherwise);
  return subject.is_number() ? Value(truncate(subject)) : otherwise;
}

Value filter_float(const Value& subject, const Arguments& arguments) {
  const List bound = arguments.bind({"default"}, "float");
  const Value otherwise = bound[0].is_undefined() ? Value(0.0) : bound[0];
  if (subject.string()) return parse_float(*subject.string(), otherwise);
  return subject.is_number() ? Value(subject.number()) : otherwise;
}

Value filter_abs(const Value& subject, const Arguments&) {
  return subject.is_integer() ? Value(std::abs(subject.integer())) : Value(std::fabs(subject.number()));
}

// A string method as a filter: {{ x | trim }} is {{ x.strip() }}.
template <auto kMethod>
Value string_filter(const Value& subject, const Arguments& arguments) {
  return kMethod(subject.text(), arguments);
}

const std::map<std::string, Filter>& filters() {
  static const std::map<std::string, Filter> table = {
      {"abs", filter_abs},
      {"capitalize", string_filter<capitalize>},
      {"count", [](const Value& x, const Arguments&) { return Value::count(x.length()); }},
      {"d", filter_default},
      {"default", filter_default},
      {"dictsort", filter_dictsort},
      {"first",
       [](const Value& x, const Arguments&) { return x.items().empty() ? Value() : x.items().front(); }},
      {"float", filter_float},
      {"indent", string_filter<indent>},
      {"int", filter_int},
      {"items", filter_items},
      {"join", filter_join},
      {"last", [](const Value& x, const Arguments&) { return last_of(x.items()); }},
      {"length", [](const Value& x, const Arguments&) { return Value::count(x.length()); }},
      {"list", [](const Value& x, const Arguments&) { return Value(x.items()); }},
      {"lower", string_filter<lower>},
      {"map", filter_map},
      {"reject", filter_select<false, false>},
      {"rejectattr", filter_select<true, false>},
      {"replace", string_filter<replace>},
      {"reverse", filter_reverse},
      {"safe", [](const Value& x, const Arguments&) { return Value(x.text()); }},
      {"select", filter_select<false, true>},
      {"selectattr", filter_select<true, true>},
      {"string", [](const Value& x, const Arguments&) { return Value(x.text()); }},
      {"title", string_filter<title>},
      {"tojson", filter_tojson},
      {"trim", string_filter<strip>},
      {"unique", filter_unique},
      {"upper", string_filter<upper>},
  };
  return table;
}

bool is_sequence(const Value& x) { return x.list() || x.string() || (x.dict() && !x.mutable_namespace()); }

bool is_divisible(const Value& x, const Value& by) {
  require(by.integer() != 0, "divisibleby 0");
  return x.integer() % by.integer() == 0;
}

const std::map<std::string, Test>& tests() {
  static const std::map<std::string, Test> table = {
      {"boolean", [](const Value& x, const Value&) { return x.is<bool>(); }},
      {"callable", [](const Value& x, const Value&) { return x.function() != nullptr; }},
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
      {">", [](const Value& x, const Value& y) { return less(y, x); }},
      {"in", [](const Value& x, const Value& y) { return contains(y, x); }},
      {"integer", [](const Value& x, const Value&) { return x.is_integer(); }},
      {"iterable", [](const Value& x, const Value&) { return is_sequence(x) || x.is_undefined(); }},
      {"le", [](const Value& x, const Value& y) { return !less(y, x); }},
      {"<=", [](const Value& x, const Value& y) { return !less(y, x); }},
      {"lt", less},
      {"<", less},
      {"mapping", [](const Value& x, const Value&) { return x.dict() && !x.mutable_namespace(); }},
      {"ne", [](const Value& x, const Value& y) { return !equal(x, y); }},
      {"!=", [](const Value& x, const Value& y) { return !equal(x, y); }},
      {"none", [](const Value& x, const Value&) { return x.is_none(); }},
      {"number", [](const Value& x, const Value&) { return x.is_number(); }},
      {"odd", [](const Value& x, const Value&) { return x.integer() % 2 != 0; }},
      {"sequence", [](const Value& x, const Value&) { return is_sequence(x) || x.is_undefined(); }},
      {"string", [](const Value& x, const Value&) { return x.is_string(); }},
      {"true", [](const Value& x, const Value&) { return x.is<bool>() && x.truthy(); }},
      {"undefined", [](const Value& x, const Value&) { return x.is_undefined(); }},
  };
  return table;
}

bool is_binary_test(const std::string& name) {
  static const std::vector<std::string> kUnary = {
      "boolean", "callable", "defined", "even", "false",    "float",  "integer", "iterable",
      "mapping", "none",     "number",  "odd",  "sequence", "string", "true",    "undefined"};
  return std::find(kUnary.begin(), kUnary.end(), name) == kUnary.end();
}

Value call_range(const Arguments& arguments) {
  const List bound = arguments.bind({"start", "stop", "step"}, "range");
  const bool one = bound[1].is_undefined();
  const std::int64_t start = one ? 0 : bound[0].integer();
  const std::int64_t stop = one ? bound[0].integer() : bound[1].integer();
  const std::int64_t step = bound[2].is_undefined() ? 1 : bound[2].integer();
  require(step != 0, "range: the step is 0");
  List out;
  for (std::int64_t i = start; step > 0 ? i < stop : i > stop; i += step) {
    require(out.size() < kMaxRange, "range: more than ", kMaxRange, " numbers");
    out.emplace_back(i);
  }
  return out;
}

Dict call_dict(const Arguments& arguments) {
  require(arguments.positional.empty(), "dict and namespace take named arguments");
  return Dict{arguments.named};
}

Value call_raise(const Arguments& arguments) {
  const List bound = arguments.bind({"message"}, "raise_exception");
  fail(ErrorCode::invalid_argument, bound[0].text());
}

Value dict_get(const Dict& dict, const Arguments& arguments) {
  const List bound = arguments.bind({"key", "default"}, "get");
  const Value* found = bound[0].string() ? dict.find(*bound[0].string()) : nullptr;
  if (found) return *found;
  return bound[1].is_undefined() ? Value(None{}) : bound[1];
}

Value dict_method(const Value& subject, const std::string& name) {
  if (name == "items") return Function([subject](const Arguments&) { return filter_items(subject, {}); });
  if (name == "keys") return Function([subject](const Arguments&) { return Value(subject.items()); });
  if (name == "get") return Function([subject](const Arguments& a) { return dict_get(*subject.dict(), a); });
  if (name != "values") return {};
  return Function([subject](const Arguments&) {
    List out;
    for (const auto& entry : subject.dict()->entries) out.push_back(entry.second);
    return Value(std::move(out));
  });
}

}  // namespace

Value apply_filter(const std::string& name, const Value& subject, const Arguments& arguments) {
  const auto found = filters().find(name);
  if (found == filters().end()) fail(ErrorCode::not_supported, "the filter ", name, " is not supported");
  return found->second(subject, arguments);
}

bool apply_test(const std::string& name, const Value& subject, const Arguments& arguments) {
  const auto found = tests().find(name);
  if (found == tests().end()) fail(ErrorCode::not_supported, "the test ", name, " is not supported");
  const std::size_t wanted = is_binary_test(name) ? 1 : 0;
  require(arguments.positional.size() == wanted && arguments.named.empty(), "the test ", name, " takes ",
          wanted, " arguments, found ", arguments.positional.size() + arguments.named.size());
  return found->second(subject, wanted ? arguments.positional[0] : Value());
}

Value find_method(const Value& subject, const std::string& name) {
  if (subject.string()) return string_method(*subject.string(), name);
  return subject.dict() && !subject.mutable_namespace() ? dict_method(subject, name) : Value();
}

Value find_function(const std::string& name) {
  if (name == "range") return Function(call_range);
  if (name == "dict") return Function([](const Arguments& a) { return Value(call_dict(a)); });
  if (name == "namespace")
    return Function([](const Arguments& a) { return Value::make_namespace(call_dict(a)); });
  if (name == "raise_exception") return Function(call_raise);
  return {};
}

Value find_item(const Value& container, const Value& key) {
  if (container.dict()) {
    const Value* found = key.string() ? container.dict()->find(*key.string()) : nullptr;
    return found ? *found : Value(Undefined{key.text()});
  }
  if (!key.is_integer() || (!container.list() && !container.string())) return Undefined{key.text()};
  const List items = container.string() ? container.items() : List();
  const List& all = container.string() ? items : *container.list();
  const auto size = static_cast<std::int64_t>(all.size());
  const std::int64_t at = key.integer() < 0 ? key.integer() + size : key.integer();
  return at >= 0 && at < size ? all[static_cast<std::size_t>(at)] : Value(Undefined{key.text()});
}

}  // namespace mixtape::chat
