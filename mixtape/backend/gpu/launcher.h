// How an op's dispatch becomes launches of GPU kernels: a launcher, a host function in <op>_gpu.cpp, chooses
// the geometry, takes scratch memory and launches kernels from <op>_gpu.cu. The same launchers drive every
// backend that runs those kernels.
#pragma once

#include <functional>
#include <initializer_list>
#include <span>
#include <string>
#include <vector>

#include "mixtape/runtime/command_encoder.h"

namespace mixtape::gpu {

// A kernel's pointer argument: where it points, and how far it may be followed. Null memory is a null
// pointer.
struct Argument {
  Memory* memory = nullptr;
  std::size_t offset = 0;
  std::size_t bytes = 0;

  Argument() = default;
  Argument(const Buffer& buffer);  // NOLINT: a buffer is what arguments usually are
  Argument(Memory& whole) : memory(&whole), bytes(whole.bytes()) {}
  Argument(Memory* base, std::size_t at, std::size_t count) : memory(base), offset(at), bytes(count) {}
  // `count` bytes from `at` bytes on.
  Argument part(std::size_t at, std::size_t count) const;
};

struct Launch {
  std::string kernel;
  Grid grid = {1, 1, 1};
  Grid block = {1, 1, 1};
  std::vector<std::byte> params;
  std::vector<Argument> arguments;
  std::uint32_t shared_bytes = 0;
};

// c[m,n] (+)= alpha * op(a)[m,k] * op(b)[k,n], row-major, `batch` times; f32 sums. Where there is an addend, c becomes
// that plus the product: its rows lie as c's.
struct Gemm {
  DType in = DType::f32;   // of a and b
  DType out = DType::f32;  // `in` or f32
  std::int64_t m = 0, n = 0, k = 0;
  bool trans_a = false, trans_b = false;
  bool accumulate = false;
  float alpha = 1.0f;
  Argument a, b, c, addend = {};
  std::int64_t batch = 1;
  // Elements from one row to the next and from one matrix to the next; 0: dense.
  std::int64_t row_a = 0, row_b = 0, row_c = 0;
  std::int64_t step_a = 0, step_b = 0, step_c = 0;
};

// Fills in the strides that are 0.
Gemm with_strides(Gemm gemm);

// Where launches go: in order, each sees what came before.
class Queue {
 public:
  virtual ~Queue() = default;
  virtual void launch(const Launch& launch) = 0;
  virtual void gemm(const Gemm& gemm) = 0;
  virtual void zero(const Argument& target) = 0;
  virtual void copy(const Argument& from, const Argument& to) = 0;
  // Memory for the launches that follow; may be dropped as soon as they are queued.
  virtual std::shared_ptr<Memory> scratch(std::size_t bytes) = 0;
  // A u64 of ones that kernels lower (atomic_min). At wait, if one did, `explain` turns it into a report.
  using Explain = std::function<void(ErrorSlot& errors, std::uint64_t found)>;
  virtual Argument error_word(ErrorSlot& errors, Explain explain) = 0;
  // Whether such a kernel runs here with so much dynamic shared memory: some exist for some cards only.
  virtual bool has(const std::string& kernel, std::uint32_t shared_bytes = 0) const = 0;
};

struct Call {
  const Dispatch& dispatch;
  Queue& queue;
  ErrorSlot& errors;

  template <class P>
  const P& params() const {
    require(dispatch.params.size() == sizeof(P), dispatch.kernel, ": got ", dispatch.params.size(),
            " parameter bytes, expected ", sizeof(P));
    return *reinterpret_cast<const P*>(dispatch.params.data());
  }
  const Buffer& read(std::size_t i) const { return buffer_at(dispatch.reads, "read", i); }
  const Buffer& write(std::size_t i) const { return buffer_at(dispatch.writes, "write", i); }
  // As HostCall's: a null pointer where `bit` isn't wanted.
  Argument write_if(std::uint32_t wanted, std::uint32_t bit) const {
    return (wanted & bit) != 0 ? Argument(write(output_index(wanted, bit))) : Argument();
  }
  DType dtype(std::size_t read_index) const { return read(read_index).dtype(); }
  // Where kernels report an index that is not in 0..limit-1 (report_index); surfaces at wait.
  Argument index_errors(std::int64_t limit, bool is_signed) const;
  template <class P>
  void launch(const std::string& kernel, Grid grid, Grid block, const P& params,
              std::vector<Argument> arguments, std::uint32_t shared_bytes = 0) const {
    queue.launch({kernel, grid, block, params_bytes(params), std::move(arguments), shared_bytes});
  }
  // The kernel of the dispatch's own name with its params, reads and writes.
  void launch_same(Grid grid, Grid block, std::uint32_t shared_bytes = 0) const;

 private:
  const Buffer& buffer_at(const std::vector<Buffer>& buffers, const char* what, std::size_t i) const {
    require(i < buffers.size(), dispatch.kernel, ": ", what, "(", i, ") was asked for, expected less than ",
            buffers.size(), ", what the dispatch holds");
    return buffers[i];
  }
};

using Launcher = std::function<void(const Call&)>;

// Launchers enter themselves here before main.
bool register_launcher(const std::string& name, Launcher launcher);
bool has_launcher(const std::string& name);
// Through the launcher of the dispatch's kernel; a kernel without one is launched as the dispatch says.
void run(const Call& call);

#define MIXTAPE_GPU_LAUNCHER(name, ...)                                     \
  [[maybe_unused]] static const bool MIXTAPE_JOIN(launcher_, __COUNTER__) = \
      ::mixtape::gpu::register_launcher(name, __VA_ARGS__)
// For every value dtype: MIXTAPE_GPU_LAUNCHERS("softmax_forward_", forward).
#define MIXTAPE_GPU_LAUNCHERS(prefix, ...)          \
  MIXTAPE_GPU_LAUNCHER(prefix "f32", __VA_ARGS__);  \
  MIXTAPE_GPU_LAUNCHER(prefix "bf16", __VA_ARGS__); \
  MIXTAPE_GPU_LAUNCHER(prefix "f16", __VA_ARGS__)

// Blocks of logits that keep a card busy; of rows, one for a block of threads: enough of them to fill it.
inline constexpr DeviceCaps kCaps{.has_host_memory = false,
                                  .wants_f32_logits = false,
                                  .rounds_decoded_bf16 = true,
                                  .rounds_decoded_f16 = true,
                                  .logit_elements = std::int64_t{160} << 20,
                                  .most_row_blocks = 512,
                                  .least_block_rows = 8};

constexpr std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }
// `blocks` in x. Throws invalid_argument past 2^31 - 1.
Grid grid_of(std::int64_t blocks);
// Blocks of 256 threads, `per_thread` elements each.
Grid grid_for(std::int64_t elements, std::int64_t per_thread = 1);
constexpr Grid kBlock256 = {256, 1, 1};

}  // namespace mixtape::gpu
