// A text, and the same as lines of JSON.
#include "fuzz/fuzz.h"
#include "mixtape/io/text.h"

using namespace mixtape;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const fuzz::Files files;
  const auto path = files.write("input.jsonl", fuzz::text_of(data, size));
  fuzz::allow_error([&] { read_jsonl(path); });
  fuzz::allow_error([&] { read_utf8_file(path); });
  return 0;
}
