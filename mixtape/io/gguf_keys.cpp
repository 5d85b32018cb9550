#include "mixtape/io/gguf_keys.h"

#include <charconv>
#include <cmath>

namespace mixtape {

double shortest_decimal(float value) {
  char text[64];
  const auto written = std::to_chars(text, text + sizeof text, value);
  double shortest = 0;
  std::from_chars(text, written.ptr, shortest);
  return shortest;
}

double GgufKeys::number(std::string_view key) const {
  const double exact = file.number(full(key));
  if (!std::isfinite(exact) || exact <= 0) fail_value(key, exact, "a positive number");
  const bool is_f32 = file.find(full(key))->type == GgufValueType::f32;
  return is_f32 ? shortest_decimal(static_cast<float>(exact)) : exact;
}

}  // namespace mixtape
