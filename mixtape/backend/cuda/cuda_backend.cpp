// An NVIDIA card as a device: kernels from the library's modules, everything on one stream.
#include <algorithm>
#include <atomic>
#include <mutex>
#include <thread>
#include <unordered_map>
#include <utility>

#include "mixtape/backend/cuda/card.h"
#include "mixtape/backend/cuda/cublaslt.h"
#include "mixtape/backend/cuda/nccl.h"
#include "mixtape/backend/cuda/source.h"
#include "mixtape/backend/cuda/upload.h"
#include "mixtape/backend/gpu/launcher.h"
#include "mixtape/backend/gpu/modules.h"
#include "mixtape/backend/gpu/product.h"
#include "mixtape/backend/gpu/variants.h"

namespace mixtape::cuda {
namespace {

DevicePointer pointer_of(const gpu::Argument& a) {
  return a.memory == nullptr ? 0 : static_cast<CardMemory&>(*a.memory).pointer() + a.offset;
}

struct Kernel {
  Function function;
  bool starts_early;  // as machine code for 9.0 and later it has await_earlier
};

// Kernels by name: the library's, loaded a module at a time, and the user's.
class CardKernels final : public KernelRegistry {
 public:
  explicit CardKernels(std::shared_ptr<Card> card) : card_(std::move(card)) {}

  bool has(const std::string& name) const override { return gpu::has_launcher(name) || has_kernel(name); }
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
    const std::string code = compile_source(name, text, str("sm_", card_->capability));
    card_->enter();
    ModuleHandle module = nullptr;
    check(driver().ModuleLoadData(&module, code.data()), "loading a user's kernel");
    Function function = nullptr;
    if (driver().ModuleGetFunction(&function, module, name.c_str()) != kSuccess)
      fail(ErrorCode::invalid_argument, "register_source: the text defines no extern \"C\" kernel '", name,
           "'");
    const std::lock_guard lock(mutex_);
    functions_.emplace(name, Kernel{function, false});
  }
  Kernel find(const std::string& name) {
    const std::lock_guard lock(mutex_);
    if (const auto known = functions_.find(name); known != functions_.end()) return known->second;
    const gpu::Module* module = module_of(name);
    if (module == nullptr) {
      fail(ErrorCode::not_supported, "kernel '", name, "' does not exist on cuda:", card_->index);
    }
    Function function = nullptr;
    check(driver().ModuleGetFunction(&function, load(*module), name.c_str()), name.c_str());
    const bool starts_early = card_->capability >= 90 && gpu::is_in_machine_code(*module, card_->capability);
    return functions_.emplace(name, Kernel{function, starts_early}).first->second;
  }

 private:
  // Null for a kernel that this card cannot run.
  const gpu::Module* module_of(const std::string& kernel) const {
    const gpu::Module* module = gpu::find_module(kernel);
    return module != nullptr && gpu::runs_on(*module, card_->capability) ? module : nullptr;
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
  std::unordered_map<std::string, Kernel> functions_;
  std::unordered_map<const unsigned char*, ModuleHandle> modules_;
};

// Where kernels report errors: a word per dispatch that may, read at the next wait.
struct ErrorReports {
  static constexpr std::size_t kSlots = 8192;
  struct Slot {
    std::weak_ptr<ErrorSlot> owner;
    gpu::Queue::Explain explain;
  };
  explicit ErrorReports(const std::shared_ptr<Card>& card)
      : words(std::make_shared<CardMemory>(card, kSlots * sizeof(std::uint64_t))) {}
  void clear_words(std::size_t bytes, Stream stream) const {
    check(driver().MemsetD8Async(words->pointer(), 0xff, bytes, stream), "filling");
  }
  // Waits for the stream, then hands what kernels reported to the encoders that asked.
  void collect(Stream stream) const;

  std::vector<Slot> slots;
  std::shared_ptr<CardMemory> words;
};

void ErrorReports::collect(Stream stream) const {
  if (slots.empty()) return;
  std::vector<std::uint64_t> found(slots.size());
  const std::size_t bytes = found.size() * sizeof(std::uint64_t);
  check(driver().MemcpyDtoHAsync(found.data(), words->pointer(), bytes, stream), "reading");
  check(driver().StreamSynchronize(stream), "waiting");
  bool any = false;
  for (std::size_t i = 0; i < found.size(); ++i) {
    if (found[i] == ~std::uint64_t{0}) continue;
    any = true;
    if (const auto owner = slots[i].owner.lock()) slots[i].explain(*owner, found[i]);
  }
  if (any) clear_words(bytes, stream);
}

// What a recording holds: its graph, the blocks that the graph uses, and the buffers from before.
struct Recording {
  explicit Recording(const std::shared_ptr<Card>& card)
      : blocks(std::make_shared<RecordedBlocks>(card)), reports(card) {}
  ~Recording() {
    blocks->card->enter();
    if (graph != nullptr) driver().GraphExecDestroy(graph);
  }
  Recording(const Recording&) = delete;
  Recording& operator=(const Recording&) = delete;

