#include "mixtape/io/chat_template_strings.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <optional>

#include "mixtape/core/error.h"
#include "mixtape/io/chat_template_format.h"
#include "mixtape/io/chat_template_letters.h"
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

List rsplit_white_space(std::string_view text, std::int64_t limit) {
  List out;
  for (text = strip_white_space(text, false, true); !text.empty();
       text = strip_white_space(text, false, true)) {
    std::size_t begin = text.size();
    while (begin > 0 && !is_white_space(last_code_point(text.substr(0, begin)).value))
      begin -= last_code_point(text.substr(0, begin)).size;
    if (limit-- == 0) begin = 0;
    out.emplace_back(std::string(text.substr(begin)));
    text = text.substr(0, begin);
  }
  std::reverse(out.begin(), out.end());
  return out;
}

Value rsplit(const std::string& text, const Arguments& arguments) {
  const List bound = arguments.bind({"sep", "maxsplit"}, "rsplit");
  if (bound[1].is_undefined() || bound[1].integer() < 0) return split(text, arguments);
  if (is_absent(bound[0])) return rsplit_white_space(text, bound[1].integer());
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

// Where a line ends for Python, which knows more line ends than \r and \n.
std::size_t line_end(std::string_view text, std::size_t& size) {
  for (std::size_t at = 0; at < text.size();) {
    const CodePoint c = first_code_point(text.substr(at));
    const bool ends = (c.value >= 0x0A && c.value <= 0x0D) || (c.value >= 0x1C && c.value <= 0x1E) ||
                      c.value == 0x85 || c.value == 0x2028 || c.value == 0x2029;
    size = text.substr(at).starts_with("\r\n") ? 2 : c.size;
    if (ends) return at;
    at += c.size;
  }
  size = 0;
  return text.size();
}

Value splitlines(const std::string& text, const Arguments& arguments) {
  const bool keep = arguments.bind({"keepends"}, "splitlines")[0].truthy();
  List out;
  for (std::string_view rest = text; !rest.empty();) {
    std::size_t size = 0;
    const std::size_t end = line_end(rest, size);
    out.emplace_back(std::string(rest.substr(0, end + (keep ? size : 0))));
    rest.remove_prefix(end + size);
  }
  return out;
}

template <bool kLast>
Value partition(const std::string& text, const Arguments& arguments) {
  const Value separator = arguments.bind({"sep"}, "partition")[0];
  const std::string& sought = text_of(separator, "partition");
  require(!sought.empty(), "partition: the separator is empty");
  const std::size_t at = kLast ? text.rfind(sought) : text.find(sought);
  const auto tuple = [](List items) { return Value(Sequence{Sequence::Kind::tuple, std::move(items), ""}); };
  if (at == text.npos) return kLast ? tuple({"", "", text}) : tuple({text, "", ""});
  return tuple({text.substr(0, at), sought, text.substr(at + sought.size())});
}

// text[start:end], and how many code points come before it; nothing where start is behind the end.
struct Window {
  std::string_view text;
  std::size_t offset = 0;
};
std::optional<Window> window(const std::string& text, const Value& start, const Value& end) {
  if (is_absent(start) && is_absent(end)) return Window{text, 0};
  const auto size = static_cast<std::int64_t>(count_code_points(text));
  const auto bound = [&](const Value& value, std::int64_t otherwise) {
    const std::int64_t at = is_absent(value) ? otherwise : value.integer();
    return at < 0 ? std::max<std::int64_t>(at + size, 0) : at;
  };
  const std::int64_t from = bound(start, 0), to = std::min(bound(end, size), size);
  if (from > to) return std::nullopt;
  const auto bytes = [&](std::int64_t count) {
    std::size_t at = 0;
    for (; count > 0; --count) at += first_code_point(std::string_view(text).substr(at)).size;
    return at;
  };
  const std::size_t begin = bytes(from);
  return Window{std::string_view(text).substr(begin, bytes(to) - begin), static_cast<std::size_t>(from)};
}

template <bool kAtStart>
Value has_affix(const std::string& text, const Arguments& arguments) {
  const char* name = kAtStart ? "startswith" : "endswith";
  const List bound = arguments.bind({"affix", "start", "end"}, name);
  const auto part = window(text, bound[1], bound[2]);
  const auto matches = [&](const Value& one) {
    const std::string& affix = text_of(one, name);
    return part && (kAtStart ? part->text.starts_with(affix) : part->text.ends_with(affix));
  };
  if (!bound[0].list()) return matches(bound[0]);
  return std::any_of(bound[0].list()->begin(), bound[0].list()->end(), matches);
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

template <bool kLast, bool kMust>
Value find(const std::string& text, const Arguments& arguments) {
  const List bound = arguments.bind({"sub", "start", "end"}, "find");
  const std::string& sought = text_of(bound[0], "find");
  const auto part = window(text, bound[1], bound[2]);
  const std::size_t at = !part ? text.npos : kLast ? part->text.rfind(sought) : part->text.find(sought);
  require(!kMust || at != text.npos, "index: the text isn't there");
  if (at == text.npos) return std::int64_t{-1};
  return Value::count(part->offset + count_code_points(part->text.substr(0, at)));
}

Value count(const std::string& text, const Arguments& arguments) {
  const List bound = arguments.bind({"sub", "start", "end"}, "count");
  const std::string& sought = text_of(bound[0], "count");
  const auto part = window(text, bound[1], bound[2]);
  if (!part) return std::int64_t{0};
  if (sought.empty()) return Value::count(count_code_points(part->text) + 1);
  std::size_t found = 0;
  for (std::size_t at = 0; (at = part->text.find(sought, at)) != text.npos; at += sought.size()) ++found;
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

// isalpha() and its like: of every character, and of no empty text.
template <bool (*kTest)(char32_t)>
Value all_are(const std::string& text, const Arguments& arguments) {
  arguments.bind({}, "the method");
  for (std::string_view rest = text; !rest.empty(); rest.remove_prefix(first_code_point(rest).size)) {
    if (!kTest(first_code_point(rest).value)) return false;
  }
  return !text.empty() || kTest == is_ascii;
}

std::string filling(const std::string& fill, std::int64_t count) {
  require(count <= 1 << 20, "a text ", count, " wide is too large");
  std::string out;
  for (; count > 0; --count) out += fill;
  return out;
}

// kSide: -1 puts the text left, 0 in the middle, 1 right.
template <int kSide>
Value justify(const std::string& text, const Arguments& arguments) {
  const List bound = arguments.bind({"width", "fillchar"}, "justify");
  const std::string fill = bound[1].is_undefined() ? " " : text_of(bound[1], "justify");
  require(count_code_points(fill) == 1, "justify: the filling must be one character");
  const std::int64_t width = bound[0].is_undefined() ? 80 : bound[0].integer();
  const std::int64_t missing =
      std::max<std::int64_t>(width - static_cast<std::int64_t>(count_code_points(text)), 0);
  const std::int64_t left = kSide < 0 ? 0 : kSide > 0 ? missing : missing / 2 + (missing & width & 1);
  return filling(fill, left) + text + filling(fill, missing - left);
}

Value zero_fill(const std::string& text, const Arguments& arguments) {
  const Value width = arguments.bind({"width"}, "zfill")[0];
  const bool sign = text.starts_with('-') || text.starts_with('+');
  const std::string zeros =
      filling("0", width.integer() - static_cast<std::int64_t>(count_code_points(text)));
  return text.substr(0, sign) + zeros + text.substr(sign);
}

Value expand_tabs(const std::string& text, const Arguments& arguments) {
  const Value given = arguments.bind({"tabsize"}, "expandtabs")[0];
  const std::int64_t size = given.is_undefined() ? 8 : given.integer();
  std::string out;
  std::int64_t column = 0;
  for (std::string_view rest = text; !rest.empty(); rest.remove_prefix(first_code_point(rest).size)) {
    const std::string_view c = rest.substr(0, first_code_point(rest).size);
    const std::int64_t blanks = size > 0 ? size - column % size : 0;
    out += c == "\t" ? filling(" ", blanks) : std::string(c);
    column = c == "\n" || c == "\r" ? 0 : column + (c == "\t" ? blanks : 1);
  }
  return out;
}

Value format(const std::string& text, const Arguments& arguments) { return format_braces(text, arguments); }

template <bool (*kTest)(std::string_view)>
Value text_is(const std::string& text, const Arguments&) {
  return kTest(text);
}

const std::map<std::string, Method>& methods() {
  static const std::map<std::string, Method> table = {
      {"capitalize", capitalize},
      {"casefold", fold},
      {"center", justify<0>},
      {"count", count},
      {"endswith", has_affix<false>},
      {"expandtabs", expand_tabs},
      {"find", find<false, false>},
      {"format", format},
      {"index", find<false, true>},
      {"isalnum", all_are<is_alphanumeric>},
      {"isalpha", all_are<is_letter>},
      {"isascii", all_are<is_ascii>},
      {"isdecimal", all_are<is_decimal>},
      {"isdigit", all_are<is_digit>},
      {"islower", text_is<is_lower>},
      {"isnumeric", all_are<is_number>},
      {"isspace", all_are<is_white_space>},
      {"istitle", is_title},
      {"isupper", text_is<is_upper>},
      {"join", join},
      {"ljust", justify<-1>},
      {"lower", lower},
      {"lstrip", [](const std::string& s, const Arguments& a) { return strip_sides(s, a, true, false); }},
      {"partition", partition<false>},
      {"removeprefix", remove_prefix},
      {"removesuffix", remove_suffix},
      {"replace", replace},
      {"rfind", find<true, false>},
      {"rindex", find<true, true>},
      {"rjust", justify<1>},
      {"rpartition", partition<true>},
      {"rsplit", rsplit},
      {"rstrip", [](const std::string& s, const Arguments& a) { return strip_sides(s, a, false, true); }},
      {"split", split},
      {"splitlines", splitlines},
      {"startswith", has_affix<true>},
      {"strip", strip},
      {"swapcase", swap_case},
      {"title", title},
      {"upper", upper},
      {"zfill", zero_fill},
  };
  return table;
}

}  // namespace

Value strip(const std::string& text, const Arguments& arguments) {
  return strip_sides(text, arguments, true, true);
}

Value center(const std::string& text, const Arguments& arguments) { return justify<0>(text, arguments); }

Value replace(const std::string& text, const Arguments& arguments) {
  const List bound = arguments.bind({"old", "new", "count"}, "replace");
  const std::string& sought = text_of(bound[0], "replace");
  const std::string& with = text_of(bound[1], "replace");
  std::int64_t limit = is_absent(bound[2]) ? -1 : bound[2].integer();
  std::string out;
  std::size_t done = 0;
  if (sought.empty()) {  // between all characters
    for (; limit-- != 0 && done <= text.size();) {
      const std::size_t size =
          done < text.size() ? first_code_point(std::string_view(text).substr(done)).size : 1;
      out += with + text.substr(done, size);
      done += size;
    }
    return done < text.size() ? out + text.substr(done) : out;
  }
  for (std::size_t at; limit-- != 0 && (at = text.find(sought, done)) != text.npos;
       done = at + sought.size()) {
    out += text.substr(done, at - done) + with;
  }
  return out + text.substr(done);
}

// Jinja's filter: every line but the first, and blank lines only if asked.
Value indent(const std::string& text, const Arguments& arguments) {
  const List bound = arguments.bind({"width", "first", "blank"}, "indent");
  const std::int64_t width = bound[0].is_undefined() ? 4 : bound[0].string() ? 0 : bound[0].integer();
  require(width <= 1024, "indent: a width of ", width);
  const std::string margin =
      bound[0].string() ? *bound[0].string()
                        : std::string(static_cast<std::size_t>(std::max<std::int64_t>(width, 0)), ' ');
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

Value parse_integer(const std::string& text, const Value& otherwise, int base) {
  std::string_view digits = strip_white_space(text, true, true);
  if (digits.starts_with('+')) digits.remove_prefix(1);
  const char mark = base == 16 ? 'x' : base == 8 ? 'o' : base == 2 ? 'b' : '\0';
  if (mark && digits.size() > 2 && digits[0] == '0' && (digits[1] | 0x20) == mark) digits.remove_prefix(2);
  std::int64_t value = 0;
  const auto parsed = std::from_chars(digits.data(), digits.data() + digits.size(), value, base);
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

namespace {

Value marked_up(const Value& value) {
  if (value.string()) return Markup{*value.string()};
  if (!value.sequence()) return value;
  List items;
  for (const Value& item : *value.list()) items.push_back(marked_up(item));
  return Sequence{value.sequence()->kind, std::move(items), value.sequence()->text};
}

Value escaped(const Value& value) {
  if (value.string()) return escape(value);
  return value.sequence() ? Value([&] {
    List items;
    for (const Value& item : *value.list()) items.push_back(escaped(item));
    return items;
  }())
                          : value;
}

// Arguments that become part of the text.
Arguments escaped_arguments(const std::string& name, Arguments arguments) {
  if (name != "format" && name != "join" && name != "replace") return arguments;
  const std::size_t from = name == "replace" ? 1 : 0;  // what is sought stays as it is
  for (std::size_t i = from; i < arguments.positional.size(); ++i)
    arguments.positional[i] = escaped(arguments.positional[i]);
  for (auto& [key, value] : arguments.named) value = escaped(value);
  return arguments;
}

}  // namespace

Value string_method(const Value& text, const std::string& name) {
  const auto found = methods().find(name);
  if (found == methods().end()) return {};
  return Function([text, name, method = found->second](const Arguments& arguments) {
    if (!text.is_markup()) return method(*text.string(), arguments);
    return marked_up(method(*text.string(), escaped_arguments(name, arguments)));
  });
}

}  // namespace mixtape::chat
