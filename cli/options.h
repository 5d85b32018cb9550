// Options of the subcommands, in the groups in which --help lists them. Each value is checked by one short
// sentence: "--steps is 0, expected a whole number, 1 or more".
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>
#include <vector>

namespace mixtape::cli {

// The values that a number may have; both ends belong to it.
struct Interval {
  double least = 0.0;
  double most = 1e9;
  bool or_zero = false;  // zero too, although `least` lies above
};

// Of step sizes.
inline constexpr Interval kRates = {.least = 1e-12, .most = 100};

inline constexpr const char* kDeviceHelp = "cpu, cuda, cuda:N, or auto: the best there is";
inline constexpr const char* kDevicesHelp =
    "cpu, cuda, cuda:N, or auto: the best there is; cuda:0,cuda:1 or all: they share the rows of each step";
inline constexpr const char* kInterruptHelp =
    "Stopped by Ctrl-C, SIGTERM or SIGHUP, write the best state so far";
inline constexpr const char* kJsonHelp = "Write the figures here; -: to standard output";
inline constexpr const char* kHtmlHelp = "Write the figures here as a page to look at";

// `names` as CLI11 has it: "-o,--out". Messages call an option by its first long name.
class OptionGroup {
 public:
  OptionGroup(CLI::App& command, std::string group) : command_(command), group_(std::move(group)) {}

  CLI::Option* text(const std::string& names, std::string& value, const std::string& type,
                    const std::string& help);
  // Neither empty nor blank.
  CLI::Option* path(const std::string& names, std::string& value, const std::string& type,
                    const std::string& help);
  CLI::Option* paths(const std::string& names, std::vector<std::string>& values, const std::string& type,
                     const std::string& help);
  CLI::Option* flag(const std::string& names, bool& value, const std::string& help);
  CLI::Option* whole(const std::string& names, std::int64_t& value, Interval allowed,
                     const std::string& help);
  CLI::Option* whole(const std::string& names, int& value, const std::vector<int>& allowed,
                     const std::string& help);
  CLI::Option* seed(const std::string& names, std::uint64_t& value, const std::string& help);
  CLI::Option* number(const std::string& names, double& value, Interval allowed, const std::string& help);
  CLI::Option* number(const std::string& names, float& value, Interval allowed, const std::string& help);
  // Written as the program prints them: "300MB", "1.5 GB", "800KB" or a whole number.
  CLI::Option* bytes(const std::string& names, std::int64_t& value, const std::string& help);
  CLI::Option* choice(const std::string& names, std::string& value, const std::vector<std::string>& allowed,
                      const std::string& help);

 private:
  CLI::Option* parsed(const std::string& names, const std::string& type, const std::string& shown,
                      const std::string& help, std::function<void(const std::string&)> parse);

  CLI::App& command_;
  std::string group_;
};

// The words that an option of choice() takes; none for others.
std::vector<std::string> choices_of(const CLI::Option& option);

// Messages on its value name the file that gives it.
void set_origin(const std::string& option, const std::string& file);

// "--out" of "-o,--out,--output"
std::string long_name(const std::string& names);

}  // namespace mixtape::cli
