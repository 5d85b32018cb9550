// Which kernel runs for loss and gradient together, the first that fits:
//   kl_div_forward_backward_*_cluster<n>_<packs>  kl_div_cuda.cu: n blocks hold both rows, which are read
//       once. Hopper; rows of one dtype, of whole, aligned 16-byte packs, up to 8 blocks of 20480 elements.
//   kl_div_forward_*, kl_div_backward_*  kl_div_gpu.cu: two launches, rows are read twice. Everything else,
//       and where only one of the two is asked for.
// Over the teacher's K largest there is one kernel for each of the two, kl_div_top_k_gpu.cu: the student's
// row beside the K entries is read for a rest bucket alone.
#include "mixtape/backend/gpu/logits_rows.h"
#include "mixtape/backend/gpu/rows.h"
#include "mixtape/backend/gpu/variants.h"
#include "mixtape/ops/kl_div/kl_div_params.h"

namespace mixtape::gpu {
namespace {

// The kernel of the dispatch for its teacher's and its student's dtype.
std::string typed(const Call& call, const char* kernel) {
  return str(kernel, "_", call.dtype(0), "_", call.dtype(1));
}

void forward(const Call& call) {
  const auto& p = call.params<KlDivParams>();
  call.launch(typed(call, "kl_div_forward"), grid_of(p.rows), row_threads(p.cols, DType::bf16, 512), p,
              {call.read(0), call.read(1), call.write(0), call.write(1)});
}

void backward(const Call& call) {
  const auto& p = call.params<KlDivParams>();
  call.launch(typed(call, "kl_div_backward"), grid_of(p.rows * row_blocks(p.cols, DType::bf16, 2)),
              row_threads(p.cols, DType::bf16, 256), p,
              {call.read(0), call.read(1), call.read(2), call.read(3), call.write(0)});
}

// In one launch where a cluster can hold both rows, else forward and backward.
void both(const Call& call) {
  const auto& p = call.params<KlDivParams>();
  const Buffer &teacher = call.read(0), &student = call.read(1), &dloss = call.read(2);
  const Buffer &loss = call.write(0), &dstudent = call.write(1);
  const ClusterShape shape = cluster_shape(p.rows, p.cols, size_of(student.dtype()));
  const std::string kernel = call.dispatch.kernel + shape.suffix();
  const char* obstacle = shape.size == 0                      ? "a row is too wide"
                         : teacher.dtype() != student.dtype() ? "the rows' dtypes differ"
                         : !rows_are_packs({&teacher, &student, &dstudent})
                             ? "rows are no whole, aligned packs of 16 bytes"
                         : !call.queue.has(kernel) ? "this card has none"
                                                   : nullptr;
  if (obstacle == nullptr) {
    call.launch(kernel, shape.grid, shape.block, p, {teacher, student, dloss, loss, dstudent},
                2 * shape.block_bytes());
    return;
  }
  trace_pass_over(call.dispatch.kernel + "_cluster*", obstacle);
  const auto stats = call.queue.scratch(static_cast<std::size_t>(p.rows * kKlStats) * sizeof(float));
  call.launch(typed(call, "kl_div_forward"), grid_of(p.rows), row_threads(p.cols, DType::bf16, 512), p,
              {teacher, student, loss, *stats});
  call.launch(typed(call, "kl_div_backward"), grid_of(p.rows * row_blocks(p.cols, DType::bf16, 2)),
              row_threads(p.cols, DType::bf16, 256), p, {teacher, student, *stats, dloss, dstudent});
}

// Where kernels report an index that is not above the one before.
Argument order_errors(const Call& call, std::int64_t k) {
  return call.queue.error_word(
      call.errors, [k, kernel = call.dispatch.kernel](ErrorSlot& slot, std::uint64_t found) {
        const auto at = static_cast<std::int64_t>(found >> 32);
        slot.report_exception(std::make_exception_ptr(
            Error(ErrorCode::invalid_argument,
                  str(kernel, ": teacher.indices[", at / k, ",", at % k, "] is ",
                      static_cast<std::uint32_t>(found), ", expected strictly ascending"))));
      });
}

// As many threads as the row, or without a rest the K entries alone, keep busy.
Grid top_k_threads(const KlDivParams& p, DType student, bool reads_row) {
  return reads_row ? row_threads(p.cols, student, 512) : row_threads(p.k * 4, DType::f32, 512);
}

void top_k_forward(const Call& call) {
  const auto& p = call.params<KlDivParams>();
  call.launch(typed(call, "kl_div_top_k_forward"), grid_of(p.rows),
              top_k_threads(p, call.dtype(1), p.rest_bucket != 0), p,
              {call.read(0), call.read(1), call.read(2), call.read(3), call.write(0), call.write(1),
               call.index_errors(p.cols, false), order_errors(call, p.k)});
}

void top_k_backward(const Call& call) {
  const auto& p = call.params<KlDivParams>();
  call.launch(typed(call, "kl_div_top_k_backward"), grid_of(p.rows),
              top_k_threads(p, call.dtype(1), p.rest_bucket != 0 || p.accumulate == 0), p,
              {call.read(0), call.read(1), call.read(2), call.read(3), call.read(4), call.write(0),
               call.index_errors(p.cols, false)});
}

void targets(const Call& call) {
  const auto& p = call.params<KlDivParams>();
  call.launch(call.dispatch.kernel, grid_of(p.rows), row_threads(p.cols, call.dtype(0), 512), p,
              {call.read(0), call.write(0), call.write(1), call.write(2)});
}

MIXTAPE_GPU_LAUNCHERS("kl_div_forward_", forward);
MIXTAPE_GPU_LAUNCHERS("kl_div_backward_", backward);
MIXTAPE_GPU_LAUNCHERS("kl_div_forward_backward_", both);
MIXTAPE_GPU_LAUNCHERS("kl_div_top_k_forward_", top_k_forward);
MIXTAPE_GPU_LAUNCHERS("kl_div_top_k_backward_", top_k_backward);
MIXTAPE_GPU_LAUNCHERS("top_k_targets_", targets);

}  // namespace
}  // namespace mixtape::gpu