  std::thread::id thread = std::this_thread::get_id();
  std::shared_ptr<RecordedBlocks> blocks;
  ErrorReports reports;
  std::vector<Buffer> before;
  GraphExec graph = nullptr;
};

class CudaBackend;

class CardReplay final : public Replay {
 public:
  CardReplay(CudaBackend& backend, std::shared_ptr<Recording> recording)
      : backend_(backend), recording_(std::move(recording)) {}
  void run() override;

 private:
  CudaBackend& backend_;
  std::shared_ptr<Recording> recording_;
};

class CudaBackend final : public Backend, private gpu::Queue {
 public:
  explicit CudaBackend(int index)
      : card_(std::make_shared<Card>(index)), kernels_(card_), reports_(card_), upload_(card_) {
    reports_.clear_words(reports_.words->bytes(), card_->stream);
  }

  const std::shared_ptr<Card>& card() const { return card_; }
  std::string name() const override { return str("cuda:", card_->index); }
  std::string description() const override { return card_->description; }
  // Fewer blocks of logits cost less: the output layer is decoded for each. 1.3 GB of them in bf16 on large cards.
  DeviceCaps caps() const override {
    DeviceCaps caps = gpu::kCaps;
    caps.logit_elements = std::clamp<std::int64_t>(static_cast<std::int64_t>(card_->bytes / 224),
                                                   caps.logit_elements, 4 * caps.logit_elements);
    return caps;
  }
  std::shared_ptr<Memory> allocate(std::size_t bytes, bool zero) override {
    auto memory = std::make_shared<CardMemory>(card_, bytes);
    if (bytes > 0 && (zero || poison_)) {
      card_->enter();
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
    if (recording_) keep_alive(d);
    gpu::run({d, *this, errors});
  }
  void synchronize() override {
    const std::lock_guard lock(mutex_);
    refuse_while_recording("wait");
    card_->enter();
    wait();
  }
  bool can_record() const override { return true; }
  void begin_recording() override {
    const std::lock_guard lock(mutex_);
    refuse_while_recording("record");
    card_->enter();
    wait();
    auto recording = std::make_shared<Recording>(card_);
    recording->reports.clear_words(recording->reports.words->bytes(), card_->stream);
    wait();
    if (!workspace_) workspace_ = std::make_shared<CardMemory>(card_, MatrixProducts::kWorkspaceBytes);
    check(driver().StreamBeginCapture(card_->stream, kCaptureRelaxed), "recording");
    const std::lock_guard memory_lock(card_->memory_mutex);
    card_->recording = recording->blocks;
    recording_ = std::move(recording);
  }
  std::shared_ptr<Replay> end_recording(bool keep) override;
  void replay(const std::shared_ptr<Recording>& recording) {
    const std::lock_guard lock(mutex_);
    refuse_while_recording("replay");
    card_->enter();
    check(driver().GraphLaunch(recording->graph, card_->stream), "replaying");
    replayed_.push_back(recording);
  }
  void read(Memory& memory, std::size_t offset, void* host, std::size_t bytes) override {
    const std::lock_guard lock(mutex_);
    refuse_while_recording("read");
    card_->enter();
    check(driver().MemcpyDtoHAsync(host, static_cast<CardMemory&>(memory).pointer() + offset, bytes,
                                   card_->stream),
          "reading");
    check(driver().StreamSynchronize(card_->stream), "reading");
  }
  void write(Memory& memory, std::size_t offset, const void* host, std::size_t bytes) override {
    const std::lock_guard lock(mutex_);
    refuse_while_recording("write");
    card_->enter();
    upload_.run(static_cast<CardMemory&>(memory).pointer() + offset, static_cast<const std::byte*>(host),
                bytes);
  }

 private:
  void launch(const gpu::Launch& l) override {
    gpu::trace_launch(l);
    const auto [function, starts_early] = kernels_.find(l.kernel);
    std::vector<DevicePointer> pointers;
    for (const gpu::Argument& a : l.arguments) pointers.push_back(pointer_of(a));
    std::vector<void*> parameters;
    if (!l.params.empty()) parameters.push_back(const_cast<std::byte*>(l.params.data()));
    for (DevicePointer& p : pointers) parameters.push_back(&p);
    if (l.shared_bytes > 8 * 1024) {  // with a static part of up to 40 KB, past the 48 KB that need no asking
      check(driver().FuncSetAttribute(function, kFunctionDynamicShared, static_cast<int>(l.shared_bytes)),
            l.kernel.c_str());
    }
    // Not in a recording: a replay starts kernels as fast, and steps took 0.5 % longer.
    LaunchAttribute early = {.id = kStartsEarly, .value = starts_early && !recording_ ? 1 : 0};
    const LaunchConfig config = {{l.grid[0], l.grid[1], l.grid[2]},
                                 {l.block[0], l.block[1], l.block[2]},
                                 l.shared_bytes,
                                 card_->stream,
                                 &early,
                                 1};
    check(driver().LaunchKernelEx(&config, function, parameters.data(), nullptr), l.kernel.c_str());
  }
  void gemm(const gpu::Gemm& g) override {
    if (!MatrixProducts::is_there()) return gpu::own_product(*this, g);
    if (!workspace_) workspace_ = std::make_shared<CardMemory>(card_, MatrixProducts::kWorkspaceBytes);
    products_.run(g, pointer_of(g.a), pointer_of(g.b), pointer_of(g.c), pointer_of(g.addend),
                  workspace_->pointer(), card_->stream);
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
  bool has(const std::string& kernel, std::uint32_t shared_bytes) const override {
    return shared_bytes <= card_->most_shared_bytes && kernels_.has_kernel(kernel);
  }

  gpu::Argument error_word(ErrorSlot& errors, Explain explain) override {
    ErrorReports& reports = recording_ ? recording_->reports : reports_;
    if (reports.slots.size() == ErrorReports::kSlots) {
      if (recording_)
        fail(ErrorCode::not_supported, "record: more than ", ErrorReports::kSlots,
             " dispatches with indices");
      wait();
    }
    reports.slots.push_back({errors.weak_from_this(), std::move(explain)});
    return {reports.words.get(), (reports.slots.size() - 1) * sizeof(std::uint64_t), sizeof(std::uint64_t)};
  }

  void wait() {
    check(driver().StreamSynchronize(card_->stream), "waiting");
    reports_.collect(card_->stream);
    reports_.slots.clear();
    for (const auto& recording : replayed_) recording->reports.collect(card_->stream);
    replayed_.clear();
  }

  void refuse_while_recording(const char* what) const {
    require(!recording_, what, ": cuda:", card_->index,
            " is recording, expected only kernels until that ends");
  }
  void keep_alive(const Dispatch& d) const {
    require(recording_->thread == std::this_thread::get_id(), d.kernel, ": cuda:", card_->index,
            " is recording in another thread, expected kernels of that thread alone");
    for (const auto* buffers : {&d.reads, &d.writes}) {
      for (const Buffer& b : *buffers) {
        if (!static_cast<CardMemory&>(b.memory()).belongs_to(recording_->blocks.get()))
          recording_->before.push_back(b);
      }
    }
  }

  std::shared_ptr<Card> card_;
  CardKernels kernels_;
  std::mutex mutex_;
  std::atomic<bool> poison_ = false;
  MatrixProducts products_;
  std::shared_ptr<CardMemory> workspace_;
  ErrorReports reports_;
  Upload upload_;
  std::shared_ptr<Recording> recording_;              // set while work is recorded
  std::vector<std::shared_ptr<Recording>> replayed_;  // since the last wait
};

std::shared_ptr<Replay> CudaBackend::end_recording(bool keep) {
  const std::lock_guard lock(mutex_);
  card_->enter();
  const std::shared_ptr<Recording> recording = std::exchange(recording_, nullptr);
  Graph graph = nullptr;
  const Result result = driver().StreamEndCapture(card_->stream, &graph);
  {
    const std::lock_guard memory_lock(card_->memory_mutex);
    card_->recording = nullptr;
  }
  if (keep && result == kSuccess) {
    const Result made = driver().GraphInstantiateWithFlags(&recording->graph, graph, 0);
    driver().GraphDestroy(graph);
    check(made, "recording");
    return std::make_shared<CardReplay>(*this, recording);
  }
  if (graph != nullptr) driver().GraphDestroy(graph);
  if (keep) check(result, "recording");
  return nullptr;
}

void CardReplay::run() { backend_.replay(recording_); }

std::unique_ptr<PeerSums> join(const std::vector<Device>& devices) {
  std::vector<std::shared_ptr<Card>> cards;
  for (const Device& d : devices) {
    const auto* backend = dynamic_cast<const CudaBackend*>(&d.backend());
    if (backend == nullptr) return nullptr;
    cards.push_back(backend->card());
  }
  return sums_of_cards(std::move(cards));
}

[[maybe_unused]] const bool registered =
    register_backend("cuda", 10, [](int index) { return std::make_shared<CudaBackend>(index); }) &&
    register_peer_sums(join);

}  // namespace
}  // namespace mixtape::cuda
