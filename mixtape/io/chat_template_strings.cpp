#include "mixtape/io/chat_template_strings.h"

#include <algorithm>
#include <charconv>
#include <map>

#include "mixtape/core/error.h"
#include "mixtape/io/text_utf8.h"

namespace mixtape::chat {
namespace {

using Method = Value (*)(const std::string&, const Arguments&);

const std::string& text_of(const Value& value, const char* function) {
  require(value.string(), function, ": expected a string, found ", value.kind());
  return *value.string();
}

bool is_absent(const Value& value) { return value.is_undefined() || value.is_none(); }

// Removes code points of `set` from the chosen sides.
std::string_view strip_set(std::string_view text, std::string_view set, bool left, bool right) {
  const auto in_set = [&](std::string_view c) { return set.find(c) != set.npos; };
  while (left && !text.empty() && in_set(text.substr(0, first_code_point(text).size))) {
    text.remove_prefix(first_code_point(text).size);
  }
  while (right && !text.empty() && in_set(text.substr(text.size() - last_code_point(text).size))) {
    text.remove_suffix(last_code_point(text).size);
  }
  return text;
}

Value strip_sides(const std::string& text, const Arguments& arguments, bool left, bool right) {
  const List bound = arguments.bind({"chars"}, "strip");
  if (is_absent(bound[0])) return std::string(strip_white_space(text, left, right));
  return std::string(strip_set(text, text_of(bound[0], "strip"), left, right));
}

List split_white_space(std::string_view text, std::int64_t limit) {
  List out;
  text = strip_white_space(text, true, false);
  while (!text.empty()) {
    std::size_t end = 0;
    while (end < text.size() && !is_white_space(first_code_point(text.substr(end)).value)) {
      end += first_code_point(text.substr(end)).size;
    }
    if (limit-- == 0) end = text.size();
    out.emplace_back(
        std::string(end == text.size() ? strip_white_space(text, false, true) : text.substr(0, end)));
    text = strip_white_space(text.substr(end), true, false);
  }
  return out;
}

Value split(const std::string& text, const Arguments& arguments) {
  const List bound = arguments.bind({"sep", "maxsplit"}, "split");
  std::int64_t limit = bound[1].is_undefined() ? -1 : bound[1].integer();
  if (is_absent(bound[0])) return split_white_space(text, limit);
  const std::string& separator = text_of(bound[0], "split");
  require(!separator.empty(), "split: the separator is empty");
  List out;
  std::size_t begin = 0;
  for (std::size_t at; limit-- != 0 && (at = text.find(separator, begin)) != text.npos;
       begin = at + separator.size()) {
    out.emplace_back(text.substr(begin, at - begin));
  }
  out.emplace_back(text.substr(begin));
  return out;
}

Value rsplit(const std::string& text, const Arguments& arguments) {
  const List bound = arguments.bind({"sep", "maxsplit"}, "rsplit");
  if (bound[1].is_undefined() || bound[1].integer() < 0) return split(text, arguments);
  const std::string& separator = text_of(bound[0], "rsplit");
  require(!separator.empty(), "rsplit: the separator is empty");
  List out;
  std::string rest = text;
  for (std::int64_t left = bound[1].integer(); left > 0; --left) {
    const std::size_t at = rest.rfind(separator);
    if (at == rest.npos) break;
    out.emplace_back(rest.substr(at + separator.size()));
    rest.resize(at);
  }
  out.emplace_back(rest);
  std::reverse(out.begin(), out.end());
  return out;
}

Value splitlines(const std::string& text, const Arguments& arguments) {
  arguments.bind({}, "splitlines");
  List out;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find_first_of("\r\n", begin), text.size());
    out.emplace_back(text.substr(begin, end - begin));
    begin = end + (text.compare(end, 2, "\r\n") == 0 ? 2 : 1);
  }
  return out;
}

template <bool kAtStart>
Value has_affix(const std::string& text, const Arguments& arguments) {
  const char* name = kAtStart ? "startswith" : "endswith";
  const Value affix = arguments.bind({"affix"}, name)[0];
  const auto matches = [&](const Value& one) {
    return kAtStart ? text.starts_with(text_of(one, name)) : text.ends_with(text_of(one, name));
  };
  if (!affix.list()) return matches(affix);
  return std::any_of(affix.list()->begin(), affix.list()->end(), matches);
}

Value remove_prefix(const std::string& text, const Arguments& arguments) {
  const Value prefix = arguments.bind({"prefix"}, "removeprefix")[0];
  return text.starts_with(text_of(prefix, "removeprefix")) ? text.substr(prefix.string()->size()) : text;
}

Value remove_suffix(const std::string& text, const Arguments& arguments) {
  const Value suffix = arguments.bind({"suffix"}, "removesuffix")[0];
  const bool found = text.ends_with(text_of(suffix, "removesuffix"));
  return found ? text.substr(0, text.size() - suffix.string()->size()) : text;
}

template <bool kLast>
Value find(const std::string& text, const Arguments& arguments) {
  const Value part = arguments.bind({"sub"}, "find")[0];
  const std::size_t at = kLast ? text.rfind(text_of(part, "find")) : text.find(text_of(part, "find"));
  if (at == text.npos) return std::int64_t{-1};
  return Value::count(count_code_points(std::string_view(text).substr(0, at)));
}

