#include "cli/checkpoint.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "cli/commands.h"
#include "cli/model_card.h"
#include "cli/quote.h"
#include "cli/signals.h"
#include "cli/terminal.h"
#include "cli/text_table.h"
#include "mixtape/calib/fingerprint.h"
#include "mixtape/core/error.h"
#include "mixtape/io/atomic_file.h"
#include "mixtape/io/json_file.h"

namespace mixtape::cli {
namespace {

namespace fs = std::filesystem;

constexpr const char* kRun = "run.json";
constexpr const char* kEnd = ".safetensors";

fs::path checkpoint_of(const std::string& out) {
  const fs::path path(out);
  fs::path place = path.has_filename() ? path : path.parent_path();  // "new/" is new
  return place += ".checkpoint";
}

// The run that left it. A file that is no more whole says what to do.
nlohmann::json read_run(const fs::path& place) {
  const std::string way_out = "; remove " + place.string() + " or choose another --out";
  std::error_code ignored;
  if (!fs::exists(place / kRun, ignored))
    fail(ErrorCode::io, place.string(), ": is no checkpoint, expected ", kRun,
         " in it; remove it or choose another --out");
  nlohmann::json run;
  try {
    run = read_json(place / kRun);
  } catch (const Error& error) {
    fail(error.code(), error.what(), way_out);
  }
  const bool is_whole = run.is_object() && run.contains("command") && run["command"].is_string() &&
                        run.contains("inputs") && run["inputs"].is_object();
  if (!is_whole)
    fail(ErrorCode::format, (place / kRun).string(), ": expected an object with command and inputs", way_out);
  return run;
}

// Fingerprints say nothing to people.
bool is_telling(const std::string& name) {
  return name.starts_with("--") || name == "device" || name == "mixtape";
}

}  // namespace

Checkpoint::Checkpoint(const CheckpointOptions& options, const std::string& out, Inputs inputs)
    : o_(options), inputs_(std::move(inputs)), place_(checkpoint_of(out)) {
  inputs_.emplace("mixtape", version_record());
  inputs_.insert(o_.settings.begin(), o_.settings.end());
  std::error_code ignored;
  if (fs::exists(fs::symlink_status(place_, ignored))) open(out);
  if (o_.resume && lock_ < 0) note(fmt::format("no checkpoint {}: the run begins anew", place_.string()));
}

Checkpoint::~Checkpoint() {
  if (lock_ < 0) return;
  if (states().empty()) {
    remove();
  } else {
    ::close(lock_);
  }
}

void Checkpoint::open(const std::string& out) {
  const nlohmann::json run = read_run(place_);
  lock();
  sweep();
  const std::vector<std::string> found = states();
  if (found.empty()) {
    remove();
    return;
  }
  const std::string other = difference(run);
  const std::string place = place_.string(), command = run.at("command").get<std::string>();
  if (o_.resume) {
    require(other.empty(), "--resume: ", place, " is of another run: ", other);
    std::string names;
    for (const std::string& name : found) names += (names.empty() ? "" : ", ") + name;
    print_fact("resumes", "{}: {}", printable(place), names);
  } else if (other.empty()) {
    fail(ErrorCode::io, place, ": holds the work of this run, which goes on with `", command,
         "`; remove it to begin anew");
  } else {
    fail(ErrorCode::io, place, ": holds the work of another run into ", out, " (", other,
         "), which goes on with `", command, "`; remove it or choose another --out");
  }
}

void Checkpoint::lock() {
  lock_ = ::open(place_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (lock_ < 0 || ::flock(lock_, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK) return;
  ::close(std::exchange(lock_, -1));
  fail(ErrorCode::io, place_.string(), ": another run is using it");
}

// What a killed run didn't end writing.
void Checkpoint::sweep() const {
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(place_, ignored)) {
    if (entry.path().filename().string().find(".tmp-") != std::string::npos)
      fs::remove(entry.path(), ignored);
  }
}

std::map<std::string, std::uintmax_t> Checkpoint::sizes() const {
  std::map<std::string, std::uintmax_t> all;
  std::error_code ignored;
  for (const std::string& name : states()) all.emplace(name, fs::file_size(file_of(name), ignored));
  return all;
}

fs::path Checkpoint::state_of(const std::string& out, const std::string& name) {
  return checkpoint_of(out) / (name + kEnd);
}

std::vector<std::string> Checkpoint::states() const {
  std::vector<std::string> names;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(place_, ignored)) {
    if (entry.path().extension() == kEnd) names.push_back(entry.path().stem().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

fs::path Checkpoint::file_of(const std::string& name) const { return place_ / (name + kEnd); }

std::string Checkpoint::difference(const nlohmann::json& run) const {
  const nlohmann::json &was = run.at("inputs"), is = record().at("inputs");
  std::map<std::string, nlohmann::json> names;
  for (const auto& [name, value] : was.items()) names.emplace(name, value);
  for (const auto& [name, value] : is.items()) names.emplace(name, value);
  const auto shown = [](const nlohmann::json& inputs, const std::string& name) {
    return inputs.contains(name) ? inputs[name].is_string() ? inputs[name].get<std::string>() : "odd"
                                 : "not given";
  };
  for (const auto& [name, value] : names) {
    const std::string before = shown(was, name), now = shown(is, name);
    if (before == now) continue;
    return is_telling(name) ? str("its ", name, " is ", before, ", here ", now)
                            : str("its ", name, " is another");
  }
  return "";
}

nlohmann::json Checkpoint::record() const { return {{"command", o_.command}, {"inputs", inputs_}}; }

void Checkpoint::make() const {
  AtomicDirectory directory(place_);
  const auto replace = nlohmann::json::error_handler_t::replace;  // names of files may be no UTF-8
  write_file(directory.path() / kRun, record().dump(2, ' ', false, replace) + "\n");
  directory.commit();
}

void Checkpoint::begin() {
  since_kept_ = Stopwatch();
  if (o_.minutes <= 0.0) return;
  try {
    if (lock_ < 0) {
      make();
      lock();
    }
    keeps_ = true;
  } catch (const Error& error) {
    if (error.code() != ErrorCode::io) throw;
    warn(fmt::format("no checkpoints: {}", error.what()));
  }
}

void Checkpoint::remove() {
  if (lock_ < 0) return;
  forget("");
  std::error_code ignored;
  fs::remove_all(place_, ignored);
  ::close(std::exchange(lock_, -1));
  keeps_ = false;
}

void Checkpoint::tell_how_to_resume() const {
  if (lock_ < 0 || states().empty()) return;
  const std::string where = o_.processes > 1 ? fmt::format(", in all {} processes,", o_.processes) : "";
  note(fmt::format("go on with{}   {}", where, o_.command));
}

std::string Checkpoint::way_out(const Error& error) const {
  const bool is_of_a_state =
      error.code() == ErrorCode::format && std::string_view(error.what()).starts_with((place_ / "").string());
  return is_of_a_state ? "; remove that file to do again what it held" : "";
}

bool Checkpoint::is_due() { return keeps_ && since_kept_.seconds() >= 60.0 * o_.minutes; }

bool Checkpoint::keep(const std::string& name, const Save& save) {
  if (!keeps_) return false;
  bool is_kept = true;
  try {
    save(file_of(name));
  } catch (const Error& error) {
    if (error.code() != ErrorCode::io) throw;
    warn(fmt::format("no checkpoint of '{}', the run goes on: {}", name, error.what()));
    is_kept = false;
  }
  since_kept_ = Stopwatch();
  return is_kept;
}

std::optional<SafetensorsFile> Checkpoint::find(const std::string& name) {
  std::error_code ignored;
  if (lock_ < 0 || !fs::exists(file_of(name), ignored)) return std::nullopt;
  try {
    return SafetensorsFile::open(file_of(name));
  } catch (const Error& error) {
    if (error.code() != ErrorCode::format) throw;
    warn(fmt::format("{}; '{}' is done again", error.what(), name));
    return std::nullopt;
  }
}

void Checkpoint::forget(const std::string& begin) {
  std::error_code ignored;
  for (const std::string& name : states()) {
    if (name.starts_with(begin)) fs::remove(file_of(name), ignored);
  }
}

int run_unless_stopped(const std::optional<Checkpoint>& checkpoint, const std::function<int()>& work) {
  try {
    return work();
  } catch (const Error& error) {
    const std::string way_out = checkpoint ? checkpoint->way_out(error) : "";
    if (!way_out.empty()) fail(error.code(), error.what(), way_out);
    if (error.code() != ErrorCode::interrupted) throw;
    wait_if_ending();
    tell_error(fmt::format("{}; nothing was written", error.what()));
    if (checkpoint) checkpoint->tell_how_to_resume();
    return Status::stopped;
  }
}

std::string data_fingerprint(const CalibrationData& data, const std::vector<RowSource>& sources) {
  std::string text;
  for (const auto* rows : {&data.train, &data.validation, &data.report})
    text += rows_fingerprint(*rows) + " ";
  for (const RowSource& source : sources) text += rows_fingerprint(source.rows) + " ";
  return text_fingerprint(text);
}

}  // namespace mixtape::cli
