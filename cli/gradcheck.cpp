// mixtape gradcheck: every op's forward and gradient on this machine, against double-precision oracles.
#include <fmt/core.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "cli/commands.h"
#include "cli/json_report.h"
#include "cli/nearest.h"
#include "cli/options.h"
#include "cli/outputs.h"
#include "mixtape/core/counted.h"
#include "mixtape/core/error.h"
#include "mixtape/core/stopwatch.h"
#include "mixtape/testing/check_registry.h"

namespace mixtape::cli {
namespace {

struct GradcheckOptions {
  std::string device = "cpu";
  std::vector<std::string> ops;
  std::int64_t runs = 20;
  bool list = false;
  std::string json_file;
};

// All cases of one op and dtype. Errors are in units of the cases' bounds.
struct Row {
  std::string op;
  DType dtype = DType::f32;
  std::size_t cases = 0;
  double forward_error = 0.0;
  double gradient_error = 0.0;
  bool has_gradient = false;
  bool oracle_proved = false;
  bool deterministic = true;
  double seconds = 0.0;
  std::vector<std::string> faults;
};

void add(Row& row, const testing::OpReport& report) {
  ++row.cases;
  row.forward_error = std::max(row.forward_error, report.forward_error);
  row.gradient_error = std::max(row.gradient_error, report.gradient_error);
  row.has_gradient |= report.has_gradient;
  row.oracle_proved |= report.oracle_proved;
  row.deterministic &= report.deterministic;
  row.faults.insert(row.faults.end(), report.faults.begin(), report.faults.end());
}

Row measure(const Device& device, const testing::OpChecks& checks, DType dtype, int runs) {
  const Stopwatch watch;
  Row row;
  row.op = checks.op;
  row.dtype = dtype;
  for (const testing::OpCheck& check : checks.build(device, dtype)) {
    try {
      add(row, testing::measure_op(device, check, runs));
    } catch (const Error& error) {
      row.faults.push_back(fmt::format("{}: {}", check.name, error.what()));
    }
  }
  row.seconds = watch.seconds();
  return row;
}

void print(const Row& row) {
  const std::string gradient = row.has_gradient ? fmt::format("{:.3f}", row.gradient_error) : "-";
  const char* oracle = !row.has_gradient ? "-" : row.oracle_proved ? "proved" : "no";
  fmt::print("{:<22} {:<5} {:>5}  {:>7.3f}  {:>8}  {:<6}  {:<13}  {:>6.2f}\n", row.op, name(row.dtype),
             row.cases, row.forward_error, gradient, oracle, row.deterministic ? "yes" : "no", row.seconds);
  for (const std::string& fault : row.faults) fmt::print("  {} {}: {}\n", row.op, name(row.dtype), fault);
  std::fflush(stdout);
}

nlohmann::json to_json(const Row& row) {
  nlohmann::json json = {{"op", row.op},
                         {"dtype", name(row.dtype)},
                         {"cases", row.cases},
                         {"forward_error", row.forward_error},
                         {"gradient_error", nullptr},
                         {"oracle_proved", row.oracle_proved},
                         {"deterministic", row.deterministic},
                         {"seconds", row.seconds},
                         {"faults", row.faults}};
  if (row.has_gradient) json["gradient_error"] = row.gradient_error;
  return json;
}

// Those of the named ops, all if none is named.
std::vector<testing::OpChecks> chosen_checks(const std::vector<std::string>& ops) {
  std::vector<testing::OpChecks> all = testing::all_op_checks();
  std::vector<std::string> names;
  for (const testing::OpChecks& checks : all) names.push_back(checks.op);
  for (const std::string& op : ops) {
    require(std::find(names.begin(), names.end(), op) != names.end(),
            "gradcheck: ", unknown_word("op", op, names, "mixtape gradcheck --list"));
  }
  if (ops.empty()) return all;
  std::erase_if(all, [&](const auto& c) { return std::find(ops.begin(), ops.end(), c.op) == ops.end(); });
  return all;
}

// The largest part that is relative and the largest that is absolute, over all cases.
std::string widest(const std::vector<testing::OpCheck>& cases, testing::Bound testing::OpCheck::*member) {
  testing::Bound bound{0.0, 0.0};
  for (const testing::OpCheck& check : cases) {
    bound.units = std::max(bound.units, (check.*member).units);
    bound.absolute = std::max(bound.absolute, (check.*member).absolute);
  }
  return fmt::format("{:.3g} + {:.1e}", bound.units, bound.absolute);
}

void print_bounds(const Device& device, const std::vector<testing::OpChecks>& chosen) {
  fmt::print("{:<22} {:<5} {:>5}  {:<17}  {}\n", "op", "dtype", "cases", "forward", "gradient");
  for (const testing::OpChecks& checks : chosen) {
    for (const DType dtype : checks.dtypes) {
      const std::vector<testing::OpCheck> cases = checks.build(device, dtype);
      const bool has_gradient =
          std::any_of(cases.begin(), cases.end(), [](const auto& c) { return c.backward; });
      fmt::print("{:<22} {:<5} {:>5}  {:<17}  {}\n", checks.op, name(dtype), cases.size(),
                 widest(cases, &testing::OpCheck::forward_bound),
                 has_gradient ? widest(cases, &testing::OpCheck::backward_bound) : "-");
    }
  }
}

int run_gradcheck(const GradcheckOptions& o) {
  ReportFile report(o.json_file, {});
  const Device device = Device::open(o.device);
  const std::vector<testing::OpChecks> chosen = chosen_checks(o.ops);
  if (o.list) {
    print_bounds(device, chosen);
    return Status::ok;
  }
  fmt::print("{}\nerrors are the worst element's, 1 being its bound\n\n", device.description());
  fmt::print("{:<22} {:<5} {:>5}  {:>7}  {:>8}  {:<6}  {:<13}  {:>6}\n", "op", "dtype", "cases", "forward",
             "gradient", "oracle", "deterministic", "s");
  nlohmann::json rows = nlohmann::json::array();
  std::size_t faults = 0, cases = 0;
  for (const testing::OpChecks& checks : chosen) {
    for (const DType dtype : checks.dtypes) {
      const Row row = measure(device, checks, dtype, static_cast<int>(o.runs));
      print(row);
      rows.push_back(to_json(row));
      faults += row.faults.size();
      cases += row.cases;
    }
  }
  fmt::print("\n{}, {}, {}\n", counted(chosen.size(), "op"), counted(cases, "case"),
             counted(faults, "fault"));
  nlohmann::json json = report_head("gradcheck");
  json.update({{"device", device.name()}, {"runs", o.runs}, {"ops", rows}});
  report.write(json);
  return faults == 0 ? Status::ok : Status::failed;
}

}  // namespace

void add_gradcheck(CLI::App& app, int& status) {
  CLI::App* command = app.add_subcommand(
      "gradcheck", "Checks every op's forward and gradient against double-precision oracles.");
  auto o = std::make_shared<GradcheckOptions>();
  OptionGroup group(*command, "Checks");
  group.path("--device", o->device, "NAME", kDeviceHelp);
  group.paths("--op", o->ops, "NAME", "Only this op; may be repeated");
  group.whole("--runs", o->runs, {.least = 1, .most = 1e6}, "Runs that must give the same bits");
  group.flag("--list", o->list, "List ops, cases and bounds (units of epsilon + absolute); run nothing");
  OptionGroup(*command, "Report").path("--json", o->json_file, "FILE", kJsonHelp);
  command->footer("Example:\n  mixtape gradcheck --op softmax --op matmul --device auto");
  command->callback([o, command, &status] {
    for (const char* name : {"--runs", "--json"})
      require(!o->list || command->count(name) == 0, name, " has no effect: --list runs nothing");
    status = run_gradcheck(*o);
  });
}

}  // namespace mixtape::cli
