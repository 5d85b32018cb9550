// The simulator as a device: memory with a shadow, launches on the machine, matrix products in plain loops.
#include <cstring>
#include <mutex>
#include <new>
#include <utility>

#include "mixtape/backend/gpu/launcher.h"
#include "mixtape/backend/gpu/variants.h"
#include "mixtape/backend/sim/machine.h"
#include "mixtape/runtime/backend.h"

namespace mixtape::sim {
namespace {

// Bytes live, counted from several threads.
class Meter {
 public:
  void add(std::size_t bytes) {
    const std::lock_guard lock(mutex_);
    stats_.live_bytes += bytes;
    stats_.peak_bytes = std::max(stats_.peak_bytes, stats_.live_bytes);
  }
  void remove(std::size_t bytes) {
    const std::lock_guard lock(mutex_);
    stats_.live_bytes -= bytes;
  }
  void reset_peak() {
    const std::lock_guard lock(mutex_);
    stats_.peak_bytes = stats_.live_bytes;
  }
  MemoryStats stats() const {
    const std::lock_guard lock(mutex_);
    return stats_;
  }

 private:
  mutable std::mutex mutex_;
  MemoryStats stats_;
};

class SimMemory final : public Memory {
 public:
  SimMemory(std::size_t bytes, std::shared_ptr<Meter> meter) : region(bytes), meter_(std::move(meter)) {
    meter_->add(bytes);
  }
  ~SimMemory() override { meter_->remove(region.bytes.size()); }
  std::size_t bytes() const override { return region.bytes.size(); }
  std::byte* host_data() override { return nullptr; }
  Region region;

 private:
  std::shared_ptr<Meter> meter_;
};

Region& region_of(Memory& memory) { return static_cast<SimMemory&>(memory).region; }

void mark_written(Region& region, std::size_t offset, std::size_t bytes) {
  std::fill_n(region.written.begin() + static_cast<std::ptrdiff_t>(offset), bytes, std::uint8_t{1});
}

void expect_written(const Region& region, std::size_t offset, std::size_t bytes, const std::string& who) {
  for (std::size_t i = 0; i < bytes; ++i) {
    if (region.written[offset + i] == 0)
      fail(ErrorCode::device, who, ": byte ", i, " of ", bytes, " is read, but nothing wrote it");
  }
}

double element(const gpu::Argument& a, DType dtype, std::int64_t i) {
  const std::byte* p = region_of(*a.memory).bytes.data() + a.offset;
  switch (dtype) {
    case DType::f32:
      return reinterpret_cast<const float*>(p)[i];
    case DType::bf16:
      return static_cast<float>(reinterpret_cast<const bf16*>(p)[i]);
    default:
      return static_cast<float>(reinterpret_cast<const f16*>(p)[i]);
  }
}

void set_element(const gpu::Argument& a, DType dtype, std::int64_t i, double value) {
  std::byte* p = region_of(*a.memory).bytes.data() + a.offset;
  const auto v = static_cast<float>(value);
  if (dtype == DType::f32) reinterpret_cast<float*>(p)[i] = v;
  if (dtype == DType::bf16) reinterpret_cast<bf16*>(p)[i] = bf16(v);
  if (dtype == DType::f16) reinterpret_cast<f16*>(p)[i] = f16(v);
  mark_written(region_of(*a.memory), a.offset + static_cast<std::size_t>(i) * size_of(dtype), size_of(dtype));
}

// The bytes that `rows` rows of `cols` elements touch, `batch` times.
void check_matrix(const char* name, const gpu::Argument& a, DType dtype, std::int64_t rows, std::int64_t cols,
                  std::int64_t row, std::int64_t step, std::int64_t batch, bool is_read) {
  for (std::int64_t b = 0; b < batch; ++b) {
    for (std::int64_t r = 0; r < rows; ++r) {
      const auto at = static_cast<std::size_t>(b * step + r * row) * size_of(dtype);
      const auto bytes = static_cast<std::size_t>(cols) * size_of(dtype);
      if (at + bytes > a.bytes)
        fail(ErrorCode::device, "gemm: ", name, " ends at byte ", at + bytes, " of ", a.bytes);
      if (is_read) expect_written(region_of(*a.memory), a.offset + at, bytes, str("gemm: ", name));
    }
  }
}

class SimQueue final : public gpu::Queue {
 public:
  explicit SimQueue(Backend& backend) : backend_(backend) {}

  void launch(const gpu::Launch& launch) override {
    gpu::trace_launch(launch);
    static const std::vector<std::string> kNames = [] {
      std::vector<std::string> names;
      for (int i = 0; i < 64; ++i) names.push_back(str("argument ", i));
      return names;
    }();
    std::vector<View> views;
    for (const gpu::Argument& a : launch.arguments) {
      const auto begin = static_cast<std::int64_t>(a.offset);
      Region* region = a.memory == nullptr ? nullptr : &region_of(*a.memory);
      views.emplace_back(region, begin, begin + static_cast<std::int64_t>(a.bytes),
                         kNames.at(views.size()).c_str());
    }
    run_kernel(launch.kernel, {launch.grid, launch.block, launch.shared_bytes}, launch.params, views);
  }

