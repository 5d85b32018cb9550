// One safetensors file: as it is, or, where the input begins with '{', a header that gets its length and
// data.
#include "fuzz/fuzz.h"
#include "mixtape/io/safetensors.h"

using namespace mixtape;

namespace {

void read_tensor(const std::string& name, const TensorView& view) {
  for (const DType wanted : {DType::f32, DType::bf16, DType::f16, DType::u32, DType::i32, DType::u8}) {
    fuzz::allow_error([&] { load(name, view, wanted, Device::cpu()); });
  }
  fuzz::allow_error([&] { check_finite(name, view); });
  fuzz::allow_error([&] { slice(view, 1, 2); });
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view input = fuzz::text_of(data, size);
  const std::string bytes = input.starts_with('{') ? fuzz::safetensors_with(input) : std::string(input);
  fuzz::allow_error([&] {
    const SafetensorsFile file = SafetensorsFile::from_bytes(std::as_bytes(std::span(bytes)), "input");
    for (const auto& [name, view] : file.tensors()) read_tensor(name, view);
  });
  return 0;
}
