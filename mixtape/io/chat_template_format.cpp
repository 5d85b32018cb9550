#include "mixtape/io/chat_template_format.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "mixtape/core/error.h"
#include "mixtape/io/chat_template_builtins.h"
#include "mixtape/io/chat_template_strings.h"
#include "mixtape/io/text_utf8.h"

namespace mixtape::chat {
namespace {

constexpr int kMaxWidth = 10000;  // of one field, also its digits

struct Field {
  std::string fill = " ";
  char align = '\0';  // < > ^ =
  char sign = '-';    // + - or a space: what goes before numbers that aren't negative
  bool alternate = false, zero = false;
  int width = 0, precision = -1;
  char group = '\0';  // , or _ between thousands
  char type = '\0';
};

bool is_decimal(char c) { return c >= '0' && c <= '9'; }

int take_number(std::string_view& text) {
  int value = 0;
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), value);
  require(parsed.ec == std::errc() && value <= kMaxWidth, "format: a width or precision beyond ", kMaxWidth);
  text.remove_prefix(static_cast<std::size_t>(parsed.ptr - text.data()));
  return value;
}

bool take(std::string_view& text, char c) {
  if (!text.starts_with(c)) return false;
  text.remove_prefix(1);
  return true;
}

bool is_align(char c) { return c == '<' || c == '>' || c == '^' || c == '='; }

// [[fill]align][sign][#][0][width][,][.precision][type]
Field parse_spec(std::string_view spec) {
  Field field;
  const std::string whole(spec);
  const std::size_t first = spec.empty() ? 0 : first_code_point(spec).size;
  if (spec.size() > first && is_align(spec[first])) {
    field.fill = spec.substr(0, first);
    field.align = spec[first];
    spec.remove_prefix(first + 1);
  } else if (!spec.empty() && is_align(spec[0])) {
    field.align = spec[0];
    spec.remove_prefix(1);
  }
  for (const char sign : {'+', '-', ' '}) {
    if (take(spec, sign)) field.sign = sign;
  }
  field.alternate = take(spec, '#');
  field.zero = take(spec, '0');
  if (!spec.empty() && is_decimal(spec[0])) field.width = take_number(spec);
  for (const char group : {',', '_'}) {
    if (take(spec, group)) field.group = group;
  }
  if (take(spec, '.')) field.precision = take_number(spec);
  if (!spec.empty()) {
    field.type = spec[0];
    spec.remove_prefix(1);
  }
  require(spec.empty(), "format: ", whole, " is no format");
  return field;
}

std::string pad(const std::string& text, const Field& field, char otherwise) {
  const auto size = static_cast<int>(count_code_points(text));
  const int missing = std::max(field.width - size, 0);
  const char align = field.align ? field.align : otherwise;
  const int left = align == '>' ? missing : align == '^' ? missing / 2 : 0;
  std::string out;
  for (int i = 0; i < left; ++i) out += field.fill;
  out += text;
  for (int i = left; i < missing; ++i) out += field.fill;
  return out;
}

// Separators between groups of digits, from the right.
std::string grouped(const std::string& digits, char separator) {
  if (separator == '\0') return digits;
  const std::size_t end = std::min(digits.find_first_not_of("0123456789"), digits.size());
  std::string out;
  for (std::size_t i = 0; i < end; ++i) {
    if (i > 0 && (end - i) % 3 == 0) out += separator;
    out += digits[i];
  }
  return out + digits.substr(end);
}

// Sign, prefix and digits of a number, filled up.
std::string number_field(bool negative, const std::string& prefix, const std::string& digits,
                         const Field& field) {
  const std::string sign = negative ? "-" : field.sign == '-' ? "" : std::string(1, field.sign);
  std::string body = grouped(digits, field.group);
  const bool zeros = field.zero && !field.align;
  if (zeros || field.align == '=') {
    const std::string fill = zeros ? "0" : field.fill;
    const auto size = sign.size() + prefix.size() + count_code_points(body);
    std::string filling;
    for (auto i = size; i < static_cast<std::size_t>(field.width); ++i) filling += fill;
    return sign + prefix + filling + body;
  }
  return pad(sign + prefix + body, field, '>');
}

std::string digits_of(std::uint64_t value, int base) {
  char text[72];
  return std::string(text, std::to_chars(text, text + sizeof text, value, base).ptr);
}

std::string integer_field(const Value& value, const Field& field) {
  const std::int64_t number = value.integer();
  const bool negative = number < 0;
  const std::uint64_t size =
      negative ? 0 - static_cast<std::uint64_t>(number) : static_cast<std::uint64_t>(number);
  const int base = field.type == 'x' || field.type == 'X' ? 16
                   : field.type == 'o'                    ? 8
                   : field.type == 'b'                    ? 2
                                                          : 10;
  std::string digits = digits_of(size, base);
  if (field.type == 'X') digits = to_upper(digits);
  if (field.precision > static_cast<int>(digits.size()))
    digits.insert(0, static_cast<std::size_t>(field.precision) - digits.size(), '0');
  const std::string prefix = field.alternate && base != 10 ? std::string("0") + field.type : "";
  return number_field(negative, prefix, digits, field);
}

