#include "cli/options.h"

#include <fmt/core.h>
#include <strings.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <limits>
#include <map>
#include <optional>
#include <utility>

#include "mixtape/core/error.h"

namespace mixtape::cli {
namespace {

// The whole text as a T, or nothing.
template <class T>
std::optional<T> parse(const std::string& text) {
  T value{};
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || stop != end) return std::nullopt;
  return value;
}

// Units are decimal.
std::optional<double> parse_bytes(const std::string& text) {
  const std::size_t end = std::min(text.find_first_not_of("0123456789."), text.size());
  const std::optional<double> number = parse<double>(text.substr(0, end));
  const std::size_t unit = std::min(text.find_first_not_of(' ', end), text.size());
  std::string name = text.substr(unit);
  for (char& c : name) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  if (!number) return std::nullopt;
  if (name == "GB") return *number * 1e9;
  if (name == "MB") return *number * 1e6;
  if (name == "KB") return *number * 1e3;
  return name.empty() ? number : std::nullopt;
}

// Files that give options, by any of the names that a file may have used.
std::map<std::string, std::string>& origins() {
  static std::map<std::string, std::string> all;
  return all;
}

// "--bits", or "run.toml: --bits" where a file gives it.
std::string shown_name(const std::string& names) {
  for (const auto& [option, file] : origins()) {
    if (("," + names + ",").find("," + option + ",") != names.npos) return file + ": " + option;
  }
  return long_name(names);
}

std::string describe(Interval allowed) {
  const std::string zero = allowed.or_zero ? "0 or " : "";
  if (allowed.most >= Interval{}.most) return fmt::format("{}{} or more", zero, allowed.least);
  return fmt::format("{}{} to {}", zero, allowed.least, allowed.most);
}

template <class T>
T checked(const std::string& names, const std::string& text, Interval allowed, const char* kind) {
  const std::optional<T> value = parse<T>(text);
  const auto number = static_cast<double>(value.value_or(T{}));
  const bool inside = number >= allowed.least && number <= allowed.most;
  require(value && (inside || (allowed.or_zero && number == 0.0)), shown_name(names), " is ", text,
          ", expected ", kind, ", ", describe(allowed));
  return *value;
}

template <class T>
std::string either(const std::vector<T>& allowed) {
  std::string text;
  for (std::size_t i = 0; i < allowed.size(); ++i) {
    text += fmt::format("{}{}", i == 0 ? "" : i + 1 == allowed.size() ? " or " : ", ", allowed[i]);
  }
  return text;
}

template <class T>
void require_one_of(const std::string& names, const std::string& text, const std::vector<T>& allowed,
                    const std::optional<T>& value) {
  require(value && std::find(allowed.begin(), allowed.end(), *value) != allowed.end(), shown_name(names),
          " is ", text, ", expected ", either(allowed));
}

void require_visible(const std::string& names, const std::string& text) {
  require(text.find_first_not_of(" \t\r\n") != text.npos, shown_name(names), " is ",
          text.empty() ? "empty" : "blank", ", expected a name");
}

// By option: they live as long as the program does.
std::map<const CLI::Option*, std::vector<std::string>>& known_choices() {
  static std::map<const CLI::Option*, std::vector<std::string>> all;
  return all;
}

}  // namespace

std::vector<std::string> choices_of(const CLI::Option& option) {
  const auto found = known_choices().find(&option);
  return found == known_choices().end() ? std::vector<std::string>() : found->second;
}

void set_origin(const std::string& option, const std::string& file) { origins()[option] = file; }

std::string long_name(const std::string& names) {
  const std::size_t begin = names.find("--");
  return begin == names.npos ? names : names.substr(begin, names.find(',', begin) - begin);
}

CLI::Option* OptionGroup::parsed(const std::string& names, const std::string& type, const std::string& shown,
                                 const std::string& help, std::function<void(const std::string&)> parse) {
  return command_.add_option_function<std::string>(names, std::move(parse), help)
      ->type_name(type)
      ->default_str(shown)
      ->group(group_);
}

