#include "mixtape/backend/sim/machine.h"

#include <algorithm>
#include <boost/context/fiber.hpp>
#include <boost/context/pooled_fixedsize_stack.hpp>
#include <memory>
#include <mutex>
#include <new>
#include <unordered_map>

namespace mixtape::sim {
namespace {

namespace context = boost::context;

constexpr std::size_t kStackBytes = 256 * 1024;

enum class State { ready, at_barrier, at_lanes, done };

struct Thread {
  Place place;
  context::fiber fiber;
  State state = State::ready;
  int flat = 0;
  int line = 0;             // of the barrier it waits at
  std::uint64_t value = 0;  // given to the warp, then taken from it
  int from = 0;
  bool orders = false;
  bool has_awaited_earlier = false;
  int warp() const { return flat / kLanes; }
};

struct Kernel {
  int max_threads = 0;
  KernelBody body;
};

std::unordered_map<std::string, Kernel>& table() {
  static std::unordered_map<std::string, Kernel> kernels;
  return kernels;
}

// One launch. Only one runs at a time (the backend's lock).
struct Machine {
  std::string kernel;
  std::vector<std::unique_ptr<Thread>> threads;
  std::vector<std::int32_t> warp_times;
  std::int32_t launch = 0;
  std::int32_t block = 0;
  std::int32_t time = 0;
  Thread* current = nullptr;
  context::fiber scheduler;
  std::string fault;
  bool is_out_of_memory = false;  // the host's, in a thread
  std::vector<std::pair<const char*, std::unique_ptr<Region>>> shared;
  std::unique_ptr<Region> dynamic;
  std::size_t dynamic_bytes = 0;