std::string float_field(const Value& value, const Field& field) {
  const bool percent = field.type == '%';
  const double number = percent ? value.number() * 100 : value.number();
  const char type = percent ? 'f' : field.type ? field.type : 'g';
  const int precision = field.precision < 0 ? 6 : field.precision;
  const std::string pattern = std::string(field.alternate ? "%#.*" : "%.*") + type;
  std::string digits(
      static_cast<std::size_t>(std::snprintf(nullptr, 0, pattern.c_str(), precision, std::fabs(number))),
      '\0');
  std::snprintf(digits.data(), digits.size() + 1, pattern.c_str(), precision, std::fabs(number));
  const bool as_printed = field.type == '\0';  // with a point, as without a format
  if (as_printed && std::isfinite(number) && digits.find_first_of(".e") == digits.npos) digits += ".0";
  if (percent) digits += '%';
  return number_field(std::signbit(number) && !std::isnan(number), "", digits, field);
}

bool is_in(char c, std::string_view set) { return c != '\0' && set.find(c) != set.npos; }

std::string text_field(std::string text, const Field& field) {
  if (field.precision >= 0) {
    std::size_t end = 0;
    for (int i = 0; i < field.precision && end < text.size(); ++i)
      end += first_code_point(std::string_view(text).substr(end)).size;
    text.resize(end);
  }
  return pad(text, field, '<');
}

// format(value, spec)
std::string formatted(const Value& value, const std::string& spec) {
  if (spec.empty()) return value.text();
  const Field field = parse_spec(spec);
  if (value.is_number() && !(value.is<bool>() && field.type == '\0')) {
    const bool integer = !value.is<double>();
    if (is_in(field.type, "eEfFgG%")) return float_field(value, field);
    if (integer && field.type == 'c')
      return text_field(to_utf8(static_cast<char32_t>(value.integer())), field);
    if (integer && (field.type == '\0' || is_in(field.type, "dnxXob"))) return integer_field(value, field);
    if (!integer && field.type == '\0') {
      if (field.precision >= 0) return float_field(value, field);
      const std::string text = value.text();
      const bool negative = text.starts_with('-');
      return number_field(negative, "", text.substr(negative), field);
    }
  } else if (value.string() && (field.type == '\0' || field.type == 's')) {
    return text_field(*value.string(), field);
  }
  fail(ErrorCode::invalid_argument, "format: ", spec, " doesn't fit ", value.kind());
}

class PercentFormat {
 public:
  PercentFormat(const std::string& pattern, const Value& values) : rest_(pattern), values_(values) {
    const bool tuple = values.sequence() && values.sequence()->kind == Sequence::Kind::tuple;
    positional_ = tuple ? *values.list() : List{values};
    counted_ = tuple || !(values.dict() || values.sequence());
  }

  std::string run() {
    std::string out;
    while (!rest_.empty()) {
      const std::size_t plain = std::min(rest_.find('%'), rest_.size());
      out += rest_.substr(0, plain);
      rest_.remove_prefix(plain);
      if (!rest_.empty()) out += conversion();
    }
    require(next_ >= positional_.size() || named_ || !counted_, "%: not all values were used");
    return out;
  }

 private:
  const Value& next() {
    require(next_ < positional_.size(), "%: not enough values");
    return positional_[next_++];
  }

  Value named() {
    const std::size_t end = rest_.find(')');
    require(end != rest_.npos && values_.dict(), "%: a name needs a dict");
    const Value* found = values_.dict()->find(rest_.substr(1, end - 1));
    require(found, "%: the dict has no ", rest_.substr(1, end - 1));
    rest_.remove_prefix(end + 1);
    named_ = true;
    return *found;
  }

  int width() {
    if (take(rest_, '*')) return static_cast<int>(std::clamp<std::int64_t>(next().integer(), 0, kMaxWidth));
    return !rest_.empty() && is_decimal(rest_[0]) ? take_number(rest_) : 0;
  }