CLI::Option* OptionGroup::text(const std::string& names, std::string& value, const std::string& type,
                               const std::string& help) {
  return parsed(names, type, value, help, [&value](const std::string& text) { value = text; });
}

CLI::Option* OptionGroup::path(const std::string& names, std::string& value, const std::string& type,
                               const std::string& help) {
  return parsed(names, type, value, help, [&value, names](const std::string& text) {
    require_visible(names, text);
    value = text;
  });
}

CLI::Option* OptionGroup::paths(const std::string& names, std::vector<std::string>& values,
                                const std::string& type, const std::string& help) {
  const auto set = [&values, names](const std::vector<std::string>& texts) {
    for (const std::string& text : texts) require_visible(names, text);
    values = texts;
  };
  return command_.add_option_function<std::vector<std::string>>(names, set, help)
      ->type_name(type)
      ->group(group_);
}

CLI::Option* OptionGroup::flag(const std::string& names, bool& value, const std::string& help) {
  return command_.add_flag(names, value, help)->group(group_);
}

CLI::Option* OptionGroup::whole(const std::string& names, std::int64_t& value, Interval allowed,
                                const std::string& help) {
  return parsed(names, "N", std::to_string(value), help, [&value, names, allowed](const std::string& text) {
    value = checked<std::int64_t>(names, text, allowed, "a whole number");
  });
}

CLI::Option* OptionGroup::whole(const std::string& names, int& value, const std::vector<int>& allowed,
                                const std::string& help) {
  return parsed(names, "N", std::to_string(value), help, [&value, names, allowed](const std::string& text) {
    const auto number = parse<int>(text);
    require_one_of(names, text, allowed, number);
    value = *number;
  });
}

CLI::Option* OptionGroup::seed(const std::string& names, std::uint64_t& value, const std::string& help) {
  return parsed(names, "N", std::to_string(value), help, [&value, names](const std::string& text) {
    const auto number = parse<std::uint64_t>(text);
    require(number.has_value(), shown_name(names), " is ", text, ", expected a whole number, 0 to ",
            std::numeric_limits<std::uint64_t>::max());
    value = *number;
  });
}

CLI::Option* OptionGroup::number(const std::string& names, double& value, Interval allowed,
                                 const std::string& help) {
  return parsed(names, "X", fmt::format("{}", value), help,
                [&value, names, allowed](const std::string& text) {
                  value = checked<double>(names, text, allowed, "a number");
                });
}

CLI::Option* OptionGroup::number(const std::string& names, float& value, Interval allowed,
                                 const std::string& help) {
  return parsed(names, "X", fmt::format("{}", value), help,
                [&value, names, allowed](const std::string& text) {
                  value = checked<float>(names, text, allowed, "a number");
                });
}

CLI::Option* OptionGroup::bytes(const std::string& names, std::int64_t& value, const std::string& help) {
  return parsed(names, "SIZE", "", help, [&value, names](const std::string& text) {
    const std::optional<double> bytes = parse_bytes(text);
    require(bytes && *bytes >= 1.0 && *bytes <= 1e18, shown_name(names), " is ", text,
            ", expected a size such as 300MB, 1.5GB or 800KB");
    value = static_cast<std::int64_t>(*bytes);
  });
}

CLI::Option* OptionGroup::choice(const std::string& names, std::string& value,
                                 const std::vector<std::string>& allowed, const std::string& help) {
  CLI::Option* option = parsed(names, "NAME", value, help, [&value, names, allowed](const std::string& text) {
    // Q4_K_M is q4_k_m.
    const auto known = std::find_if(allowed.begin(), allowed.end(), [&](const std::string& name) {
      return ::strcasecmp(name.c_str(), text.c_str()) == 0;
    });
    const auto found = known == allowed.end() ? std::nullopt : std::optional(*known);
    require_one_of(names, text, allowed, found);
    value = *found;
  });
  known_choices()[option] = allowed;
  return option;
}

}  // namespace mixtape::cli
