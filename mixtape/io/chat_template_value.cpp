#include "mixtape/io/chat_template_value.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "mixtape/core/error.h"
#include "mixtape/io/text_utf8.h"

namespace mixtape::chat {
namespace {

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

const Value* Dict::find(const Value& key) const {
  for (const auto& [name, value] : entries) {
    if (equal(name, key)) return &value;
  }
  return nullptr;
}

const Value* Dict::find(std::string_view key) const {
  for (const auto& [name, value] : entries) {
    if (name.string() && *name.string() == key) return &value;
  }
  return nullptr;
}

void Dict::set(const Value& key, Value value) {
  const bool tuple = key.sequence() && key.sequence()->kind == Sequence::Kind::tuple;
  require(key.string() || key.is_none() || key.is_number() || tuple, "the key of a dict is ", key.kind());
  for (auto& [name, old] : entries) {
    if (equal(name, key)) {
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

Value::Value(List list) : Value(Sequence{Sequence::Kind::list, std::move(list), ""}) {}
Value::Value(Sequence sequence) : data_(std::make_shared<const Sequence>(std::move(sequence))) {}
Value::Value(Object object) : data_(std::make_shared<const Object>(std::move(object))) {}
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
      require(!json.is_number_unsigned() || json.get<std::uint64_t>() <= INT64_MAX, "the integer ",
              json.dump(), " is beyond 64 bits");
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
      for (const auto& [key, item] : json.items()) dict.entries.emplace_back(key, from_json(item));
      return dict;
    }
    default:
      return None{};
  }
}

const std::string* Value::string() const {
  if (const Markup* markup = std::get_if<Markup>(&data_)) return &markup->text;
  return std::get_if<std::string>(&data_);
}

const Sequence* Value::sequence() const {
  const auto* sequence = std::get_if<std::shared_ptr<const Sequence>>(&data_);
  return sequence ? sequence->get() : nullptr;
}

const List* Value::list() const { return sequence() ? &sequence()->items : nullptr; }

const Object* Value::object() const {
  const auto* object = std::get_if<std::shared_ptr<const Object>>(&data_);
  return object ? object->get() : nullptr;
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
  if (object() && object()->call) return &object()->call;
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
  const bool generator = sequence() && sequence()->kind == Sequence::Kind::generator;
  return generator || function() || object() || mutable_namespace() || length() > 0;
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
    for (const auto& entry : dict()->entries) keys.push_back(entry.first);
    return keys;
  }
  require(is_undefined(), "cannot go through ", kind());
  return keys;
}

const char* Value::kind() const {
  static constexpr const char* kKinds[] = {
      "an undefined value", "none",   "a boolean", "an integer",  "a float",    "a string",
      "a string",           "a list", "a dict",    "a namespace", "a function", "an object"};
  static constexpr const char* kSequences[] = {"a list", "a tuple", "a tuple",
                                               "a view", "a range", "a generator"};
  return sequence() ? kSequences[static_cast<std::size_t>(sequence()->kind)] : kKinds[data_.index()];
}

namespace {

bool is_tuple(const Value& value) {
  return value.sequence()->kind == Sequence::Kind::tuple || value.sequence()->kind == Sequence::Kind::group;
}
bool same_sequence_kind(const Value& a, const Value& b) {
  return is_tuple(a) == is_tuple(b) && (is_tuple(a) || a.sequence()->kind == b.sequence()->kind);
}

}  // namespace

bool identical(const Value& a, const Value& b) {
  if (a.list() || b.list()) return a.list() == b.list();
  if (a.dict() || b.dict()) return a.dict() == b.dict();
  if (a.function() || b.function()) return a.function() == b.function();
  return std::string_view(a.kind()) == b.kind() && equal(a, b);
}

bool equal(const Value& a, const Value& b) {
  if (a.is_integer() && b.is_integer()) return a.integer() == b.integer();
  if (a.is_number() && b.is_number()) return a.number() == b.number();
  if (a.string() && b.string()) return *a.string() == *b.string();
  if (a.list() && b.list()) {
    return same_sequence_kind(a, b) &&
           std::equal(a.list()->begin(), a.list()->end(), b.list()->begin(), b.list()->end(), equal);
  }
  if (a.mutable_namespace() || b.mutable_namespace()) return a.dict() == b.dict();
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
  require(a.list() && b.list() && same_sequence_kind(a, b), "cannot order ", a.kind(), " and ", b.kind());
  return std::lexicographical_compare(a.list()->begin(), a.list()->end(), b.list()->begin(), b.list()->end(),
                                      less);
}

bool contains(const Value& container, const Value& item) {
  if (const std::string* text = container.string()) {
    require(item.string(), "cannot look for ", item.kind(), " in a string");
    return text->find(*item.string()) != text->npos;
  }
  if (container.dict()) return container.dict()->find(item) != nullptr;
  const List items = container.items();
  return std::any_of(items.begin(), items.end(), [&](const Value& other) { return equal(other, item); });
}

Value slice(const Value& container, const Value& start, const Value& stop, const Value& step) {
  const Sequence* sequence = container.sequence();
  const bool is_cut = container.string() || (sequence && sequence->kind != Sequence::Kind::view &&
                                             sequence->kind != Sequence::Kind::generator);
  require(is_cut, "cannot slice ", container.kind());
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
  if (container.is_markup()) return Markup{text};
  if (!sequence) return text;
  const bool tuple = is_tuple(container);
  return Sequence{tuple ? Sequence::Kind::tuple : Sequence::Kind::list, std::move(list), ""};
}

}  // namespace mixtape::chat