  std::string conversion() {
    rest_.remove_prefix(1);
    if (take(rest_, '%')) return "%";
    std::optional<Value> value;
    if (rest_.starts_with('(')) value = named();
    Field field;
    field.align = '\0';
    for (bool flag = true; flag;) {
      flag = true;
      if (take(rest_, '-')) {
        field.align = '<';
      } else if (take(rest_, '0')) {
        field.zero = true;
      } else if (take(rest_, '+')) {
        field.sign = '+';
      } else if (take(rest_, '#')) {
        field.alternate = true;
      } else if (rest_.starts_with(' ')) {
        take(rest_, ' ');
        if (field.sign == '-') field.sign = ' ';
      } else {
        flag = false;
      }
    }
    field.width = width();
    if (take(rest_, '.')) field.precision = width();
    require(!rest_.empty(), "%: a conversion that does not end");
    field.type = rest_[0];
    rest_.remove_prefix(1);
    return converted(value ? *value : next(), field);
  }

  static std::string converted(const Value& value, Field field) {
    if (!field.align && is_in(field.type, "srac")) field.align = '>';
    if (is_in(field.type, "sra")) return text_field(field.type == 's' ? value.text() : value.repr(), field);
    if (is_in(field.type, "diu")) {
      require(value.is_number(), "%: ", field.type, " needs a number, found ", value.kind());
      field.type = 'd';
      return integer_field(truncate(value), field);
    }
    if (is_in(field.type, "xXo")) return integer_field(value, field);
    if (is_in(field.type, "eEfFgG")) return float_field(value, field);
    require(field.type == 'c', "%: ", std::string(1, field.type), " is no conversion");
    return text_field(value.string() ? *value.string() : to_utf8(static_cast<char32_t>(value.integer())),
                      field);
  }

  std::string_view rest_;
  const Value& values_;
  List positional_;
  std::size_t next_ = 0;
  bool named_ = false, counted_ = true;
};

class BraceFormat {
 public:
  explicit BraceFormat(const Arguments& arguments) : arguments_(arguments) {}

  std::string run(std::string_view rest, int depth = 0) {
    require(depth < 3, "format: fields nested too deeply");
    std::string out;
    while (!rest.empty()) {
      const char c = rest[0];
      rest.remove_prefix(1);
      if ((c == '{' || c == '}') && take(rest, c)) {
        out += c;
      } else if (c == '{') {
        out += field(take_field(rest), depth);
      } else {
        require(c != '}', "format: a single } ");
        out += c;
      }
    }
    return out;
  }

 private:
  // Up to the brace that closes the field.
  static std::string_view take_field(std::string_view& rest) {
    int open = 1;
    for (std::size_t at = 0; at < rest.size(); ++at) {
      open += rest[at] == '{' ? 1 : rest[at] == '}' ? -1 : 0;
      if (open > 0) continue;
      const std::string_view found = rest.substr(0, at);
      rest.remove_prefix(at + 1);
      return found;
    }
    fail(ErrorCode::invalid_argument, "format: a single {");
  }

  std::string field(std::string_view text, int depth) {
    const std::size_t end = std::min(text.find_first_of("!:"), text.size());
    Value found = value(text.substr(0, end));
    text.remove_prefix(end);
    if (text.starts_with('!')) {
      require(text.size() > 1 && (text[1] == 's' || text[1] == 'r'), "format: expected !s or !r");
      found = text[1] == 's' ? Value(found.text()) : Value(found.repr());
      text.remove_prefix(2);
    }
    take(text, ':');
    return formatted(found, run(text, depth + 1));
  }

  // A number or name, then .attribute and [key].
  Value value(std::string_view path) {
    const std::size_t end = std::min(path.find_first_of(".["), path.size());
    Value found = argument(path.substr(0, end));
    path.remove_prefix(end);
    while (!path.empty()) {
      const bool key = path[0] == '[';
      path.remove_prefix(1);
      const std::size_t stop = std::min(key ? path.find(']') : path.find_first_of(".["), path.size());
      const std::string name(path.substr(0, stop));
      const bool number = key && !name.empty() && std::all_of(name.begin(), name.end(), is_decimal);
      found = find_item(found, number ? parse_integer(name, Value()) : Value(name));
      require(!found.is_undefined(), "format: there is no ", name);
      path.remove_prefix(std::min(stop + key, path.size()));
    }
    return found;
  }

  Value argument(std::string_view name) {
    if (!name.empty() && !is_decimal(name[0])) {
      for (const auto& [known, value] : arguments_.named) {
        if (known == name) return value;
      }
      fail(ErrorCode::invalid_argument, "format: there is no argument ", name);
    }
    const std::size_t at = name.empty() ? next_++ : static_cast<std::size_t>(take_number(name));
    require(at < arguments_.positional.size(), "format: there is no argument ", at);
    return arguments_.positional[at];
  }

  const Arguments& arguments_;
  std::size_t next_ = 0;
};

}  // namespace

std::string format_percent(const std::string& pattern, const Value& values) {
  return PercentFormat(pattern, values).run();
}

std::string format_braces(const std::string& pattern, const Arguments& arguments) {
  return BraceFormat(arguments).run(pattern);
}

}  // namespace mixtape::chat
