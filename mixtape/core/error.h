// The one exception type of the library, and the helper that builds its messages.
#pragma once

#include <concepts>
#include <new>
#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>

namespace mixtape {

enum class ErrorCode {
  invalid_argument,
  index_out_of_range,
  out_of_memory,
  not_supported,
  device,
  io,
  format,
  interrupted,  // the caller asked to stop
};

const char* name(ErrorCode code);

// Messages name the op or file, the value found and the value wanted.
class Error : public std::runtime_error {
 public:
  Error(ErrorCode code, const std::string& message) : std::runtime_error(message), code_(code) {}
  ErrorCode code() const { return code_; }

 private:
  ErrorCode code_;
};

namespace parts {

template <class T>
concept Text = std::convertible_to<const T&, std::string_view>;
// Digits, and not a character or a truth value.
template <class T>
concept Count = std::integral<T> && sizeof(T) > 1;
template <class T>
concept Named = std::is_enum_v<T> && requires(T v) {
  { name(v) } -> std::same_as<const char*>;
};
template <class T>
concept Plain = Text<T> || Count<T> || Named<T>;

template <Plain T>
void append(std::string& text, const T& part) {
  if constexpr (Text<T>) {
    text += std::string_view(part);
  } else if constexpr (Named<T>) {
    text += name(part);
  } else {
    text += std::to_string(part);
  }
}

}  // namespace parts

// Concatenates anything that can be streamed: str("x is ", 3) == "x is 3". Of texts, whole numbers and named values
// without a stream, which takes ten times as long: kernels' names are made so.
template <class... Parts>
std::string str(const Parts&... all) {
  if constexpr ((parts::Plain<Parts> && ...)) {
    std::string text;
    (parts::append(text, all), ...);
    return text;
  } else {
    std::ostringstream out;
    (out << ... << all);
    if (out.bad()) throw std::bad_alloc();  // a stream swallows it
    return out.str();
  }
}

template <class... Parts>
[[noreturn]] void fail(ErrorCode code, const Parts&... parts) {
  throw Error(code, str(parts...));
}

// Throws invalid_argument with the concatenated parts unless `condition` holds.
template <class... Parts>
void require(bool condition, const Parts&... parts) {
  if (!condition) fail(ErrorCode::invalid_argument, parts...);
}

}  // namespace mixtape
