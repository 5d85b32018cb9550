#include "mixtape/io/chat_template_value.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "mixtape/core/error.h"
#include "mixtape/io/text_utf8.h"

namespace mixtape::chat {
namespace {

std::string float_text(double value) { return nlohmann::json(value).dump(); }

std::string quoted(const std::string& text, bool ascii) {
  return nlohmann::json(text).dump(-1, ' ', ascii, nlohmann::json::error_handler_t::replace);
}

// Python prefers single quotes.
std::string quoted_like_python(const std::string& text) {
  const char quote = text.find('\'') != text.npos && text.find('"') == text.npos ? '"' : '\'';
  std::string out(1, quote);
  for (const char c : text) {
    if (c == '\n') {
      out += "\\n";
    } else if (c == '\r') {
      out += "\\r";
    } else if (c == '\t') {
      out += "\\t";
    } else {
      if (c == quote || c == '\\') out += '\\';
      out += c;
    }
  }
  return out + quote;
}

List characters(std::string_view text) {
  List list;
  while (!text.empty()) {
    const std::size_t size = first_code_point(text).size;
    list.emplace_back(std::string(text.substr(0, size)));
    text.remove_prefix(size);
  }
  return list;
}

// Clamps an index of a slice as Python does; `missing` stands for None.
std::int64_t slice_bound(const Value& bound, std::int64_t missing, std::int64_t size, bool backwards) {
  if (bound.is_undefined() || bound.is_none()) return missing;
  std::int64_t at = bound.integer();
  if (at < 0) at = at < -size ? -1 : at + size;
  if (at < 0) return backwards ? -1 : 0;
  return std::min(at, backwards ? size - 1 : size);
}

}  // namespace

const Value* Dict::find(std::string_view key) const {
  for (const auto& [name, value] : entries) {
    if (name == key) return &value;
  }
  return nullptr;
}

void Dict::set(const std::string& key, Value value) {
  for (auto& [name, old] : entries) {
    if (name == key) {
      old = std::move(value);
      return;
    }
  }
  entries.emplace_back(key, std::move(value));
}

List Arguments::bind(const std::vector<std::string>& parameters, const std::string& function) const {
  require(positional.size() <= parameters.size(), function, " takes at most ", parameters.size(),
          " arguments, found ", positional.size());
  List bound(positional);
  bound.resize(parameters.size());
  for (const auto& [name, value] : named) {
    const auto at = std::find(parameters.begin(), parameters.end(), name);
    require(at != parameters.end(), function, " has no argument ", name);
    bound[static_cast<std::size_t>(at - parameters.begin())] = value;
  }
  return bound;
}

Value::Value(List list) : data_(std::make_shared<const List>(std::move(list))) {}
Value::Value(Dict dict) : data_(std::make_shared<const Dict>(std::move(dict))) {}
Value::Value(Function function) : data_(std::make_shared<const Function>(std::move(function))) {}

Value Value::make_namespace(Dict dict) {
  Value value;
  value.data_ = std::make_shared<Namespace>(Namespace{std::move(dict)});
  return value;
}

Value Value::from_json(const nlohmann::ordered_json& json) {
  switch (json.type()) {
    case nlohmann::json::value_t::boolean:
      return json.get<bool>();
    case nlohmann::json::value_t::number_integer:
    case nlohmann::json::value_t::number_unsigned:
      return json.get<std::int64_t>();
    case nlohmann::json::value_t::number_float:
      return json.get<double>();
    case nlohmann::json::value_t::string:
      return json.get<std::string>();
    case nlohmann::json::value_t::array: {
      List list;
      for (const auto& item : json) list.push_back(from_json(item));
      return list;
    }
    case nlohmann::json::value_t::object: {
      Dict dict;
      for (const auto& [key, item] : json.items()) dict.set(key, from_json(item));
      return dict;
    }
    default:
      return None{};
  }
}

const List* Value::list() const {
  const auto* list = std::get_if<std::shared_ptr<const List>>(&data_);
  return list ? list->get() : nullptr;
}

const Dict* Value::dict() const {
  if (const auto* dict = std::get_if<std::shared_ptr<const Dict>>(&data_)) return dict->get();
  return mutable_namespace();
}

Dict* Value::mutable_namespace() const {
  const auto* space = std::get_if<std::shared_ptr<Namespace>>(&data_);
  return space ? &(*space)->dict : nullptr;
}

const Function* Value::function() const {
  const auto* function = std::get_if<std::shared_ptr<const Function>>(&data_);
  return function ? function->get() : nullptr;
}

std::int64_t Value::integer() const {
  if (const bool* value = std::get_if<bool>(&data_)) return *value;
  require(is_integer(), "expected an integer, found ", kind());
  return std::get<std::int64_t>(data_);
}

double Value::number() const {
  if (const double* value = std::get_if<double>(&data_)) return *value;
  require(is_number(), "expected a number, found ", kind());
  return static_cast<double>(integer());
}

bool Value::truthy() const {
  if (is_undefined() || is_none()) return false;
  if (is_number()) return number() != 0;
  return function() || mutable_namespace() || length() > 0;
}

std::size_t Value::length() const {
  if (const std::string* text = string()) return count_code_points(*text);
  if (list()) return list()->size();
  if (dict()) return dict()->entries.size();
  require(is_undefined(), kind(), " has no length");
  return 0;
}

List Value::items() const {
  if (const std::string* text = string()) return characters(*text);
  if (list()) return *list();
  List keys;
  if (dict()) {
    for (const auto& entry : dict()->entries) keys.emplace_back(entry.first);
    return keys;
  }
  require(is_undefined(), "cannot go through ", kind());
  return keys;
}

const char* Value::kind() const {
  static constexpr const char* kKinds[] = {
      "an undefined value", "none",   "a boolean", "an integer",  "a float",
      "a string",           "a list", "a dict",    "a namespace", "a function"};
  return kKinds[data_.index()];
}

std::string Value::text() const {
  if (is_undefined()) return "";
  if (const std::string* text = string()) return *text;
  return repr();
}

std::string Value::repr() const {
  if (is_undefined()) return "Undefined";
  if (is_none()) return "None";
  if (const bool* value = std::get_if<bool>(&data_)) return *value ? "True" : "False";
  if (is_integer()) return std::to_string(integer());
  if (is<double>()) return float_text(number());
  if (string()) return quoted_like_python(*string());
  require(list() || dict(), kind(), " has no text");
  std::string out;
  if (list()) {
    for (const Value& item : *list()) out += (out.empty() ? "" : ", ") + item.repr();
    return '[' + out + ']';
  }
  for (const auto& [key, item] : dict()->entries) {
    out += (out.empty() ? "" : ", ") + quoted_like_python(key) + ": " + item.repr();
  }
  return '{' + out + '}';
}

std::string Value::json(int indent, bool ascii, bool sorted) const {
  std::string out;
  write_json(out, indent, 1, ascii, sorted);
  return out;
}

void Value::write_json(std::string& out, int indent, int depth, bool ascii, bool sorted) const {
  if (string()) {
    out += quoted(*string(), ascii);
  } else if (is_none()) {
    out += "null";
  } else if (is<bool>()) {
    out += truthy() ? "true" : "false";
  } else if (is_number()) {
    out += text();
  } else {
    require(list() || dict(), "tojson: JSON has no form of ", kind());
    const auto new_line = [&](int level) {
      if (indent >= 0) out += '\n' + std::string(static_cast<std::size_t>(indent * level), ' ');
    };
    const char* comma = indent < 0 ? ", " : ",";
    Entries entries;
    if (list()) {
      for (const Value& item : *list()) entries.emplace_back("", item);
    } else {
      entries = dict()->entries;
      if (sorted)
        std::stable_sort(entries.begin(), entries.end(), [](auto& a, auto& b) { return a.first < b.first; });
    }
    out += list() ? '[' : '{';
    bool first = true;
    for (const auto& [key, item] : entries) {
      if (!first) out += comma;
      first = false;
      new_line(depth);
      if (!list()) out += quoted(key, ascii) + ": ";
      item.write_json(out, indent, depth + 1, ascii, sorted);
    }
    if (!first) new_line(depth - 1);
    out += list() ? ']' : '}';
  }
}

bool equal(const Value& a, const Value& b) {
  if (a.is_integer() && b.is_integer()) return a.integer() == b.integer();
  if (a.is_number() && b.is_number()) return a.number() == b.number();
  if (a.string() && b.string()) return *a.string() == *b.string();
  if (a.list() && b.list()) {
    return std::equal(a.list()->begin(), a.list()->end(), b.list()->begin(), b.list()->end(), equal);
  }
  if (a.dict() && b.dict()) {
    const auto same = [&](const auto& entry) {
      const Value* other = b.dict()->find(entry.first);
      return other && equal(entry.second, *other);
    };
    return a.length() == b.length() && std::all_of(a.dict()->entries.begin(), a.dict()->entries.end(), same);
  }
  return (a.is_none() && b.is_none()) || (a.is_undefined() && b.is_undefined());
}

bool less(const Value& a, const Value& b) {
  if (a.is_number() && b.is_number()) return a.number() < b.number();
  if (a.string() && b.string()) return *a.string() < *b.string();
  require(a.list() && b.list(), "cannot order ", a.kind(), " and ", b.kind());
  return std::lexicographical_compare(a.list()->begin(), a.list()->end(), b.list()->begin(), b.list()->end(),
                                      less);
}

bool contains(const Value& container, const Value& item) {
  if (const std::string* text = container.string()) {
    require(item.string(), "cannot look for ", item.kind(), " in a string");
    return text->find(*item.string()) != text->npos;
  }
  if (container.dict()) return item.string() && container.dict()->find(*item.string());
  const List items = container.items();
  return std::any_of(items.begin(), items.end(), [&](const Value& other) { return equal(other, item); });
}

Value slice(const Value& container, const Value& start, const Value& stop, const Value& step) {
  require(container.string() || container.list(), "cannot slice ", container.kind());
  const List items = container.items();
  const auto size = static_cast<std::int64_t>(items.size());
  const std::int64_t by = step.is_undefined() || step.is_none() ? 1 : step.integer();
  require(by != 0, "the step of a slice is 0");
  const bool backwards = by < 0;
  const std::int64_t begin = slice_bound(start, backwards ? size - 1 : 0, size, backwards);
  const std::int64_t end = slice_bound(stop, backwards ? -1 : size, size, backwards);
  List list;
  std::string text;
  for (std::int64_t at = begin; backwards ? at > end : at < end; at += by) {
    const Value& item = items[static_cast<std::size_t>(at)];
    container.list() ? list.push_back(item) : void(text += *item.string());
    if (by >= size || by <= -size) break;
  }
  return container.list() ? Value(std::move(list)) : Value(std::move(text));
}

}  // namespace mixtape::chat
