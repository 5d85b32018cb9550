// Rows that are read twice: for a sum, and to write the result. for_each_row reads a row's successor for its
// sum while it writes the row, so that memory is read and written at the same time.
//
//   template <class T>
//   struct SoftmaxBackward {  // one per kernel, for row r and column c
//     void add(std::int64_t r, std::size_t c, auto step, RowSum& sum) const;  // the first pass
//     void settle(std::int64_t r, float sum);                                 // between them
//     void write(std::int64_t r, std::size_t c, auto step) const;             // the second
//   };

#if defined(MIXTAPE_BACKEND_CPU_ROWS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MIXTAPE_BACKEND_CPU_ROWS_INL_H_
#undef MIXTAPE_BACKEND_CPU_ROWS_INL_H_
#else
#define MIXTAPE_BACKEND_CPU_ROWS_INL_H_
#endif

#include "mixtape/backend/cpu/parallel.h"
#include "mixtape/backend/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace mixtape::HWY_NAMESPACE {

// A sum in four strands that take turns.
class RowSum {
 public:
  HWY_INLINE RowSum() : s0_(zero()), s1_(zero()), s2_(zero()), s3_(zero()) {}
  HWY_INLINE void add(Floats v) { turn(hn::Add(s0_, v)); }
  HWY_INLINE void add_product(Floats a, Floats b) { turn(hn::MulAdd(a, b, s0_)); }
  HWY_INLINE float total() const { return sum_lanes(hn::Add(hn::Add(s0_, s2_), hn::Add(s1_, s3_))); }

 private:
  HWY_INLINE void turn(Floats grown) {
    s0_ = s1_;
    s1_ = s2_;
    s2_ = s3_;
    s3_ = grown;
  }
  Floats s0_, s1_, s2_, s3_;
};

template <class Kernel>
HWY_INLINE RowSum sum_row(const Kernel& kernel, std::int64_t r, std::size_t cols, bool streams) {
  RowSum sum;
  std::size_t c = 0;
  for (const WholeStep step{streams}; c + lanes() <= cols; c += lanes()) kernel.add(r, c, step, sum);
  if (c < cols) kernel.add(r, c, LastStep{cols - c}, sum);
  return sum;
}

template <class Kernel>
HWY_INLINE void write_row(const Kernel& kernel, std::int64_t r, std::size_t cols, bool streams) {
  std::size_t c = 0;
  for (const WholeStep step{streams}; c + lanes() <= cols; c += lanes()) kernel.write(r, c, step);
  if (c < cols) kernel.write(r, c, LastStep{cols - c});
}

// Writes row r; returns the sum of the next.
template <class Kernel>
HWY_INLINE RowSum write_row_and_sum_next(const Kernel& kernel, std::int64_t r, std::size_t cols) {
  RowSum sum;
  std::size_t c = 0;
  for (constexpr WholeStep step{true}; c + lanes() <= cols; c += lanes()) {
    kernel.add(r + 1, c, step, sum);
    kernel.write(r, c, step);
  }
  if (c < cols) {
    kernel.add(r + 1, c, LastStep{cols - c}, sum);
    kernel.write(r, c, LastStep{cols - c});
  }
  return sum;
}

// Rows [begin, end); `streams` as for for_each_step: only then a row and its successor are worked on
// together. Neither changes a row's bits.
template <class Kernel>
HWY_INLINE void for_each_row(std::int64_t begin, std::int64_t end, std::size_t cols, bool streams,
                             Kernel kernel) {
  RowSum sum = sum_row(kernel, begin, cols, streams);
  for (std::int64_t r = begin; r < end; ++r) {
    kernel.settle(r, sum.total());
    if (streams && r + 1 < end) {
      sum = write_row_and_sum_next(kernel, r, cols);
      continue;
    }
    write_row(kernel, r, cols, streams);
    if (r + 1 < end) sum = sum_row(kernel, r + 1, cols, streams);
  }
}

// All rows of a kernel that has its own `cols`, on all threads.
template <class Kernel>
void rows_of(std::int64_t begin, std::int64_t end, bool streams, const Kernel& kernel) {
  for_each_row(begin, end, static_cast<std::size_t>(kernel.cols), streams, kernel);
}
template <class Kernel>
void parallel_rows(std::int64_t rows, bool streams, const Kernel& kernel) {
  cpu::parallel_for(rows, cpu::neighbour_grain(rows, kernel.cols),
                    [&](std::int64_t begin, std::int64_t end) { rows_of(begin, end, streams, kernel); });
}

}  // namespace mixtape::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif  // include guard per target
