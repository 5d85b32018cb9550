#include "mixtape/io/gguf_keys.h"

#include <charconv>
#include <cmath>

namespace mixtape {

double GgufKeys::number(std::string_view key) const {
  const double exact = file.number(full(key));
  if (!std::isfinite(exact) || exact <= 0) fail_value(key, exact, "a positive number");
  char text[64];
  const auto written = std::to_chars(text, text + sizeof text, static_cast<float>(exact));
  double shortest = 0;
  std::from_chars(text, written.ptr, shortest);
  return file.find(full(key))->type == GgufValueType::f32 ? shortest : exact;
}

}  // namespace mixtape
