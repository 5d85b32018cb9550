#include <algorithm>
#include <cmath>

#include "mixtape/core/error.h"
#include "mixtape/io/chat_template_builtins.h"
#include "mixtape/io/chat_template_format.h"

namespace mixtape::chat {
namespace {

constexpr std::size_t kMaxRepeated = 1u << 24;  // bytes or elements

std::size_t repeats(const Value& count, std::size_t size) {
  const std::size_t times = static_cast<std::size_t>(std::max<std::int64_t>(count.integer(), 0));
  require(size == 0 || times <= kMaxRepeated / size, "a value repeated ", times, " times is too large");
  return times;
}

Value repeat(const Value& value, const Value& count) {
  if (value.string()) {
    std::string out;
    for (std::size_t i = repeats(count, value.string()->size()); i > 0; --i) out += *value.string();
    return value.is_markup() ? Value(Markup{out}) : Value(out);
  }
  List out;
  for (std::size_t i = repeats(count, value.list()->size()); i > 0; --i) {
    out.insert(out.end(), value.list()->begin(), value.list()->end());
  }
  return Sequence{value.sequence()->kind, std::move(out), ""};
}

bool is_joined(const Value& value) {
  return value.sequence() &&
         (value.sequence()->kind == Sequence::Kind::list || value.sequence()->kind == Sequence::Kind::tuple);
}

// What goes into a markup is escaped.
Value percent(const Value& pattern, const Value& values) {
  if (!pattern.is_markup()) return format_percent(*pattern.string(), values);
  const auto escaped = [](const Value& value) { return value.is_number() ? value : Value(escape(value)); };
  if (!values.sequence())
    return Markup{format_percent(*pattern.string(), values.dict() ? values : escaped(values))};
  List items;
  for (const Value& item : *values.list()) items.push_back(escaped(item));
  return Markup{format_percent(*pattern.string(), Sequence{values.sequence()->kind, std::move(items), ""})};
}

Value add_strings(const Value& left, const Value& right) {
  if (!left.is_markup() && !right.is_markup()) return *left.string() + *right.string();
  return Markup{escape(left).text + escape(right).text};
}

Value integer_operator(char op, std::int64_t a, std::int64_t b) {
  std::int64_t value = 0;
  bool overflow = false;
  if (op == '+') {
    overflow = __builtin_add_overflow(a, b, &value);
  } else if (op == '-') {
    overflow = __builtin_sub_overflow(a, b, &value);
  } else if (op == '*') {
    overflow = __builtin_mul_overflow(a, b, &value);
  } else {
    require(b != 0, "division by zero");
    overflow = a == INT64_MIN && b == -1;
    if (!overflow) {
      const std::int64_t rest = a % b != 0 && (a % b < 0) != (b < 0) ? a % b + b : a % b;
      value = op == '%' ? rest : (a - rest) / b;
    }
  }
  require(!overflow, "an integer beyond 64 bits");
  return value;
}

Value power(const Value& a, const Value& b) {
  if (!a.is_integer() || !b.is_integer() || b.integer() < 0) return std::pow(a.number(), b.number());
  require(b.integer() < 64, "an exponent of ", b.integer());
  Value result = std::int64_t{1};
  for (std::int64_t i = 0; i < b.integer(); ++i)
    result = integer_operator('*', result.integer(), a.integer());
  return result;
}

Value float_operator(char op, double a, double b) {
  if (op == '+') return a + b;
  if (op == '-') return a - b;
  if (op == '*') return a * b;
  require(b != 0, "division by zero");
  double rest = std::fmod(a, b);
  if (rest != 0 && (rest < 0) != (b < 0)) rest += b;
  return op == '%' ? rest : std::floor((a - rest) / b + 0.5);
}

}  // namespace

Value apply_operator(const std::string& op, const Value& left, const Value& right) {
  if (op == "~") return left.text() + right.text();
  if (op == "+" && left.string() && right.string()) return add_strings(left, right);
  if (op == "%" && left.string()) return percent(left, right);
  if (op == "+" && is_joined(left) && is_joined(right) && left.sequence()->kind == right.sequence()->kind) {
    List all = *left.list();
    all.insert(all.end(), right.list()->begin(), right.list()->end());
    return Sequence{left.sequence()->kind, std::move(all), ""};
  }
  if (op == "*" && (left.string() || is_joined(left))) return repeat(left, right);
  if (op == "*" && (right.string() || is_joined(right))) return repeat(right, left);
  require(left.is_number() && right.is_number(), "cannot apply ", op, " to ", left.kind(), " and ",
          right.kind());
  if (op == "**") return power(left, right);
  if (op == "/") {
    require(right.number() != 0, "division by zero");
    return left.number() / right.number();
  }
  const bool integers = !left.is<double>() && !right.is<double>();
  if (integers) return integer_operator(op[0], left.integer(), right.integer());
  return float_operator(op[0], left.number(), right.number());
}

}  // namespace mixtape::chat