  std::int32_t warp_time() const { return warp_times[static_cast<std::size_t>(current->warp())]; }
};

Machine* machine = nullptr;

struct Running {
  explicit Running(Machine& launch) { machine = &launch; }
  ~Running() { machine = nullptr; }
  Running(const Running&) = delete;
  Running& operator=(const Running&) = delete;
};

std::int32_t launches = 0;

std::string triple(const std::array<int, 3>& v) { return str("(", v[0], ",", v[1], ",", v[2], ")"); }

void switch_to_scheduler() { machine->scheduler = std::move(machine->scheduler).resume(); }

void wait_as(State state) {
  machine->current->state = state;
  switch_to_scheduler();
}

// Reads and writes of one thread are ordered; those of a block by its barriers, of a warp by lane_barrier.
bool is_ordered(std::int32_t time, std::int32_t warp, std::int32_t warp_time) {
  if (time != machine->time) return true;
  return warp == machine->current->warp() && warp_time != machine->warp_time();
}

// What is known of a place, forgotten where it is of an earlier launch, or of another block's shared memory.
Trace& trace_at(Region& region, std::size_t granule) {
  Trace& t = region.traces[granule];
  const std::int32_t epoch = region.is_shared ? machine->launch + machine->block : machine->launch;
  if (t.launch != epoch) {
    t = Trace();
    t.launch = epoch;
  }
  return t;
}

void conflict(const char* name, std::int64_t at, const char* mine, const char* theirs, std::int32_t block,
              std::int32_t thread) {
  fault(str(name, ": ", mine, " of byte ", at, " races with a ", theirs, " by ",
            block == -2 ? "other blocks" : str("block ", block), ", ",
            thread == -2 ? "several threads" : str("thread ", thread)));
}

void check_against_write(const Trace& t, const char* name, std::int64_t at, const char* mine) {
  if (t.write_thread < 0) return;
  const bool other_block = t.write_block != machine->block;
  const bool other_thread = t.write_thread != machine->current->flat;
  if (other_block || (other_thread && !is_ordered(t.write_time, t.write_thread / kLanes, t.write_warp_time)))
    conflict(name, at, mine, "write", t.write_block, t.write_thread);
}

void check_against_read(const Trace& t, const char* name, std::int64_t at) {
  if (t.read_block == -1) return;
  const bool other_block = t.read_block != machine->block;
  const bool other_thread = t.read_thread != machine->current->flat;
  if (other_block || (other_thread && !is_ordered(t.read_time, t.read_warp, t.read_warp_time)))
    conflict(name, at, "a write", "read", t.read_block, t.read_thread);
}

void note_read(Trace& t) {
  const Thread& me = *machine->current;
  if (t.read_block != -1 && t.read_block != machine->block) {
    t.read_block = -2;
    return;
  }
  const bool is_new = t.read_block == -1 || t.read_time != machine->time;
  t.read_thread = is_new || t.read_thread == me.flat ? me.flat : -2;
  t.read_warp = is_new || t.read_warp == me.warp() ? me.warp() : -2;
  t.read_block = machine->block;
  t.read_time = machine->time;
  t.read_warp_time = machine->warp_time();
}

void give_lanes(std::span<const std::unique_ptr<Thread>> warp) {
  std::array<std::uint64_t, kLanes> given{};
  for (std::size_t i = 0; i < warp.size(); ++i) given[i] = warp[i]->value;
  if (warp[0]->orders) ++machine->warp_times[static_cast<std::size_t>(warp[0]->warp())];
  for (const auto& thread : warp) {
    thread->value = given[static_cast<std::size_t>(thread->from)];
    thread->state = State::ready;
  }
}

void resume(Thread& thread) {
  machine->current = &thread;
  thread.fiber = std::move(thread.fiber).resume();
  if (!machine->fault.empty()) throw Error(ErrorCode::device, machine->fault);
  if (machine->is_out_of_memory) throw std::bad_alloc();
}

// Runs a warp until each of its threads is done or at a barrier.
void run_warp(std::span<const std::unique_ptr<Thread>> warp) {
  for (;;) {
    for (const auto& thread : warp) {
      if (thread->state == State::ready) resume(*thread);
    }
    const auto waits = [](const auto& thread) { return thread->state == State::at_lanes; };
    const auto waiting = std::count_if(warp.begin(), warp.end(), waits);
    if (waiting == 0) return;
    if (waiting != static_cast<std::ptrdiff_t>(warp.size())) {
      fail(ErrorCode::device, "kernel ", machine->kernel, ", block ", machine->block, ", warp ",
           warp[0]->warp(), ": ", waiting, " of ", warp.size(),
           " threads are at a lane operation, the others are elsewhere");
    }
    give_lanes(warp);
  }
}

// True where every thread is done; otherwise all stand at the same barrier.
bool pass_barrier(const std::vector<std::unique_ptr<Thread>>& threads) {
  const auto done =
      std::count_if(threads.begin(), threads.end(), [](const auto& t) { return t->state == State::done; });
  if (done == static_cast<std::ptrdiff_t>(threads.size())) return true;
  const auto same = [&](const auto& t) { return t->line == threads[0]->line; };
  if (done > 0 || !std::all_of(threads.begin(), threads.end(), same)) {
    fail(ErrorCode::device, "kernel ", machine->kernel, ", block ", machine->block,
         ": divergent barrier: ", done, " of ", threads.size(),
         " threads have returned, others wait in line ",
         (*std::find_if(threads.begin(), threads.end(), [](const auto& t) {
           return t->state == State::at_barrier;
         }))->line);
  }
  ++machine->time;
  for (const auto& thread : threads) thread->state = State::ready;
  return false;
}

void run_block(const std::array<int, 3>& block) {
  for (auto& [name, region] : machine->shared) std::fill(region->written.begin(), region->written.end(), 0);
  if (machine->dynamic) std::fill(machine->dynamic->written.begin(), machine->dynamic->written.end(), 0);
  ++machine->time;
  for (const auto& thread : machine->threads) {
    thread->place.block = block;
    thread->has_awaited_earlier = false;
    thread->state = State::ready;
  }
  const std::span<const std::unique_ptr<Thread>> all(machine->threads);
  do {
    for (std::size_t first = 0; first < all.size(); first += kLanes)
      run_warp(all.subspan(first, std::min<std::size_t>(kLanes, all.size() - first)));
  } while (!pass_barrier(machine->threads));
}

std::unique_ptr<Thread> make_thread(int flat, const LaunchShape& shape, const KernelBody& body,
                                    std::span<const std::byte> params, const std::vector<View>& views,
                                    context::pooled_fixedsize_stack& stacks) {
  auto thread = std::make_unique<Thread>();
  thread->flat = flat;
  const int width = static_cast<int>(shape.block[0]);
  thread->place.thread = {flat % width, flat / width, 0};
  for (std::size_t i = 0; i < 3; ++i) {
    thread->place.threads[i] = static_cast<int>(shape.block[i]);
    thread->place.blocks[i] = static_cast<int>(shape.grid[i]);
  }
  thread->fiber = context::fiber(std::allocator_arg, stacks,
                                 [&body, params, &views](context::fiber&& scheduler) -> context::fiber {
                                   machine->scheduler = std::move(scheduler);
                                   for (;;) {
                                     try {
                                       body(params, views);
                                       if (!machine->current->has_awaited_earlier)
                                         fault("ends without await_earlier");
                                     } catch (const std::bad_alloc&) {
                                       machine->is_out_of_memory = true;
                                     }
                                     wait_as(State::done);
                                   }
                                 });
  return thread;
}

}  // namespace

const Place& here() { return machine->current->place; }

void fault(const std::string& what) {
  const Thread& me = *machine->current;
  machine->fault = str("kernel ", machine->kernel, ", block ", triple(me.place.block), ", thread ",
                       triple(me.place.thread), ": ", what);
  for (;;) switch_to_scheduler();  // until its stack is unwound
}

std::byte* View::check(std::int64_t at, std::size_t size, const char* access) const {
  if (region_ == nullptr) fault(str(access, " through a null pointer"));
  if (at < begin_ || at + static_cast<std::int64_t>(size) > end_) {
    fault(str(name_, ": ", access, " of ", size, " bytes at byte ", at - begin_, ", expected 0 to ",
              end_ - begin_ - 1));
  }
  if (!region_->is_shared && !machine->current->has_awaited_earlier)
    fault(str(name_, ": ", access, " before await_earlier"));
  if (at % static_cast<std::int64_t>(size) != 0)
    fault(str(name_, ": ", access, " of ", size, " bytes at byte ", at, ", which is not aligned"));
  return region_->bytes.data() + at;
}

void View::check_written(std::int64_t at, std::size_t size) const {
  for (std::size_t i = 0; i < size; ++i) {
    if (region_->written[static_cast<std::size_t>(at) + i] == 0)
      fault(str(name_, ": read of byte ", at - begin_, ", which nothing wrote"));
  }
}

void View::mark_written(std::int64_t at, std::size_t size) const {
  std::fill_n(region_->written.begin() + at, size, std::uint8_t{1});
}

// Bytes of a pair are not told apart, so single bytes are not followed.
void View::trace_read(std::int64_t at, std::size_t size) const {
  for (std::size_t g = 0; g < size / 2; ++g) {
    Trace& t = trace_at(*region_, static_cast<std::size_t>(at) / 2 + g);
    check_against_write(t, name_, at - begin_, "a read");
    note_read(t);
  }
}

void View::trace_write(std::int64_t at, std::size_t size) const {
  for (std::size_t g = 0; g < size / 2; ++g) {
    Trace& t = trace_at(*region_, static_cast<std::size_t>(at) / 2 + g);
    check_against_write(t, name_, at - begin_, "a write");
    check_against_read(t, name_, at - begin_);
    t.write_block = machine->block;
    t.write_thread = machine->current->flat;
    t.write_time = machine->time;
    t.write_warp_time = machine->warp_time();
  }
}

void block_barrier(int line) {
  machine->current->line = line;
  wait_as(State::at_barrier);
}

std::uint64_t lane_exchange(std::uint64_t value, int from, bool orders) {
  Thread& me = *machine->current;
  const int first = me.warp() * kLanes;
  const int count = std::min<int>(kLanes, static_cast<int>(machine->threads.size()) - first);
  if (from < 0 || from >= count) fault(str("takes a value from lane ", from, ", the warp has ", count));
  me.value = value;
  me.from = from;
  me.orders = orders;
  wait_as(State::at_lanes);
  return me.value;
}

std::uint32_t lane_ballot(bool vote) {
  const int first = machine->current->warp() * kLanes;
  const int count = std::min<int>(kLanes, static_cast<int>(machine->threads.size()) - first);
  std::uint32_t all = 0;
  for (int lane = 0; lane < count; ++lane)
    all |= static_cast<std::uint32_t>(lane_exchange(vote ? 1 : 0, lane, false)) << lane;
  return all;
}

void await_earlier() { machine->current->has_awaited_earlier = true; }

View shared_view(const char* name, std::size_t bytes) {
  for (auto& [known, region] : machine->shared) {
    if (known == name) return View(region.get(), 0, static_cast<std::int64_t>(bytes), name);
  }
  machine->shared.emplace_back(name, std::make_unique<Region>(bytes, true));
  return View(machine->shared.back().second.get(), 0, static_cast<std::int64_t>(bytes), name);
}

View shared_dynamic_view() {
  if (!machine->dynamic) machine->dynamic = std::make_unique<Region>(machine->dynamic_bytes, true);
  return View(machine->dynamic.get(), 0, static_cast<std::int64_t>(machine->dynamic_bytes),
              "dynamic shared memory");
}

bool register_kernel(const std::string& name, int max_threads, KernelBody body) {
  return table().emplace(name, Kernel{max_threads, std::move(body)}).second;
}

bool has_kernel(const std::string& name) { return table().contains(name); }

std::vector<std::string> kernels() {
  std::vector<std::string> names;
  for (const auto& [name, kernel] : table()) names.push_back(name);
  std::sort(names.begin(), names.end());
  return names;
}

void run_kernel(const std::string& name, const LaunchShape& shape, std::span<const std::byte> params,
                const std::vector<View>& views) {
  const auto found = table().find(name);
  if (found == table().end()) fail(ErrorCode::not_supported, "kernel '", name, "' does not exist on sim");
  const int threads = static_cast<int>(shape.block[0] * shape.block[1] * shape.block[2]);
  if (threads < 1 || threads > found->second.max_threads || shape.block[2] != 1) {
    fail(ErrorCode::device, "kernel ", name, ": launched with ", threads, " threads a block, expected 1 to ",
         found->second.max_threads, " in two dimensions");
  }
  static std::mutex one_at_a_time;  // of all simulated devices
  const std::lock_guard lock(one_at_a_time);
  Machine state;
  const Running running(state);
  // Kept: making them costs more than most launches.
  static thread_local context::pooled_fixedsize_stack stacks(kStackBytes);
  state.kernel = name;
  state.dynamic_bytes = shape.shared_bytes;
  state.launch = launches;
  const auto blocks = static_cast<std::int32_t>(shape.grid[0] * shape.grid[1] * shape.grid[2]);
  launches += blocks;
  state.warp_times.resize(static_cast<std::size_t>((threads + kLanes - 1) / kLanes));
  for (int t = 0; t < threads; ++t)
    state.threads.push_back(make_thread(t, shape, found->second.body, params, views, stacks));
  for (state.block = 0; state.block < blocks; ++state.block) {
    const auto x = static_cast<int>(shape.grid[0]), y = static_cast<int>(shape.grid[1]);
    run_block({state.block % x, state.block / x % y, state.block / (x * y)});
  }
  state.threads.clear();
}

}  // namespace mixtape::sim
