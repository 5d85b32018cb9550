#include "mixtape/autograd/item.h"

namespace mixtape {
namespace {

template <class T>
double only(const Buffer& x) {
  const T value = x.to_vector<T>().front();
  if constexpr (!std::is_integral_v<T>) {
    return static_cast<double>(static_cast<float>(value));
  } else {
    return static_cast<double>(value);
  }
}

}  // namespace

double item(const Var& x) {
  require(x.value() && x.value().numel() == 1, "item: x is ", x.value(), ", expected one element");
  x.tape().encoder().commit_and_wait();
  switch (x.dtype()) {
    case DType::f32:
      return only<float>(x.value());
    case DType::bf16:
      return only<bf16>(x.value());
    case DType::f16:
      return only<f16>(x.value());
    case DType::i32:
      return only<std::int32_t>(x.value());
    case DType::u32:
      return only<std::uint32_t>(x.value());
    case DType::u8:
      return only<std::uint8_t>(x.value());
    case DType::u16:
      return only<std::uint16_t>(x.value());
  }
  return 0.0;
}

}  // namespace mixtape
