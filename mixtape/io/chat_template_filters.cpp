// The filters that chat templates may apply: `x | name(y)`.
#include <algorithm>
#include <cmath>
#include <map>

#include "mixtape/core/error.h"
#include "mixtape/io/chat_template_builtins.h"
#include "mixtape/io/chat_template_format.h"
#include "mixtape/io/chat_template_letters.h"
#include "mixtape/io/chat_template_strings.h"
#include "mixtape/io/text_utf8.h"

namespace mixtape::chat {
namespace {

using Filter = Value (*)(const Value&, const Arguments&);
using SequenceKind = Sequence::Kind;

bool flag(const Value& value, bool otherwise) { return value.is_undefined() ? otherwise : value.truthy(); }
bool is_absent(const Value& value) { return value.is_undefined() || value.is_none(); }

const std::string& text_of(const Value& value) {
  require(value.string(), "expected a string, found ", value.kind());
  return *value.string();
}

Value generator(List items) { return Sequence{SequenceKind::generator, std::move(items), ""}; }

// What filters that make their items one by one see of a false value.
List items_of(const Value& value) { return value.truthy() ? value.items() : List(); }

bool is_number_text(const std::string& text) {
  return !text.empty() && text.find_first_not_of("0123456789") == text.npos;
}

// One attribute of each item, which may be written a.b or a.0; the item itself where there is none.
Value attribute_of(const Value& item, const Value& path) {
  if (is_absent(path)) return item;
  if (path.is_integer()) return find_item(item, path);
  Value value = item;
  std::string rest = text_of(path);
  while (!rest.empty()) {
    const std::size_t dot = std::min(rest.find('.'), rest.size());
    const std::string name = rest.substr(0, dot);
    require(!value.is_undefined(), "an undefined value has no ", name);
    value = find_item(value, is_number_text(name) ? parse_integer(name, Value()) : Value(name));
    rest.erase(0, dot + 1);
  }
  return value;
}

// What is compared of a value: letters without their case unless it counts.
Value sort_key(const Value& value, bool case_sensitive) {
  return value.string() && !case_sensitive ? Value(to_lower(*value.string())) : value;
}

// The value as a whole or of attributes "a,b".
List sort_keys(const Value& item, const Value& attribute, bool case_sensitive) {
  List keys;
  if (!attribute.string()) return {sort_key(attribute_of(item, attribute), case_sensitive)};
  std::string rest = *attribute.string() + ',';
  for (std::size_t comma; (comma = rest.find(',')) != rest.npos; rest.erase(0, comma + 1)) {
    keys.push_back(sort_key(attribute_of(item, rest.substr(0, comma)), case_sensitive));
  }
  return keys;
}

JsonStyle json_style(const List& bound) {  // ensure_ascii, indent, separators, sort_keys
  JsonStyle style;
  style.ascii = flag(bound[0], false);
  style.one_line = is_absent(bound[1]);
  if (bound[1].string()) {
    style.indent = *bound[1].string();
  } else if (!style.one_line) {
    require(bound[1].integer() <= 64, "tojson: an indent of ", bound[1].integer());
    style.indent.assign(static_cast<std::size_t>(std::max<std::int64_t>(bound[1].integer(), 0)), ' ');
  }
  if (!style.one_line) style.item_separator.resize(1);  // no space before the end of a line
  if (!is_absent(bound[2])) {
    const List separators = bound[2].items();
    require(separators.size() == 2, "tojson: found ", separators.size(), " separators, expected 2");
    style.item_separator = text_of(separators[0]);
    style.key_separator = text_of(separators[1]);
  }
  style.sorted = flag(bound[3], false);
  return style;
}

Value filter_tojson(const Value& subject, const Arguments& arguments) {
  return subject.json(
      json_style(arguments.bind({"ensure_ascii", "indent", "separators", "sort_keys"}, "tojson")));
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
    out += attribute_of(item, bound[1]).text();
  }
  return out;
}

Value filter_map(const Value& subject, const Arguments& arguments) {
  List out;
  if (arguments.positional.empty()) {
    const List bound = arguments.bind({"attribute", "default"}, "map");
    for (const Value& item : items_of(subject)) {
      Value value = attribute_of(item, bound[0]);
      out.push_back(value.is_undefined() && !bound[1].is_undefined() ? bound[1] : std::move(value));
    }
    return generator(std::move(out));
  }
  const Arguments rest{{arguments.positional.begin() + 1, arguments.positional.end()}, arguments.named};
  for (const Value& item : items_of(subject)) {
    out.push_back(apply_filter(text_of(arguments.positional[0]), item, rest));
  }
  return generator(std::move(out));
}

// select, reject, selectattr and rejectattr: the items whose value passes the test, or is true without a test.
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
  for (const Value& item : items_of(subject)) {
    const Value value = kByAttribute ? attribute_of(item, attribute) : item;
    const bool passes = test.empty() ? value.truthy() : apply_test(test, value, {rest, {}});
    if (passes == kKeep) out.push_back(item);
  }
  return generator(std::move(out));
}

