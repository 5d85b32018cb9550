// Reads the keys of one JSON object: config.json, or a part of it. A null counts as absent.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>

#include "mixtape/core/error.h"

namespace mixtape {

// Every message begins with `where`. Throws format for a value that is not what the method's name says, and
// for a missing key without a fallback.
class ConfigReader {
 public:
  static constexpr std::int64_t kMaxSize =
      std::numeric_limits<std::int32_t>::max();  // products of two stay in 63 bits

  ConfigReader(const nlohmann::json& object, const std::string& where) : object_(object), where_(where) {
    if (!object.is_object()) bad("found ", object.type_name(), ", expected an object");
  }

  const nlohmann::json* find(const char* key) const {
    const auto found = object_.find(key);
    return found == object_.end() || found->is_null() ? nullptr : &*found;
  }
  bool has(const char* key) const { return find(key) != nullptr; }

  // There, and null: where that means something else than absent.
  bool is_null(const char* key) const {
    const auto found = object_.find(key);
    return found != object_.end() && found->is_null();
  }

  std::int64_t size(const char* key) const { return range(key, at(key), 1, kMaxSize); }
  std::int64_t size(const char* key, std::int64_t fallback) const { return has(key) ? size(key) : fallback; }
  std::int64_t range(const char* key, const nlohmann::json& value, std::int64_t low,
                     std::int64_t high) const {
    const bool inside = value.is_number_integer() && value >= low && value <= high;
    if (!inside) bad(key, " is ", value.dump(), ", expected a whole number from ", low, " to ", high);
    return value.get<std::int64_t>();
  }
  double positive(const char* key) const {
    const nlohmann::json& value = at(key);
    const double number = value.is_number() ? value.get<double>() : 0.0;
    if (!(number > 0.0 && std::isfinite(number)))
      bad(key, " is ", value.dump(), ", expected a number above 0");
    return number;
  }
  double positive(const char* key, double fallback) const { return has(key) ? positive(key) : fallback; }
  bool boolean(const char* key, bool fallback) const {
    const nlohmann::json* value = find(key);
    if (value == nullptr) return fallback;
    if (!value->is_boolean()) bad(key, " is ", value->dump(), ", expected true or false");
    return value->get<bool>();
  }
  std::string text(const char* key) const {
    const nlohmann::json& value = at(key);
    if (!value.is_string()) bad(key, " is ", value.dump(), ", expected a string");
    return value.get<std::string>();
  }
  const nlohmann::json& at(const char* key) const {
    const nlohmann::json* value = find(key);
    if (value == nullptr) bad("has no ", key);
    return *value;
  }

  void refuse_true(const char* key) const {
    if (boolean(key, false)) unsupported(key, " = true");
  }
  const std::string& where() const { return where_; }

  template <class... Parts>
  [[noreturn]] void bad(const Parts&... parts) const {
    fail(ErrorCode::format, where_, ": ", parts...);
  }
  template <class... Parts>
  [[noreturn]] void unsupported(const Parts&... parts) const {
    fail(ErrorCode::not_supported, where_, ": ", parts..., " is not supported yet");
  }

 private:
  const nlohmann::json& object_;
  const std::string& where_;
};

}  // namespace mixtape
