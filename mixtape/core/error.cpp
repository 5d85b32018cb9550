#include "mixtape/core/error.h"

namespace mixtape {

const char* name(ErrorCode code) {
  switch (code) {
    case ErrorCode::invalid_argument:
      return "invalid_argument";
    case ErrorCode::index_out_of_range:
      return "index_out_of_range";
    case ErrorCode::out_of_memory:
      return "out_of_memory";
    case ErrorCode::not_supported:
      return "not_supported";
    case ErrorCode::device:
      return "device";
    case ErrorCode::io:
      return "io";
    case ErrorCode::format:
      return "format";
    case ErrorCode::interrupted:
      return "interrupted";
  }
  return "unknown";
}

}  // namespace mixtape
