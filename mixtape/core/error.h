// The one exception type of the library, and the helper that builds its messages.
#pragma once

#include <new>
#include <sstream>
#include <stdexcept>
#include <string>

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

// Concatenates anything that can be streamed: str("x is ", 3) == "x is 3".
template <class... Parts>
std::string str(const Parts&... parts) {
  std::ostringstream out;
  (out << ... << parts);
  if (out.bad()) throw std::bad_alloc();  // a stream swallows it
  return out.str();
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
