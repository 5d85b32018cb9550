// An NVIDIA card: memory from the driver's stream-ordered pool, kernels from the library's modules, one
// stream.
#include <array>
#include <atomic>
#include <cstring>
#include <map>
#include <mutex>
#include <unordered_map>

#include "mixtape/backend/cuda/cublaslt.h"
#include "mixtape/backend/cuda/driver.h"
#include "mixtape/backend/cuda/source.h"
#include "mixtape/backend/gpu/launcher.h"
#include "mixtape/backend/gpu/modules.h"
#include "mixtape/runtime/backend.h"

namespace mixtape::cuda {
namespace {

struct Card {
  explicit Card(int index);
  void enter() const { check(driver().CtxSetCurrent(context), "entering the context"); }

  int index;
  DeviceHandle device = 0;
  Context context = nullptr;
  Stream stream = nullptr;
  Pool pool = nullptr;
  std::string description;
  std::string architecture;
  std::mutex memory_mutex;
  MemoryStats stats;
  // Blocks given back, by size, for the next of that size: a step asks for the same sizes every time, and the
  // driver takes microseconds to answer. All work is on one stream, so a block may be reused at once.
  std::map<std::size_t, std::vector<DevicePointer>> kept;
};

int attribute(DeviceHandle device, int which) {
  int value = 0;
  check(driver().DeviceGetAttribute(&value, which, device), "reading an attribute");
  return value;
}

Card::Card(int which) : index(which) {
  const Driver& d = driver();
  int count = 0;
  if (d.DeviceGetCount(&count) != kSuccess || which >= count)
    fail(ErrorCode::not_supported, "cuda: card ", which, " is not there, found ", count);
  check(d.DeviceGet(&device, which), "opening the card");
  std::array<char, 256> name{};
  check(d.DeviceGetName(name.data(), static_cast<int>(name.size()), device), "reading the card's name");
  const int major = attribute(device, kAttributeMajor), minor = attribute(device, kAttributeMinor);
  if (major * 10 + minor < 75) {
    fail(ErrorCode::not_supported, "cuda: ", name.data(), " has compute capability ", major, ".", minor,
         ", expected 7.5 or more");
  }
  if (attribute(device, kAttributePools) == 0)
    fail(ErrorCode::not_supported, "cuda: ", name.data(), " has no memory pools");
  if (gpu::module_kernels().empty())
    fail(ErrorCode::not_supported, "cuda: this library was built without nvcc, it has no GPU kernels");
  architecture = str("sm_", major, minor);
  check(d.DevicePrimaryCtxRetain(&context, device), "taking the card's context");
  enter();
  std::size_t free = 0, total = 0;
  check(d.MemGetInfo(&free, &total), "reading the card's memory");
  description = str(name.data(), ", ", total >> 20, " MB, compute capability ", major, ".", minor);
  check(d.StreamCreate(&stream, kStreamNonBlocking), "making a stream");
  check(d.DeviceGetDefaultMemPool(&pool, device), "finding the memory pool");
  std::uint64_t keep = ~std::uint64_t{0};
  check(d.MemPoolSetAttribute(pool, kPoolReleaseThreshold, &keep), "setting up the memory pool");
}

class CardMemory final : public Memory {
 public:
  CardMemory(std::shared_ptr<Card> card, std::size_t bytes);
  ~CardMemory() override;
  std::size_t bytes() const override { return bytes_; }
  std::byte* host_data() override { return nullptr; }
  DevicePointer pointer() const { return pointer_; }

