// mixtape doctor: what this machine offers, and why not more.
#include <dnnl.h>
#include <fmt/core.h>
#include <hwy/highway.h>
#include <omp.h>
#include <unistd.h>

#include "cli/commands.h"
#include "cli/progress.h"
#include "mixtape/core/error.h"
#include "mixtape/runtime/device.h"

namespace mixtape::cli {
namespace {

const char* yes_no(bool b) { return b ? "yes" : "no"; }

void print_gpu() {
  try {
    fmt::print("gpu          {}\n", Device::open("cuda").description());
  } catch (const Error& error) {
    fmt::print("gpu          none ({})\n", error.what());
  }
}

void run_doctor() {
  const Device cpu = Device::cpu();
  const dnnl_version_t* dnnl = dnnl_version();
  const double memory =
      static_cast<double>(::sysconf(_SC_PHYS_PAGES)) * static_cast<double>(::sysconf(_SC_PAGESIZE));
  const double free =
      static_cast<double>(::sysconf(_SC_AVPHYS_PAGES)) * static_cast<double>(::sysconf(_SC_PAGESIZE));
  fmt::print("processor    {}\n", cpu.description());
  fmt::print("avx2         {}\n", yes_no(__builtin_cpu_supports("avx2")));
  fmt::print("avx512       {}\n",
             yes_no(__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw")));
  fmt::print("avx512_bf16  {}\n", yes_no(__builtin_cpu_supports("avx512bf16")));
  fmt::print("memory       {} in all, {} free\n", format_bytes(memory), format_bytes(free));
  print_gpu();
  fmt::print("oneDNN       {}.{}.{}\n", dnnl->major, dnnl->minor, dnnl->patch);
  fmt::print("Highway      {}.{}.{}\n", HWY_MAJOR, HWY_MINOR, HWY_PATCH);
  fmt::print("OpenMP       {} threads\n", omp_get_max_threads());
}

}  // namespace

void add_doctor(CLI::App& app, int&) {
  CLI::App* command = app.add_subcommand("doctor", "Shows processor features, GPU, memory and libraries.");
  command->callback(run_doctor);
}

}  // namespace mixtape::cli
