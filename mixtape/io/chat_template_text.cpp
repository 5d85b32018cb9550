// Values as text: str(), repr() and json.dumps() of Python.
#include <utf8proc.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>

#include "mixtape/core/error.h"
#include "mixtape/io/chat_template_value.h"
#include "mixtape/io/text_utf8.h"

namespace mixtape::chat {
namespace {

// The shortest digits that give the number back; with an exponent below 1e-4 and from 1e16 on.
std::string float_text(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  const double size = std::fabs(value);
  const bool fixed = size == 0 || (size >= 1e-4 && size < 1e16);
  char text[64];
  const auto end = std::to_chars(text, text + sizeof text, value,
                                 fixed ? std::chars_format::fixed : std::chars_format::scientific);
  std::string out(text, end.ptr);
  return fixed && out.find('.') == out.npos ? out + ".0" : out;
}

std::string json_string(const std::string& text, bool ascii) {
  return nlohmann::json(text).dump(-1, ' ', ascii, nlohmann::json::error_handler_t::replace);
}

bool is_printable(char32_t c) {
  switch (utf8proc_category(static_cast<utf8proc_int32_t>(c))) {
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
      return false;
    case UTF8PROC_CATEGORY_ZS:
      return c == ' ';
    default:
      return true;
  }
}

std::string hex_escape(char32_t c) {
  char text[16];
  const char* format = c < 0x100 ? "\\x%02x" : c < 0x10000 ? "\\u%04x" : "\\U%08x";
  std::snprintf(text, sizeof text, format, static_cast<unsigned>(c));
  return text;
}

// Python prefers single quotes.
std::string quoted_like_python(std::string_view text) {
  const char quote = text.find('\'') != text.npos && text.find('"') == text.npos ? '"' : '\'';
  std::string out(1, quote);
  for (; !text.empty(); text.remove_prefix(first_code_point(text).size)) {
    const CodePoint c = first_code_point(text);
    if (c.value == U'\n') {
      out += "\\n";
    } else if (c.value == U'\r') {
      out += "\\r";
    } else if (c.value == U'\t') {
      out += "\\t";
    } else if (!is_printable(c.value)) {
      out += hex_escape(c.value);
    } else {
      if (c.value == static_cast<char32_t>(quote) || c.value == U'\\') out += '\\';
      out += text.substr(0, c.size);
    }
  }
  return out + quote;
}

std::string list_text(const List& items) {
  std::string out;
  for (const Value& item : items) out += (out.empty() ? "" : ", ") + item.repr();
  return out;
}

std::string sequence_text(const Sequence& s) {
  using Kind = Sequence::Kind;
  require(s.kind != Kind::generator, "a generator has no text; the filter list makes a list of it");
  if (s.kind == Kind::range) return s.text;
  if (s.kind == Kind::list) return '[' + list_text(s.items) + ']';
  if (s.kind == Kind::view) return s.text + "([" + list_text(s.items) + "])";
  return '(' + list_text(s.items) + (s.items.size() == 1 ? ",)" : ")");
}

class JsonWriter {
 public:
  explicit JsonWriter(const JsonStyle& style) : style_(style) {}

  std::string out;

  void write(const Value& value, int depth = 1) {
    if (value.string()) {
      out += json_string(*value.string(), style_.ascii);
    } else if (value.is_none() || value.is<bool>() || value.is_number()) {
      out += scalar(value);
    } else if (is_array(value)) {
      brackets('[', ']', depth, value.list()->size(),
               [&](std::size_t i) { write((*value.list())[i], depth + 1); });
    } else {
      require(value.dict() && !value.mutable_namespace(), "tojson: JSON has no form of ", value.kind());
      write_dict(*value.dict(), depth);
    }
  }

 private:
  static bool is_array(const Value& value) {
    using Kind = Sequence::Kind;
    const Sequence* s = value.sequence();
    return s && (s->kind == Kind::list || s->kind == Kind::tuple || s->kind == Kind::group);
  }

  static std::string scalar(const Value& value) {
    if (value.is_none()) return "null";
    if (value.is<bool>()) return value.truthy() ? "true" : "false";
    if (!value.is<double>() || std::isfinite(value.number())) return value.text();
    return std::isnan(value.number()) ? "NaN" : value.number() < 0 ? "-Infinity" : "Infinity";
  }

  static std::string key_text(const Value& key) {
    if (key.string()) return *key.string();
    require(key.is_none() || key.is<bool>() || key.is_number(), "tojson: a key is ", key.kind());
    return scalar(key);
  }

  void write_dict(const Dict& dict, int depth) {
    auto entries = dict.entries;
    if (style_.sorted)
      std::stable_sort(entries.begin(), entries.end(),
                       [](auto& a, auto& b) { return less(a.first, b.first); });
    brackets('{', '}', depth, entries.size(), [&](std::size_t i) {
      out += json_string(key_text(entries[i].first), style_.ascii) + style_.key_separator;
      write(entries[i].second, depth + 1);
    });
  }

  void new_line(int depth) {
    if (style_.one_line) return;
    out += '\n';
    for (; depth > 0; --depth) out += style_.indent;
  }

  template <class Item>
  void brackets(char open, char close, int depth, std::size_t count, Item item) {
    out += open;
    for (std::size_t i = 0; i < count; ++i) {
      if (i > 0) out += style_.item_separator;
      new_line(depth);
      item(i);
    }
    if (count > 0) new_line(depth - 1);
    out += close;
  }

  const JsonStyle& style_;
};

}  // namespace

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
  if (is_markup()) return "Markup(" + quoted_like_python(*string()) + ")";
  if (string()) return quoted_like_python(*string());
  if (sequence()) return sequence_text(*sequence());
  require(dict() && !mutable_namespace(), kind(), " has no text");
  std::string out;
  for (const auto& [key, item] : dict()->entries) {
    out += (out.empty() ? "" : ", ") + key.repr() + ": " + item.repr();
  }
  return '{' + out + '}';
}

std::string Value::json(const JsonStyle& style) const {
  JsonWriter writer(style);
  writer.write(*this);
  return std::move(writer.out);
}

Markup escape(const Value& text) {
  if (text.is_markup()) return {*text.string()};
  std::string out;
  for (const char c : text.text()) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '\'':
        out += "&#39;";
        break;
      case '"':
        out += "&#34;";
        break;
      default:
        out += c;
    }
  }
  return {out};
}

}  // namespace mixtape::chat
