// mixtape doctor: what this machine offers, how fast it is, and why not more.
#include <dnnl.h>
#include <fmt/core.h>
#include <hwy/highway.h>
#include <omp.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>

#include "cli/commands.h"
#include "cli/json_report.h"
#include "cli/options.h"
#include "cli/outputs.h"
#include "cli/progress.h"
#include "cli/text_table.h"
#include "mixtape/core/counted.h"
#include "mixtape/core/error.h"
#include "mixtape/core/stopwatch.h"
#include "mixtape/ops/matmul/matmul.h"
#include "mixtape/runtime/libraries.h"

namespace mixtape::cli {
namespace {

using Json = nlohmann::json;

// Bytes that programs may still take, those of the file cache among them; what is wholly unused where the system
// doesn't say.
double available_bytes(double page) {
  std::ifstream lines("/proc/meminfo");
  for (std::string name, unit; lines >> name;) {
    double value = 0.0;
    if (!(lines >> value)) break;
    std::getline(lines, unit);
    if (name == "MemAvailable:") return 1024.0 * value;
  }
  return static_cast<double>(::sysconf(_SC_AVPHYS_PAGES)) * page;
}

// By name, and whether it is there; of other processors what the program was compiled for.
Json instruction_sets() {
#if defined(__x86_64__)
  return {{"avx2", __builtin_cpu_supports("avx2") != 0},
          {"avx512", __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw")},
          {"avx512_bf16", __builtin_cpu_supports("avx512bf16") != 0}};
#else
  return {{hwy::TargetName(HWY_STATIC_TARGET), true}};
#endif
}

void print_machine(Json& report) {
  const auto page = static_cast<double>(::sysconf(_SC_PAGESIZE));
  const double all = static_cast<double>(::sysconf(_SC_PHYS_PAGES)) * page, available = available_bytes(page);
  print_fact("processor", "{}", Device::cpu().description());
  const Json sets = instruction_sets();
  for (const auto& [set, is_there] : sets.items()) print_fact(set, "{}", is_there.get<bool>() ? "yes" : "no");
  print_fact("memory", "{} in all, {} free", format_bytes(all), format_bytes(available));
  const dnnl_version_t* dnnl = dnnl_version();
  const Json libraries = {{"oneDNN", fmt::format("{}.{}.{}", dnnl->major, dnnl->minor, dnnl->patch)},
                          {"Highway", fmt::format("{}.{}.{}", HWY_MAJOR, HWY_MINOR, HWY_PATCH)}};
  for (const auto& [library, found] : libraries.items()) print_fact(library, "{}", found.get<std::string>());
  print_fact("OpenMP", "{}", counted(omp_get_max_threads(), "thread"));
  report = report_head("doctor");
  report.update({{"processor", Device::cpu().description()},
                 {"memory_bytes", all},
                 {"available_bytes", available},
                 {"threads", omp_get_max_threads()},
                 {"instruction_sets", sets},
                 {"libraries", libraries},
                 {"missing", Json::object()}});
}

// Processes that ran or waited in the last minute, and the cores for them.
struct Load {
  double processes = 0.0;
  long cores = ::sysconf(_SC_NPROCESSORS_ONLN);

  bool is_busy() const { return processes > 0.5 * static_cast<double>(cores); }
};

Load load_now() {
  Load load;
  ::getloadavg(&load.processes, 1);
  return load;
}

void print_libraries(Json& report) {
  for (const Library& library : registered_libraries()) {
    try {
      const std::string found = library.version();
      print_fact(library.name, "{}", found);
      report["libraries"][library.name] = found;
    } catch (const Error& error) {
      print_fact(library.name, "none ({})", error.what());
      report["libraries"][library.name] = nullptr;
      report["missing"][library.name] = error.what();
    }
  }
}

// Seconds of one call, the best within a quarter of a second. The first call loads kernels and isn't counted.
template <class Work>
double seconds_of(CommandEncoder& encoder, Work work) {
  work();
  encoder.commit_and_wait();
  double best = std::numeric_limits<double>::infinity();
  for (const Stopwatch all; all.seconds() < 0.25;) {
    const Stopwatch watch;
    work();
    encoder.commit_and_wait();
    best = std::min(best, watch.seconds());
  }
  return best;
}

Buffer filled(CommandEncoder& encoder, DType dtype, const Shape& shape) {
  const Buffer b = encoder.device().alloc_uninitialized(dtype, shape);
  encoder.fill(b, 0.5f);
  return b;
}

// A product of square matrices large enough for the device's full speed, and a copy past its caches.
struct Speed {
  std::int64_t size;
  DType dtype;
  double flops, bytes;  // per second; a copied byte counts twice, read and written
};

Speed measure(const Device& device) {
  const bool is_host = device.caps().has_host_memory;
  Speed speed{is_host ? 1024 : 8192, is_host ? DType::f32 : DType::bf16, 0.0, 0.0};
  const std::int64_t n = speed.size, copied = std::int64_t{1} << (is_host ? 27 : 30);
  CommandEncoder encoder(device);
  {  // first: a card that is lost says so here, and not within a library
    const Buffer from = filled(encoder, DType::f32, {copied / 4}),
                 to = filled(encoder, DType::f32, {copied / 4});
    speed.bytes = 2.0 * static_cast<double>(copied) / seconds_of(encoder, [&] { encoder.copy(from, to); });
  }
  const Buffer a = filled(encoder, speed.dtype, {n, n}), b = filled(encoder, speed.dtype, {n, n}),
               y = device.alloc_uninitialized(speed.dtype, {n, n});
  const auto size = static_cast<double>(n);
  speed.flops = 2.0 * size * size * size / seconds_of(encoder, [&] { matmul_forward(encoder, a, b, y); });
  return speed;
}

// Prints a device and its speed; the rate of its products, or nothing where it can't be used.
std::optional<double> examine(const Device& device, Json& report) {
  Json facts = {{"name", device.name()}, {"description", device.description()}};
  print_fact(device.name(), "{}", device.description());
  try {
    const Speed s = measure(device);
    print_fact("", "{:.3g} TFLOP/s (product of {}, {}^3), {:.4g} GB/s (copy)", s.flops / 1e12, name(s.dtype),
               s.size, s.bytes / 1e9);
    facts.update({{"product_flops", s.flops},
                  {"product_size", s.size},
                  {"product_dtype", name(s.dtype)},
                  {"copy_bytes_per_second", s.bytes}});
    report["devices"].push_back(facts);
    return s.flops;
  } catch (const Error& error) {
    print_fact("", "cannot be used: {}", error.what());
    facts["cannot_be_used"] = error.what();
    report["devices"].push_back(facts);
    return std::nullopt;
  }
}

// Of calibrating 1 billion weights on 100,000 tokens, at the least: 8 floating-point operations per weight and token,
// teacher included.
double least_seconds(double flops) {
  constexpr double kWeights = 1e9, kTokens = 1e5;
  return 8.0 * kWeights * kTokens / flops;
}

// The devices of one kind, all of them; why there is none.
std::string examine_kind(const std::string& kind, std::string& fastest, double& rate, Json& report) {
  std::string reason;
  for (int index = 0;; ++index) {
    const std::string device_name = fmt::format("{}:{}", kind, index);
    try {
      const Device device = Device::open(device_name);
      const std::optional<double> flops = examine(device, report);
      if (!flops) reason = device_name + " cannot be used, take --device cpu";
      if (flops.value_or(0.0) > rate) fastest = device_name, rate = *flops;
    } catch (const Error& error) {
      return index == 0 ? error.what() : reason;
    }
  }
}

void run_doctor(const std::string& json_file) {
  ReportFile file(json_file, {});
  const Load load = load_now();
  Json report;
  print_machine(report);
  print_libraries(report);
  double rate = 0.0;
  const double cpu_rate = examine(Device::cpu(), report).value_or(0.0);
  std::string fastest, why_not;
  for (const std::string& kind : registered_backends()) {
    if (kind != "cpu") why_not += examine_kind(kind, fastest, rate, report);
  }
  const std::string where =
      rate > 0.0 ? "ready, on " + fastest : fmt::format("ready, on the processor alone ({})", why_not);
  const double least = least_seconds(rate > 0.0 ? rate : cpu_rate);
  report.update({{"verdict", where}, {"least_seconds", least}, {"load_average", load.processes}});
  report_then_tell({[&] { file.write(report); }}, [&] {
    if (load.is_busy())
      print_fact(
          "busy",
          "other programs were running (load average {:.1f} on {}): an idle machine is faster than was "
          "measured",
          load.processes, counted(load.cores, "core"));
    print_fact("verdict", "{}: calibrating 1 billion weights on 100,000 tokens takes at least {}", where,
               format_seconds(least));
  });
}

}  // namespace

void add_doctor(CLI::App& app, int&) {
  CLI::App* command =
      app.add_subcommand("doctor", "Shows processor, GPUs, memory and libraries, measured in a few seconds.");
  auto json_file = std::make_shared<std::string>();
  OptionGroup(*command, "Report").path("--json", *json_file, "FILE", kJsonHelp);
  command->callback([json_file] { run_doctor(*json_file); });
}

}  // namespace mixtape::cli