Value filter_items(const Value& subject, const Arguments&) {
  if (subject.is_undefined()) return generator({});
  require(subject.dict(), "items: expected a dict, found ", subject.kind());
  return generator(pairs_of(*subject.dict()));
}

Value filter_sort(const Value& subject, const Arguments& arguments) {
  const List bound = arguments.bind({"reverse", "case_sensitive", "attribute"}, "sort");
  std::vector<std::pair<List, Value>> items;
  for (const Value& item : subject.items())
    items.emplace_back(sort_keys(item, bound[2], flag(bound[1], false)), item);
  const bool falling = flag(bound[0], false);
  std::stable_sort(items.begin(), items.end(), [&](const auto& a, const auto& b) {
    return falling ? less(b.first, a.first) : less(a.first, b.first);
  });
  List out;
  for (auto& [key, item] : items) out.push_back(std::move(item));
  return out;
}

Value filter_dictsort(const Value& subject, const Arguments& arguments) {
  const List bound = arguments.bind({"case_sensitive", "by", "reverse"}, "dictsort");
  const std::string by = bound[1].is_undefined() ? "key" : text_of(bound[1]);
  require(subject.dict() && (by == "key" || by == "value"), "dictsort: sorts a dict by \"key\" or \"value\"");
  const auto key = [&](const Value& item) {
    return sort_key((*item.list())[by == "key" ? 0 : 1], flag(bound[0], false));
  };
  List items = pairs_of(*subject.dict());
  std::stable_sort(items.begin(), items.end(), [&](const Value& a, const Value& b) {
    return flag(bound[2], false) ? less(key(b), key(a)) : less(key(a), key(b));
  });
  return items;
}

Value filter_unique(const Value& subject, const Arguments& arguments) {
  const List bound = arguments.bind({"case_sensitive", "attribute"}, "unique");
  List out, seen;
  for (const Value& item : subject.items()) {
    const Value key = sort_key(attribute_of(item, bound[1]), flag(bound[0], false));
    if (std::any_of(seen.begin(), seen.end(), [&](const Value& other) { return equal(key, other); }))
      continue;
    seen.push_back(key);
    out.push_back(item);
  }
  return generator(std::move(out));
}

template <bool kLargest>
Value filter_extreme(const Value& subject, const Arguments& arguments) {
  const List bound = arguments.bind({"case_sensitive", "attribute"}, kLargest ? "max" : "min");
  const auto key = [&](const Value& item) {
    return sort_key(attribute_of(item, bound[1]), flag(bound[0], false));
  };
  const List items = subject.items();
  if (items.empty()) return {};
  const Value* best = &items[0];
  for (const Value& item : items) {
    if (kLargest ? less(key(*best), key(item)) : less(key(item), key(*best))) best = &item;
  }
  return *best;
}

// Groups in the order of their keys; each is named as its first item writes the key.
Value filter_groupby(const Value& subject, const Arguments& arguments) {
  const List bound = arguments.bind({"attribute", "default", "case_sensitive"}, "groupby");
  const auto value_of = [&](const Value& item) {
    const Value value = attribute_of(item, bound[0]);
    return value.is_undefined() && !bound[1].is_undefined() ? bound[1] : value;
  };
  std::vector<std::pair<Value, List>> groups;
  for (const Value& item : subject.items()) {
    const Value key = sort_key(value_of(item), flag(bound[2], false));
    const auto found = std::find_if(groups.begin(), groups.end(),
                                    [&](const auto& group) { return equal(group.first, key); });
    found == groups.end() ? groups.emplace_back(key, List{item}) : (found->second.push_back(item), *found);
  }
  std::stable_sort(groups.begin(), groups.end(),
                   [](const auto& a, const auto& b) { return less(a.first, b.first); });
  List out;
  for (auto& [key, items] : groups)
    out.emplace_back(Sequence{SequenceKind::group, {value_of(items[0]), items}, ""});
  return out;
}