 private:
  std::shared_ptr<Card> card_;
  std::size_t bytes_;
  DevicePointer pointer_ = 0;
};

// Larger blocks always go back to the driver.
constexpr std::size_t kLargestKept = std::size_t{256} << 20;

std::size_t block_bytes(std::size_t bytes) { return (bytes + 511) / 512 * 512; }

// 0 where no block of that size is kept.
DevicePointer take_kept(Card& card, std::size_t bytes) {
  const auto blocks = card.kept.find(block_bytes(bytes));
  if (blocks == card.kept.end() || blocks->second.empty()) return 0;
  const DevicePointer block = blocks->second.back();
  blocks->second.pop_back();
  return block;
}

void release_kept(Card& card) {
  for (const auto& [bytes, blocks] : card.kept) {
    for (const DevicePointer block : blocks) driver().MemFreeAsync(block, card.stream);
  }
  card.kept.clear();
  driver().StreamSynchronize(card.stream);
  driver().MemPoolTrimTo(card.pool, 0);
}

CardMemory::CardMemory(std::shared_ptr<Card> card, std::size_t bytes)
    : card_(std::move(card)), bytes_(bytes) {
  if (bytes == 0) return;
  const Driver& d = driver();
  const std::lock_guard lock(card_->memory_mutex);
  pointer_ = take_kept(*card_, bytes);
  if (pointer_ == 0) {
    card_->enter();
    const auto ask = [&] {
      return d.MemAllocFromPoolAsync(&pointer_, block_bytes(bytes), card_->pool, card_->stream);
    };
    Result result = ask();
    if (result == kOutOfMemory) {
      release_kept(*card_);
      result = ask();
    }
    if (result == kOutOfMemory) {
      std::size_t free = 0, total = 0;
      d.MemGetInfo(&free, &total);
      fail(ErrorCode::out_of_memory, "cuda:", card_->index, ": cannot allocate ", bytes, " bytes; ",
           card_->stats.live_bytes, " bytes are live, ", free, " of ", total, " are free");
    }
    check(result, "allocating");
  }
  card_->stats.live_bytes += bytes;
  card_->stats.peak_bytes = std::max(card_->stats.peak_bytes, card_->stats.live_bytes);
}

CardMemory::~CardMemory() {
  if (pointer_ == 0) return;
  const std::lock_guard lock(card_->memory_mutex);
  card_->stats.live_bytes -= bytes_;
  if (block_bytes(bytes_) <= kLargestKept) {
    card_->kept[block_bytes(bytes_)].push_back(pointer_);
  } else {
    driver().CtxSetCurrent(card_->context);
    driver().MemFreeAsync(pointer_, card_->stream);
  }
}

DevicePointer pointer_of(const gpu::Argument& a) {
  return a.memory == nullptr ? 0 : static_cast<CardMemory&>(*a.memory).pointer() + a.offset;
}

// Kernels by name: the library's, loaded a module at a time, and the user's.
class CardKernels final : public KernelRegistry {
 public:
  explicit CardKernels(std::shared_ptr<Card> card) : card_(std::move(card)) {}

  bool has(const std::string& name) const override { return gpu::find_launcher(name) || has_kernel(name); }
  bool has_kernel(const std::string& name) const {
    const std::lock_guard lock(mutex_);
    return functions_.contains(name) || module_of(name) != nullptr;
  }
  void register_host(const std::string& name, HostKernel) override {
    fail(ErrorCode::not_supported, "register_host: kernel '", name, "': cuda:", card_->index,
         " takes source text, not host functions");
  }
  void register_source(const std::string& name, const std::string& text) override {
    require(!has(name), "register_source: kernel '", name, "' exists already on cuda:", card_->index);
    const std::string code = compile_source(name, text, card_->architecture);
    card_->enter();
    ModuleHandle module = nullptr;
    check(driver().ModuleLoadData(&module, code.data()), "loading a user's kernel");
    Function function = nullptr;
    if (driver().ModuleGetFunction(&function, module, name.c_str()) != kSuccess)
      fail(ErrorCode::invalid_argument, "register_source: the text defines no extern \"C\" kernel '", name,
           "'");
    const std::lock_guard lock(mutex_);
    functions_.emplace(name, function);
  }
  Function find(const std::string& name) {
    const std::lock_guard lock(mutex_);
    if (const auto known = functions_.find(name); known != functions_.end()) return known->second;
    const gpu::Module* module = module_of(name);
    if (module == nullptr) {
      fail(ErrorCode::not_supported, "kernel '", name, "' does not exist on cuda:", card_->index);
    }
    Function function = nullptr;
    check(driver().ModuleGetFunction(&function, load(*module), name.c_str()), name.c_str());
    functions_.emplace(name, function);
    return function;
  }

