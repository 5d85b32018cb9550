#include "mixtape/backend/cpu/threads.h"

#include <omp.h>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

#include "hwy/cache_control.h"

namespace mixtape::cpu {
namespace {

using Clock = std::chrono::steady_clock;

// How long a worker looks for the next job before it sleeps: the pause between two kernels is shorter, and to
// wake it takes as long.
constexpr auto kAlert = std::chrono::microseconds(100);

thread_local bool is_inside = false;

struct Job {
  Work work = nullptr;
  void* context = nullptr;
  std::int64_t count = 0;
  std::int64_t turn = 1;
  std::uint32_t helpers = 0;  // that it has pieces for
};

class Team {
 public:
  void share(const Job& job);

 private:
  // Of the state word: workers inside the job, whether more may enter, and the job's number.
  static constexpr std::uint32_t kInside = (1u << 12) - 1;
  static constexpr std::uint32_t kOpen = 1u << 12;
  static constexpr std::uint32_t kNumber = 1u << 13;

  void start_workers(std::uint32_t wanted);
  void serve();
  std::uint32_t next_job(std::uint32_t last);
  void take_pieces();
  void wait_for_helpers();

  std::mutex busy_;  // held by the caller whose job runs
  Job job_;          // written while nobody is inside
  std::uint32_t workers_ = 0;
  alignas(64) std::atomic<std::uint32_t> state_ = 0;
  alignas(64) std::atomic<std::int64_t> next_ = 0;  // piece
  alignas(64) std::atomic<std::uint32_t> sleepers_ = 0;
  std::atomic<std::uint32_t> departures_ = 0;  // of last helpers from jobs that were closed
};

// A new thread runs where its creator may, and OpenMP binds that one to a single place if asked to (OMP_PROC_BIND).
void run_in_all_places() {
  cpu_set_t all;
  CPU_ZERO(&all);
  for (int place = 0; place < omp_get_num_places(); ++place) {
    std::vector<int> processors(static_cast<std::size_t>(omp_get_place_num_procs(place)));
    omp_get_place_proc_ids(place, processors.data());
    for (const int p : processors)
      if (p < CPU_SETSIZE) CPU_SET(p, &all);
  }
  if (CPU_COUNT(&all) > 0) sched_setaffinity(0, sizeof(all), &all);  // else it stays where it is
}

// Polls until `done` or for kAlert.
template <class Done>
bool look_out(const Done& done) {
  const auto until = Clock::now() + kAlert;
  do {
    for (int i = 0; i < 32; ++i) {
      if (done()) return true;
      hwy::Pause();
    }
  } while (Clock::now() < until);
  return false;
}

void Team::share(const Job& job) {
  const std::unique_lock lock(busy_, std::try_to_lock);
  is_inside = true;
  if (!lock) {
    job.work(job.context, 0, job.count);
  } else {
    start_workers(job.helpers);
    job_ = job;
    next_.store(0, std::memory_order_relaxed);
    const std::uint32_t number = (state_.load(std::memory_order_relaxed) & ~(kInside | kOpen)) + kNumber;
    state_.store(number | kOpen);
    const std::uint32_t sleeping = std::min(sleepers_.load(), job.helpers);
    for (std::uint32_t i = 0; i < sleeping; ++i) state_.notify_one();
    take_pieces();
    wait_for_helpers();
  }
  is_inside = false;
}

void Team::start_workers(std::uint32_t wanted) {
  for (; workers_ < std::min(wanted, kInside); ++workers_) {
    try {
      std::thread([this] { serve(); }).detach();
    } catch (const std::exception&) {  // the job gets along with fewer
      return;
    }
  }
}

void Team::serve() {
  run_in_all_places();
  is_inside = true;
  for (std::uint32_t seen = 0;;) {
    std::uint32_t state = next_job(seen);
    if (!state_.compare_exchange_strong(state, state + 1)) continue;
    seen = state & ~(kInside | kOpen);
    if ((state & kInside) < job_.helpers) take_pieces();
    const std::uint32_t left = state_.fetch_sub(1) - 1;
    if ((left & (kInside | kOpen)) == 0) {
      departures_.fetch_add(1);
      departures_.notify_one();
    }
  }
}

// The state of an open job other than the last one.
std::uint32_t Team::next_job(std::uint32_t last) {
  std::uint32_t state = 0;
  const auto is_there = [&] {
    state = state_.load();
    return (state & kOpen) != 0 && (state & ~(kInside | kOpen)) != last;
  };
  while (!look_out(is_there)) {
    sleepers_.fetch_add(1);
    if (!is_there()) state_.wait(state);
    sleepers_.fetch_sub(1);
  }
  return state;
}

void Team::take_pieces() {
  for (;;) {
    const std::int64_t begin = next_.fetch_add(job_.turn, std::memory_order_relaxed);
    if (begin >= job_.count) return;
    job_.work(job_.context, begin, std::min(job_.count, begin + job_.turn));
  }
}

void Team::wait_for_helpers() {
  state_.fetch_and(~kOpen);
  const auto is_done = [&] { return (state_.load() & kInside) == 0; };
  while (!is_done() && !look_out(is_done)) {
    const std::uint32_t before = departures_.load();
    if (!is_done()) departures_.wait(before);
  }
}

// Never destroyed: its threads end with the process.
Team& team() {
  static Team& all = *new Team;
  return all;
}

}  // namespace

int thread_count() { return omp_get_max_threads(); }
bool is_inside_job() { return is_inside; }

void share(std::int64_t count, std::int64_t turn, Work work, void* context) noexcept {
  const std::int64_t turns = (count + turn - 1) / turn;
  const std::int64_t helpers = std::min<std::int64_t>(thread_count(), turns) - 1;
  if (is_inside || helpers <= 0) return work(context, 0, count);
  team().share({work, context, count, turn, static_cast<std::uint32_t>(helpers)});
}

}  // namespace mixtape::cpu