// Rows of `count` items; the last one is filled up if there is something to fill it with.
Value filter_batch(const Value& subject, const Arguments& arguments) {
  const List bound = arguments.bind({"linecount", "fill_with"}, "batch");
  const std::int64_t count = bound[0].integer();
  require(count > 0, "batch: rows of ", count);
  List out, row;
  for (const Value& item : subject.items()) {
    row.push_back(item);
    if (std::ssize(row) < count) continue;
    out.emplace_back(std::move(row));
    row = {};
  }
  if (!row.empty() && !is_absent(bound[1])) row.resize(static_cast<std::size_t>(count), bound[1]);
  if (!row.empty()) out.emplace_back(std::move(row));
  return generator(std::move(out));
}

// `slices` columns, the first ones longer by one where it doesn't come out even.
Value filter_slice(const Value& subject, const Arguments& arguments) {
  const List bound = arguments.bind({"slices", "fill_with"}, "slice");
  const List items = subject.items();
  const std::int64_t slices = bound[0].integer();
  require(slices > 0 && slices <= 100000, "slice: into ", slices);
  const std::int64_t each = std::ssize(items) / slices, longer = std::ssize(items) % slices;
  List out;
  auto at = items.begin();
  for (std::int64_t i = 0; i < slices; ++i) {
    List part(at, at + each + (i < longer));
    at += each + (i < longer);
    if (!is_absent(bound[1]) && i >= longer) part.push_back(bound[1]);
    out.emplace_back(std::move(part));
  }
  return generator(std::move(out));
}

Value filter_sum(const Value& subject, const Arguments& arguments) {
  const List bound = arguments.bind({"attribute", "start"}, "sum");
  Value total = bound[1].is_undefined() ? Value(std::int64_t{0}) : bound[1];
  for (const Value& item : subject.items()) total = apply_operator("+", total, attribute_of(item, bound[0]));
  return total;
}

// Half to even, on the exact binary value.
double rounded(double value, int places) {
  if (places >= 0) {
    char text[400];
    std::snprintf(text, sizeof text, "%.*f", std::min(places, 20), value);
    return std::strtod(text, nullptr);
  }
  const double unit = std::pow(10.0, -places);
  return std::nearbyint(value / unit) * unit;
}

Value filter_round(const Value& subject, const Arguments& arguments) {
  const List bound = arguments.bind({"precision", "method"}, "round");
  const auto places =
      static_cast<int>(std::clamp<std::int64_t>(bound[0].is_undefined() ? 0 : bound[0].integer(), -20, 20));
  const std::string method = bound[1].is_undefined() ? "common" : text_of(bound[1]);
  if (method == "common" && !subject.is<double>() && places >= 0) return subject.integer();
  if (method == "common") {
    const double value = rounded(subject.number(), places);
    return subject.is<double>() ? Value(value) : Value(truncate(value));
  }
  require(method == "ceil" || method == "floor", "round: ", method, " is no method");
  const double unit = std::pow(10.0, places), scaled = subject.number() * unit;
  return (method == "ceil" ? std::ceil(scaled) : std::floor(scaled)) / unit;
}

Value filter_reverse(const Value& subject, const Arguments& arguments) {
  arguments.bind({}, "reverse");
  if (subject.string()) return slice(subject, {}, {}, std::int64_t{-1});
  List items = subject.items();
  std::reverse(items.begin(), items.end());
  return generator(std::move(items));
}