 private:
  // Null for a kernel that this card cannot run.
  const gpu::Module* module_of(const std::string& kernel) const {
    const gpu::Module* module = gpu::find_module(kernel);
    return module != nullptr && gpu::is_for_hopper(*module) && card_->architecture != "sm_90" ? nullptr
                                                                                              : module;
  }
  ModuleHandle load(const gpu::Module& module) {
    ModuleHandle& handle = modules_[module.begin];
    if (handle != nullptr) return handle;
    const Result result = driver().ModuleLoadData(&handle, module.begin);
    if (result == kNoBinaryForGpu || result == kUnsupportedPtx) {
      fail(ErrorCode::not_supported, "cuda: the driver (CUDA ", driver().version / 1000, ".",
           driver().version % 1000 / 10, ") is too old for the library's kernels of ", module.name);
    }
    check(result, module.name);
    return handle;
  }

  std::shared_ptr<Card> card_;
  mutable std::mutex mutex_;
  std::unordered_map<std::string, Function> functions_;
  std::unordered_map<const unsigned char*, ModuleHandle> modules_;
};

// Where kernels report errors: a word per dispatch that may, read at the next wait.
class ErrorReports {
 public:
  static constexpr std::size_t kSlots = 1024;
  struct Slot {
    std::weak_ptr<ErrorSlot> owner;
    gpu::Queue::Explain explain;
  };
  std::vector<Slot> slots;
  std::shared_ptr<CardMemory> words;
};

class CudaBackend final : public Backend, private gpu::Queue {
 public:
  explicit CudaBackend(int index) : card_(std::make_shared<Card>(index)), kernels_(card_) {}

  std::string name() const override { return str("cuda:", card_->index); }
  std::string description() const override { return card_->description; }
  std::shared_ptr<Memory> allocate(std::size_t bytes, bool zero) override {
    auto memory = std::make_shared<CardMemory>(card_, bytes);
    if (bytes > 0 && (zero || poison_)) {
      check(driver().MemsetD8Async(memory->pointer(), zero ? 0 : 0xff, bytes, card_->stream), "filling");
    }
    return memory;
  }
  MemoryStats memory_stats() const override {
    const std::lock_guard lock(card_->memory_mutex);
    return card_->stats;
  }
  void reset_peak() override {
    const std::lock_guard lock(card_->memory_mutex);
    card_->stats.peak_bytes = card_->stats.live_bytes;
  }
  void poison_uninitialized(bool on) override { poison_ = on; }
  KernelRegistry& kernels() override { return kernels_; }

  void run(const Dispatch& d, ErrorSlot& errors) override {
    if (errors.has_exception()) return;
    const std::lock_guard lock(mutex_);
    card_->enter();
    const gpu::Call call{d, *this, errors};
    if (const gpu::Launcher* launcher = gpu::find_launcher(d.kernel)) {
      (*launcher)(call);
    } else {
      call.launch_same(d.grid, d.block, d.shared_bytes);
    }
  }
  void synchronize() override {
    const std::lock_guard lock(mutex_);
    card_->enter();
    wait();
  }
  void read(Memory& memory, std::size_t offset, void* host, std::size_t bytes) override {
    card_->enter();
    check(driver().MemcpyDtoHAsync(host, static_cast<CardMemory&>(memory).pointer() + offset, bytes,
                                   card_->stream),
          "reading");
    check(driver().StreamSynchronize(card_->stream), "reading");
  }
  void write(Memory& memory, std::size_t offset, const void* host, std::size_t bytes) override {
    const std::lock_guard lock(mutex_);
    card_->enter();
    upload(static_cast<CardMemory&>(memory).pointer() + offset, static_cast<const std::byte*>(host), bytes);
  }