Value count(const std::string& text, const Arguments& arguments) {
  const Value part = arguments.bind({"sub"}, "count")[0];
  const std::string& sought = text_of(part, "count");
  if (sought.empty()) return Value::count(count_code_points(text) + 1);
  std::size_t found = 0;
  for (std::size_t at = 0; (at = text.find(sought, at)) != text.npos; at += sought.size()) ++found;
  return Value::count(found);
}

Value join(const std::string& text, const Arguments& arguments) {
  std::string out;
  bool first = true;
  for (const Value& item : arguments.bind({"iterable"}, "join")[0].items()) {
    out += (first ? "" : text) + text_of(item, "join");
    first = false;
  }
  return out;
}

Value is_digits(const std::string& text, const Arguments&) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
}

const std::map<std::string, Method>& methods() {
  static const std::map<std::string, Method> table = {
      {"capitalize", capitalize},
      {"count", count},
      {"endswith", has_affix<false>},
      {"find", find<false>},
      {"isdigit", is_digits},
      {"join", join},
      {"lower", lower},
      {"lstrip", [](const std::string& s, const Arguments& a) { return strip_sides(s, a, true, false); }},
      {"removeprefix", remove_prefix},
      {"removesuffix", remove_suffix},
      {"replace", replace},
      {"rfind", find<true>},
      {"rsplit", rsplit},
      {"rstrip", [](const std::string& s, const Arguments& a) { return strip_sides(s, a, false, true); }},
      {"split", split},
      {"splitlines", splitlines},
      {"startswith", has_affix<true>},
      {"strip", strip},
      {"title", title},
      {"upper", upper},
  };
  return table;
}

}  // namespace

Value strip(const std::string& text, const Arguments& arguments) {
  return strip_sides(text, arguments, true, true);
}
Value lower(const std::string& text, const Arguments&) { return to_lower(text); }
Value upper(const std::string& text, const Arguments&) { return to_upper(text); }

// Every word's first letter is raised, the others are lowered.
Value title(const std::string& text, const Arguments&) {
  std::string out;
  bool inside = false;
  for (std::string_view rest = text; !rest.empty();) {
    const CodePoint c = first_code_point(rest);
    const std::string letter(rest.substr(0, c.size));
    out += inside ? to_lower(letter) : to_upper(letter);
    inside = is_word(c.value) && !is_number(c.value) && c.value != '_';
    rest.remove_prefix(c.size);
  }
  return out;
}

Value capitalize(const std::string& text, const Arguments&) {
  if (text.empty()) return text;
  const std::size_t size = first_code_point(text).size;
  return to_upper(text.substr(0, size)) + to_lower(text.substr(size));
}

Value replace(const std::string& text, const Arguments& arguments) {
  const List bound = arguments.bind({"old", "new", "count"}, "replace");
  const std::string& sought = text_of(bound[0], "replace");
  const std::string& with = text_of(bound[1], "replace");
  require(!sought.empty(), "replace: the text to replace is empty");
  std::int64_t limit = is_absent(bound[2]) ? -1 : bound[2].integer();
  std::string out;
  std::size_t done = 0;
  for (std::size_t at; limit-- != 0 && (at = text.find(sought, done)) != text.npos;
       done = at + sought.size()) {
    out += text.substr(done, at - done) + with;
  }
  return out + text.substr(done);
}

// Jinja's filter: every line but the first, and blank lines only if asked.
Value indent(const std::string& text, const Arguments& arguments) {
  const List bound = arguments.bind({"width", "first", "blank"}, "indent");
  const std::int64_t width = bound[0].is_undefined() ? 4 : bound[0].integer();
  require(width >= 0 && width <= 1024, "indent: a width of ", width);
  const std::string margin(static_cast<std::size_t>(width), ' ');
  std::string out;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    const bool wanted = begin == 0 ? bound[1].truthy() : end > begin || bound[2].truthy();
    out += (begin == 0 ? "" : "\n") + (wanted ? margin : "") + text.substr(begin, end - begin);
    begin = end + 1;
  }
  return out;
}

std::int64_t truncate(const Value& number) {
  if (!number.is<double>()) return number.integer();
  constexpr double kLimit = 9223372036854775808.0;
  require(number.number() >= -kLimit && number.number() < kLimit, "int: ", number.number(),
          " is beyond 64 bits");
  return static_cast<std::int64_t>(number.number());
}

Value parse_integer(const std::string& text, const Value& otherwise) {
  std::string_view digits = strip_white_space(text, true, true);
  if (digits.starts_with('+')) digits.remove_prefix(1);
  std::int64_t value = 0;
  const auto parsed = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (parsed.ec == std::errc() && parsed.ptr == digits.data() + digits.size()) return value;
  const Value real = parse_float(text, Value());
  return real.is_undefined() ? otherwise : Value(truncate(real));
}

Value parse_float(const std::string& text, const Value& otherwise) {
  std::string_view digits = strip_white_space(text, true, true);
  if (digits.starts_with('+')) digits.remove_prefix(1);
  double value = 0;
  const auto parsed = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  return parsed.ec == std::errc() && parsed.ptr == digits.data() + digits.size() ? Value(value) : otherwise;
}

Value string_method(const std::string& text, const std::string& name) {
  const auto found = methods().find(name);
  if (found == methods().end()) return {};
  return Function(
      [text, method = found->second](const Arguments& arguments) { return method(text, arguments); });
}

}  // namespace mixtape::chat