Value filter_int(const Value& subject, const Arguments& arguments) {
  const List bound = arguments.bind({"default", "base"}, "int");
  const Value otherwise = bound[0].is_undefined() ? Value(std::int64_t{0}) : bound[0];
  const std::int64_t base = bound[1].is_undefined() ? 10 : bound[1].integer();
  require(base >= 2 && base <= 36, "int: a base of ", base);
  if (subject.string()) return parse_integer(*subject.string(), otherwise, static_cast<int>(base));
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

Value filter_attr(const Value& subject, const Arguments& arguments) {
  return find_method(subject, text_of(arguments.bind({"name"}, "attr")[0]));
}

Value filter_format(const Value& subject, const Arguments& arguments) {
  require(arguments.positional.empty() || arguments.named.empty(),
          "format: values by place or by name, not both");
  const Value pattern = subject.is_markup() ? subject : Value(subject.text());
  Dict named;
  for (const auto& [name, value] : arguments.named) named.set(name, value);
  if (!arguments.named.empty()) return apply_operator("%", pattern, named);
  return apply_operator("%", pattern, Sequence{SequenceKind::tuple, arguments.positional, ""});
}

Value filter_truncate(const Value& subject, const Arguments& arguments) {
  const List bound = arguments.bind({"length", "killwords", "end", "leeway"}, "truncate");
  const std::int64_t length = bound[0].is_undefined() ? 255 : bound[0].integer();
  const std::string end = bound[2].is_undefined() ? "..." : text_of(bound[2]);
  const std::int64_t leeway = is_absent(bound[3]) ? 5 : bound[3].integer();
  const auto end_size = static_cast<std::int64_t>(count_code_points(end));
  require(length >= end_size, "truncate: a length of ", length, ", expected at least ", end_size);
  const Value text = subject.text();
  if (static_cast<std::int64_t>(text.length()) <= length + leeway) return text;
  std::string kept = *slice(text, {}, length - end_size, {}).string();
  if (!flag(bound[1], false)) kept = kept.substr(0, kept.rfind(' '));
  return kept + end;
}

Value filter_wordcount(const Value& subject, const Arguments&) {
  std::int64_t words = 0;
  bool inside = false;
  const std::string whole = subject.text();
  for (std::string_view rest = whole; !rest.empty(); rest.remove_prefix(first_code_point(rest).size)) {
    const bool word = is_word(first_code_point(rest).value);
    words += word && !inside;
    inside = word;
  }
  return words;
}

Value filter_string(const Value& subject, const Arguments&) {
  return subject.string() ? subject : Value(subject.text());
}

// A string method as a filter: {{ x | trim }} is {{ x.strip() }}.
template <auto kMethod>
Value string_filter(const Value& subject, const Arguments& arguments) {
  Value out = kMethod(subject.text(), arguments);
  return subject.is_markup() ? Value(Markup{out.text()}) : out;
}

// The same for those that forget that a text needs no escaping.
template <auto kMethod>
Value plain_filter(const Value& subject, const Arguments& arguments) {
  return kMethod(subject.text(), arguments);
}

Value count_of(const Value& subject, const Arguments&) { return Value::count(subject.length()); }
Value first_of(const Value& subject, const Arguments&) {
  const List items = subject.items();
  return items.empty() ? Value() : items.front();
}
Value last_of(const Value& subject, const Arguments&) {
  const List items = subject.items();
  return items.empty() ? Value() : items.back();
}

const std::map<std::string, Filter>& filters() {
  static const std::map<std::string, Filter> table = {
      {"abs", filter_abs},
      {"attr", filter_attr},
      {"batch", filter_batch},
      {"capitalize", string_filter<capitalize>},
      {"center", string_filter<center>},
      {"count", count_of},
      {"d", filter_default},
      {"default", filter_default},
      {"dictsort", filter_dictsort},
      {"e", [](const Value& x, const Arguments&) { return Value(escape(x)); }},
      {"escape", [](const Value& x, const Arguments&) { return Value(escape(x)); }},
      {"first", first_of},
      {"float", filter_float},
      {"forceescape", [](const Value& x, const Arguments&) { return Value(escape(x.text())); }},
      {"format", filter_format},
      {"groupby", filter_groupby},
      {"indent", string_filter<indent>},
      {"int", filter_int},
      {"items", filter_items},
      {"join", filter_join},
      {"last", last_of},
      {"length", count_of},
      {"list", [](const Value& x, const Arguments&) { return Value(x.items()); }},
      {"lower", string_filter<lower>},
      {"map", filter_map},
      {"max", filter_extreme<true>},
      {"min", filter_extreme<false>},
      {"reject", filter_select<false, false>},
      {"rejectattr", filter_select<true, false>},
      {"replace", plain_filter<replace>},
      {"reverse", filter_reverse},
      {"round", filter_round},
      {"safe", [](const Value& x, const Arguments&) { return Value(Markup{x.text()}); }},
      {"select", filter_select<false, true>},
      {"selectattr", filter_select<true, true>},
      {"slice", filter_slice},
      {"sort", filter_sort},
      {"string", filter_string},
      {"sum", filter_sum},
      {"title", plain_filter<title_words>},
      {"tojson", filter_tojson},
      {"trim", string_filter<strip>},
      {"truncate", filter_truncate},
      {"unique", filter_unique},
      {"upper", string_filter<upper>},
      {"wordcount", filter_wordcount},
  };
  return table;
}

}  // namespace

bool has_filter(const std::string& name) { return filters().contains(name); }

Value apply_filter(const std::string& name, const Value& subject, const Arguments& arguments) {
  const auto found = filters().find(name);
  if (found == filters().end()) fail(ErrorCode::not_supported, "the filter ", name, " is not supported");
  return found->second(subject, arguments);
}

}  // namespace mixtape::chat