  void gemm(const gpu::Gemm& gemm) override {
    const gpu::Gemm g = gpu::with_strides(gemm);
    check_matrix("a", g.a, g.in, g.trans_a ? g.k : g.m, g.trans_a ? g.m : g.k, g.row_a, g.step_a, g.batch,
                 true);
    check_matrix("b", g.b, g.in, g.trans_b ? g.n : g.k, g.trans_b ? g.k : g.n, g.row_b, g.step_b, g.batch,
                 true);
    check_matrix("c", g.c, g.out, g.m, g.n, g.row_c, g.step_c, g.batch, g.accumulate);
    if (g.addend.memory) check_matrix("addend", g.addend, g.out, g.m, g.n, g.row_c, g.step_c, g.batch, true);
    for (std::int64_t b = 0; b < g.batch; ++b) {
      for (std::int64_t i = 0; i < g.m; ++i) {
        for (std::int64_t j = 0; j < g.n; ++j) product(g, b, i, j);
      }
    }
  }

  void zero(const gpu::Argument& a) override {
    Region& region = region_of(*a.memory);
    std::memset(region.bytes.data() + a.offset, 0, a.bytes);
    mark_written(region, a.offset, a.bytes);
  }
  void copy(const gpu::Argument& from, const gpu::Argument& to) override {
    expect_written(region_of(*from.memory), from.offset, from.bytes, "copy");
    std::memmove(region_of(*to.memory).bytes.data() + to.offset,
                 region_of(*from.memory).bytes.data() + from.offset, from.bytes);
    mark_written(region_of(*to.memory), to.offset, from.bytes);
  }
  std::shared_ptr<Memory> scratch(std::size_t bytes) override { return backend_.allocate(bytes, false); }

  gpu::Argument error_word(ErrorSlot& errors, Explain explain) override {
    reports_.push_back({&errors, std::move(explain), backend_.allocate(sizeof(std::uint64_t), true)});
    const std::uint64_t none = ~std::uint64_t{0};
    backend_.write(*reports_.back().memory, 0, &none, sizeof none);
    return *reports_.back().memory;
  }
  // After the launches of a dispatch.
  void harvest() {
    for (const Report& report : reports_) {
      std::uint64_t found = 0;
      backend_.read(*report.memory, 0, &found, sizeof found);
      if (found != ~std::uint64_t{0}) report.explain(*report.errors, found);
    }
  }
  bool has(const std::string& kernel, std::uint32_t) const override { return has_kernel(kernel); }

 private:
  struct Report {
    ErrorSlot* errors;
    Explain explain;
    std::shared_ptr<Memory> memory;
  };

  static void product(const gpu::Gemm& g, std::int64_t b, std::int64_t i, std::int64_t j) {
    double sum = 0.0;
    for (std::int64_t l = 0; l < g.k; ++l) {
      const std::int64_t a_at = g.trans_a ? l * g.row_a + i : i * g.row_a + l;
      const std::int64_t b_at = g.trans_b ? j * g.row_b + l : l * g.row_b + j;
      sum += element(g.a, g.in, b * g.step_a + a_at) * element(g.b, g.in, b * g.step_b + b_at);
    }
    const std::int64_t at = b * g.step_c + i * g.row_c + j;
    const double before = g.addend.memory ? element(g.addend, g.out, at)
                          : g.accumulate  ? element(g.c, g.out, at)
                                          : 0.0;
    set_element(g.c, g.out, at, g.alpha * sum + before);
  }

  Backend& backend_;
  std::vector<Report> reports_;
};

// Launches written down instead of run, and all memory that they use.
class RecordingQueue final : public gpu::Queue {
 public:
  explicit RecordingQueue(Backend& backend) : backend_(backend) {}

  void launch(const gpu::Launch& l) override {
    gpu::trace_launch(l);
    add([l](gpu::Queue& q) { q.launch(l); });
  }
  void gemm(const gpu::Gemm& g) override {
    add([g](gpu::Queue& q) { q.gemm(g); });
  }
  void zero(const gpu::Argument& a) override {
    add([a](gpu::Queue& q) { q.zero(a); });
  }
  void copy(const gpu::Argument& from, const gpu::Argument& to) override {
    add([from, to](gpu::Queue& q) { q.copy(from, to); });
  }
  std::shared_ptr<Memory> scratch(std::size_t bytes) override { return backend_.allocate(bytes, false); }
  gpu::Argument error_word(ErrorSlot& errors, Explain explain) override {
    words_.push_back({errors.weak_from_this(), std::move(explain), backend_.allocate(sizeof kNone, false)});
    return *words_.back().memory;
  }
  bool has(const std::string& kernel, std::uint32_t) const override { return has_kernel(kernel); }

  void keep(std::shared_ptr<Memory> memory) { memories_.push_back(std::move(memory)); }
  void keep(const Dispatch& dispatch) { dispatches_.push_back(dispatch); }
  void run() const {
    SimQueue queue(backend_);
    for (const Word& w : words_) backend_.write(*w.memory, 0, &kNone, sizeof kNone);
    for (const auto& step : steps_) step(queue);
    for (const Word& w : words_) report(w);
  }

