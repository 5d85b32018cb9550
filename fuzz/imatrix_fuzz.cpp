// An importance matrix of either form; what was read can be written.
#include "fuzz/fuzz.h"
#include "mixtape/io/imatrix.h"

using namespace mixtape;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const fuzz::Files files;
  const auto path = files.write("input", fuzz::text_of(data, size));
  fuzz::allow_error([&] { imatrix_bytes(read_imatrix(path)); });
  return 0;
}
