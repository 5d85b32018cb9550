// The cases that the functions of one and of two elements are checked with.
#pragma once

#include <vector>

#include "mixtape/ops/elementwise/elementwise.h"
#include "mixtape/testing/op_check.h"

namespace mixtape {

#define MIXTAPE_ENUMERATOR(name) Unary::name,
inline constexpr Unary kUnaries[] = {MIXTAPE_UNARY_OPS(MIXTAPE_ENUMERATOR)};
#undef MIXTAPE_ENUMERATOR
#define MIXTAPE_ENUMERATOR(name) Binary::name,
inline constexpr Binary kBinaries[] = {MIXTAPE_BINARY_OPS(MIXTAPE_ENUMERATOR)};
#undef MIXTAPE_ENUMERATOR

// The contract's bound of y where |x| is at most max_x.
testing::Bound unary_bound(Unary op, double max_x);
// `factor` is scale's factor or softcap's cap.
testing::OpCheck unary_check(Unary op, DType dtype, const Shape& shape, float factor = 1.75f);
testing::OpCheck binary_check(Binary op, DType dtype, const Shape& a, const Shape& b, std::uint64_t seed = 9);
// Those that `mixtape gradcheck` runs.
std::vector<testing::OpCheck> unary_checks(Unary op, DType dtype);
std::vector<testing::OpCheck> binary_checks(Binary op, DType dtype);

}  // namespace mixtape
