// A library that may or may not be on this machine, found at run time.
#pragma once

#include <initializer_list>
#include <string>

namespace mixtape::cuda {

class SharedLibrary {
 public:
  // Opens the first of `names` that is there; stays closed where none is.
  explicit SharedLibrary(std::initializer_list<const char*> names);
  explicit operator bool() const { return handle_ != nullptr; }
  const std::string& error() const { return error_; }  // the loader's words
  // Null where the library has no such function.
  void* find(const char* symbol) const;

 private:
  void* handle_ = nullptr;  // never closed: its threads may outlive us
  std::string error_;
};

}  // namespace mixtape::cuda