 private:
  static constexpr std::uint64_t kNone = ~std::uint64_t{0};
  struct Word {
    std::weak_ptr<ErrorSlot> owner;
    Explain explain;
    std::shared_ptr<Memory> memory;
  };
  void add(std::function<void(gpu::Queue&)> step) { steps_.push_back(std::move(step)); }
  void report(const Word& word) const {
    std::uint64_t found = 0;
    backend_.read(*word.memory, 0, &found, sizeof found);
    const auto owner = word.owner.lock();
    if (found != kNone && owner) word.explain(*owner, found);
  }

  Backend& backend_;
  std::vector<std::function<void(gpu::Queue&)>> steps_;
  std::vector<Word> words_;
  std::vector<std::shared_ptr<Memory>> memories_;
  std::vector<Dispatch> dispatches_;
};

class SimReplay final : public Replay {
 public:
  explicit SimReplay(std::shared_ptr<const RecordingQueue> work) : work_(std::move(work)) {}
  void run() override { work_->run(); }

 private:
  std::shared_ptr<const RecordingQueue> work_;
};

class SimKernels final : public KernelRegistry {
 public:
  bool has(const std::string& name) const override { return gpu::has_launcher(name) || has_kernel(name); }
  void register_host(const std::string& name, HostKernel) override {
    fail(ErrorCode::not_supported, "register_host: kernel '", name, "': sim runs GPU kernels");
  }
  void register_source(const std::string& name, const std::string&) override {
    fail(ErrorCode::not_supported, "register_source: kernel '", name, "': sim compiles no source");
  }
};

class SimBackend final : public Backend {
 public:
  explicit SimBackend(int index) : index_(index) {}
  std::string name() const override { return index_ == 0 ? "sim" : str("sim:", index_); }
  std::string description() const override { return "GPU kernels on the host, every access checked"; }
  DeviceCaps caps() const override { return gpu::kCaps; }
  std::shared_ptr<Memory> allocate(std::size_t bytes, bool zero) override {
    constexpr std::size_t kNobodyHas = std::size_t{1}
                                       << 46;  // AddressSanitizer ends the program over such sizes
    if (bytes > kNobodyHas) throw std::bad_alloc();
    auto memory = std::make_shared<SimMemory>(bytes, meter_);
    if (zero) mark_written(memory->region, 0, bytes);
    if (recording_) {
      recording_->keep(memory);
      if (zero && bytes > 0) recording_->zero(*memory);
    }
    return memory;
  }
  MemoryStats memory_stats() const override { return meter_->stats(); }
  void reset_peak() override { meter_->reset_peak(); }
  void poison_uninitialized(bool) override {}  // what nothing wrote is never readable
  KernelRegistry& kernels() override { return kernels_; }

  void run(const Dispatch& d, ErrorSlot& errors) override {
    if (errors.has_exception()) return;
    const std::lock_guard lock(mutex_);
    try {
      if (recording_) {
        recording_->keep(d);
        return gpu::run({d, *recording_, errors});
      }
      SimQueue queue(*this);
      gpu::run({d, queue, errors});
      queue.harvest();
    } catch (...) {
      errors.report_caught(d.kernel);
    }
  }
  void synchronize() override { refuse_while_recording("wait"); }
  bool can_record() const override { return true; }
  void begin_recording() override {
    refuse_while_recording("record");
    recording_ = std::make_shared<RecordingQueue>(*this);
  }
  std::shared_ptr<Replay> end_recording(bool keep) override {
    const auto recorded = std::exchange(recording_, nullptr);
    return keep ? std::make_shared<SimReplay>(recorded) : nullptr;
  }
  void read(Memory& memory, std::size_t offset, void* host, std::size_t bytes) override {
    refuse_while_recording("read");
    expect_written(region_of(memory), offset, bytes, "read");
    std::memcpy(host, region_of(memory).bytes.data() + offset, bytes);
  }
  void write(Memory& memory, std::size_t offset, const void* host, std::size_t bytes) override {
    refuse_while_recording("write");
    std::memcpy(region_of(memory).bytes.data() + offset, host, bytes);
    mark_written(region_of(memory), offset, bytes);
  }

 private:
  void refuse_while_recording(const char* what) const {
    require(!recording_, what, ": sim is recording, expected only kernels until that ends");
  }

  int index_;
  std::shared_ptr<RecordingQueue> recording_;  // set while work is recorded
  std::shared_ptr<Meter> meter_ = std::make_shared<Meter>();
  std::mutex mutex_;
  SimKernels kernels_;
};

[[maybe_unused]] const bool registered = register_backend("sim", kNotAuto, [](int index) {
  constexpr int kDevices = 4;
  if (index >= kDevices)
    fail(ErrorCode::not_supported, "sim: device ", index, " is not there, found ", kDevices);
  return std::make_shared<SimBackend>(index);
});

}  // namespace
}  // namespace mixtape::sim