 private:
  void launch(const gpu::Launch& l) override {
    const Function function = kernels_.find(l.kernel);
    std::vector<DevicePointer> pointers;
    for (const gpu::Argument& a : l.arguments) pointers.push_back(pointer_of(a));
    std::vector<void*> parameters;
    if (!l.params.empty()) parameters.push_back(const_cast<std::byte*>(l.params.data()));
    for (DevicePointer& p : pointers) parameters.push_back(&p);
    if (l.shared_bytes > 32 * 1024) {  // with its static part, past the 48 KB that need no asking
      check(driver().FuncSetAttribute(function, kFunctionDynamicShared, static_cast<int>(l.shared_bytes)),
            l.kernel.c_str());
    }
    check(driver().LaunchKernel(function, l.grid[0], l.grid[1], l.grid[2], l.block[0], l.block[1], l.block[2],
                                l.shared_bytes, card_->stream, parameters.data(), nullptr),
          l.kernel.c_str());
  }
  void gemm(const gpu::Gemm& g) override {
    if (!workspace_) workspace_ = std::make_shared<CardMemory>(card_, MatrixProducts::kWorkspaceBytes);
    products_.run(g, pointer_of(g.a), pointer_of(g.b), pointer_of(g.c), workspace_->pointer(), card_->stream);
  }
  void zero(const gpu::Argument& target) override {
    if (target.bytes > 0)
      check(driver().MemsetD8Async(pointer_of(target), 0, target.bytes, card_->stream), "filling");
  }
  void copy(const gpu::Argument& from, const gpu::Argument& to) override {
    if (from.bytes > 0)
      check(driver().MemcpyDtoDAsync(pointer_of(to), pointer_of(from), from.bytes, card_->stream), "copying");
  }
  std::shared_ptr<Memory> scratch(std::size_t bytes) override { return allocate(bytes, false); }
  bool has(const std::string& kernel) const override { return kernels_.has_kernel(kernel); }

  gpu::Argument error_word(ErrorSlot& errors, Explain explain) override {
    if (!reports_.words) {
      reports_.words = std::make_shared<CardMemory>(card_, ErrorReports::kSlots * sizeof(std::uint64_t));
      check(driver().MemsetD8Async(reports_.words->pointer(), 0xff, reports_.words->bytes(), card_->stream),
            "filling");
    }
    if (reports_.slots.size() == ErrorReports::kSlots) wait();
    reports_.slots.push_back({errors.weak_from_this(), std::move(explain)});
    return {reports_.words.get(), (reports_.slots.size() - 1) * sizeof(std::uint64_t), sizeof(std::uint64_t)};
  }

  // Waits for the stream, then hands what kernels reported to the encoders that asked.
  void wait() {
    check(driver().StreamSynchronize(card_->stream), "waiting");
    if (reports_.slots.empty()) return;
    std::vector<std::uint64_t> found(reports_.slots.size());
    const std::size_t bytes = found.size() * sizeof(std::uint64_t);
    check(driver().MemcpyDtoHAsync(found.data(), reports_.words->pointer(), bytes, card_->stream), "reading");
    check(driver().StreamSynchronize(card_->stream), "waiting");
    bool any = false;
    for (std::size_t i = 0; i < found.size(); ++i) {
      if (found[i] == ~std::uint64_t{0}) continue;
      any = true;
      const ErrorReports::Slot& slot = reports_.slots[i];
      if (const auto owner = slot.owner.lock()) slot.explain(*owner, found[i]);
    }
    if (any) check(driver().MemsetD8Async(reports_.words->pointer(), 0xff, bytes, card_->stream), "filling");
    reports_.slots.clear();
  }

  // Through two pinned buffers in turn: the copy of one overlaps the filling of the other.
  void upload(DevicePointer to, const std::byte* from, std::size_t bytes) {
    constexpr std::size_t kStage = std::size_t{8} << 20;
    if (stages_[0].data == nullptr) {
      for (Stage& s : stages_) {
        check(driver().MemHostAlloc(&s.data, kStage, 0), "taking pinned memory");
        check(driver().EventCreate(&s.done, kEventNoTiming), "making an event");
      }
    }
    for (std::size_t at = 0, turn = 0; at < bytes; at += kStage, ++turn) {
      Stage& s = stages_[turn % 2];
      const std::size_t count = std::min(kStage, bytes - at);
      check(driver().EventSynchronize(s.done), "writing");
      std::memcpy(s.data, from + at, count);
      check(driver().MemcpyHtoDAsync(to + at, s.data, count, card_->stream), "writing");
      check(driver().EventRecord(s.done, card_->stream), "writing");
    }
  }

  struct Stage {
    void* data = nullptr;
    Event done = nullptr;
  };

  std::shared_ptr<Card> card_;
  CardKernels kernels_;
  std::mutex mutex_;
  std::atomic<bool> poison_ = false;
  MatrixProducts products_;
  std::shared_ptr<CardMemory> workspace_;
  ErrorReports reports_;
  std::array<Stage, 2> stages_;
};

[[maybe_unused]] const bool registered =
    register_backend("cuda", [](int index) { return std::make_shared<CudaBackend>(index); });

}  // namespace
}  // namespace mixtape::cuda
