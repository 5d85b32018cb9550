#include "cli/outputs.h"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>
#include <vector>

#include "cli/disk_space.h"
#include "cli/progress.h"
#include "cli/quote.h"
#include "cli/terminal.h"
#include "mixtape/core/error.h"
#include "mixtape/io/safetensors_writer.h"

namespace mixtape::cli {
namespace {

namespace fs = std::filesystem;

fs::path absolute_path(const std::string& path) {
  std::error_code reason;
  const fs::path found = fs::weakly_canonical(path, reason);
  const fs::path given = reason ? fs::path(path) : found, absolute = fs::absolute(given, reason);
  // Without a working directory as it is.
  const fs::path whole = (reason ? given : absolute).lexically_normal();
  return whole.has_filename() ? whole : whole.parent_path();
}

void tell_swept(const std::vector<fs::path>& swept) {
  for (const fs::path& path : swept) warn("removed " + path.string() + ", which a run that died had left");
}

// Places for a result that its own refuses: beside it, then other disks, memory last.
std::vector<fs::path> other_places(const std::string& name) {
  const fs::path target = absolute_path(name);
  const std::string file =
      fmt::format("{}.kept-{}", name == "-" ? "report" : target.filename().string(), ::getpid());
  std::vector<fs::path> places;
  std::error_code ignored;
  if (name != "-" && !target.string().starts_with("/dev/")) places.push_back(target.parent_path() / file);
  places.push_back(fs::temp_directory_path(ignored) / file);
  if (const char* home = std::getenv("HOME")) places.push_back(fs::path(home) / file);
  places.push_back(fs::path("/dev/shm") / file);
  return places;
}

double bytes_in(const fs::path& directory) {
  double bytes = 0.0;
  for (const auto& entry : fs::directory_iterator(directory)) bytes += static_cast<double>(entry.file_size());
  return bytes;
}

// Calls `write` for each place until one takes the result, and throws what the first place's reason was.
template <class Write>
[[noreturn]] void keep_elsewhere(const std::string& name, const std::string& reason, Write write) {
  for (const fs::path& place : other_places(name)) {
    try {
      write(place);
    } catch (const Error&) {
      continue;
    }
    fail(ErrorCode::io, reason, "; the result is in ", place.string());
  }
  fail(ErrorCode::io, reason, "; no other place took the result");
}

// Without the slash that may end a directory's.
fs::path without_slash(const std::string& name) {
  return fs::path(name).has_filename() ? fs::path(name) : fs::path(name).parent_path();
}
std::string bare_name(const std::string& name) { return without_slash(name).filename().string(); }

const char* kind_of(fs::file_type type) {
  switch (type) {
    case fs::file_type::directory:
      return "a directory";
    case fs::file_type::symlink:
      return "a link";
    case fs::file_type::block:
    case fs::file_type::character:
      return "a device";
    case fs::file_type::fifo:
      return "a FIFO";
    case fs::file_type::socket:
      return "a socket";
    default:
      return "a file that exists";
  }
}

// Whatever is there stays: a link too, wherever it leads.
void refuse_existing(const std::string& option, const std::string& name) {
  std::error_code ignored;
  require(name != "-", option, " is -, expected a name: only reports go to standard output");
  const fs::path last = fs::path(name).filename();
  require(last != "." && last != "..", option, " is ", name, ", expected a new name");
  const fs::file_type type = fs::symlink_status(without_slash(name), ignored).type();
  if (type != fs::file_type::not_found && type != fs::file_type::none)
    fail(ErrorCode::io, option, ": ", name, " is ", kind_of(type), ", expected a new name");
}

// A slash ends the name of no file.
void refuse_slash(const std::string& option, const std::string& name) {
  require(!name.ends_with('/'), option, " is ", name, ", which would be a directory, expected a file's name");
}

// A directory is not named as a file of weights is, nor a GGUF file as one of another kind.
void refuse_misnamed(const std::string& out, bool is_gguf) {
  const std::string end = ending_of(out);
  constexpr std::string_view kFiles[] = {".safetensors", ".gguf", ".bin", ".pt", ".pth", ".npz", ".json"};
  if (std::find(std::begin(kFiles), std::end(kFiles), end) == std::end(kFiles)) return;
  require(bare_name(out).size() > end.size(), "--out is ", out, ", expected a name before ", end);
  require(is_gguf, "--out is ", out, ", which would be a directory, expected a name without ", end);
  require(end == ".gguf", "--out is ", out,
          ", which would be a GGUF file, expected a name that ends in .gguf");
}

// Whether a report is written straight into what stands there: a descriptor of this process, a device, a FIFO.
bool is_stream(const std::string& name) {
  if (name == "-" || name.starts_with("/dev/fd/") || name.starts_with("/proc/self/fd/")) return true;
  std::error_code ignored;
  const fs::file_type type = fs::status(name, ignored).type();
  return type == fs::file_type::character || type == fs::file_type::block || type == fs::file_type::fifo ||
         type == fs::file_type::socket || name == "/dev/stdout" || name == "/dev/stderr";
}

std::unique_ptr<AtomicFile> make_place(const std::string& name) {
  auto file = std::make_unique<AtomicFile>(name);
  tell_swept(file->sweep());
  return file;
}

}  // namespace

std::string ending_of(const std::string& name) {
  std::string end = bare_name(name);
  end.erase(0, std::min(end.rfind('.'), end.size()));
  std::transform(end.begin(), end.end(), end.begin(), [](unsigned char c) { return std::tolower(c); });
  return end;
}

void refuse_inside(const std::string& what, const std::string& path, const std::string& of,
                   const std::string& folder) {
  const fs::path inner = absolute_path(path), outer = absolute_path(folder);
  const auto [end, unused] = std::mismatch(outer.begin(), outer.end(), inner.begin(), inner.end());
  require(end != outer.end(), what, ": ", path, " lies in the directory of ", of, ", expected another place");
}

void refuse_input(const std::string& what, const std::string& path, const std::vector<std::string>& inputs) {
  std::error_code ignored;
  if (path.empty() || path == "-" || !fs::exists(path, ignored)) return;
  for (const std::string& input : inputs) {
    if (input.empty() || !fs::exists(input, ignored)) continue;
    if (fs::is_directory(input, ignored)) {
      refuse_inside(what, path, "the model", input);
    } else {
      require(!fs::equivalent(path, input, ignored), what, ": ", path,
              " is a file that this run reads, expected ", "another place");
    }
  }
}

bool is_same_place(const std::string& a, const std::string& b) {
  if (a.empty() || b.empty()) return false;
  const auto is_stdout = [](const std::string& name) { return name == "-" || name == "/dev/stdout"; };
  if (is_stdout(a) || is_stdout(b)) return is_stdout(a) && is_stdout(b);
  const fs::path place = absolute_path(a);
  std::error_code ignored;
  const bool keeps_nothing = fs::exists(place, ignored) && !fs::is_regular_file(place, ignored);  // /dev/null
  return !keeps_nothing && place == absolute_path(b);
}

void refuse_same_place(const std::vector<Place>& places) {
  for (std::size_t i = 0; i < places.size(); ++i) {
    for (std::size_t j = 0; j < i; ++j) {
      require(!is_same_place(places[j].path, places[i].path), places[j].option, " and ", places[i].option,
              " are both ", places[j].path, ", expected two places");
    }
  }
}

std::unique_ptr<AtomicFile> place_for(const std::string& option, const std::string& name,
                                      std::uint64_t bytes) {
  refuse_slash(option, name);
  refuse_existing(option, name);
  std::unique_ptr<AtomicFile> file = make_place(name);
  require_disk_space(name, absolute_path(name).parent_path(), bytes, 0, bytes);
  return file;
}

namespace {

// Of an AtomicFile or AtomicDirectory, for which there are other places if the system refuses.
template <class Place>
void fill_or_keep_elsewhere(std::unique_ptr<Place>& place, const std::string& name,
                            const std::function<void(Place&)>& fill) {
  try {
    fill(*place);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::io) throw;
    const std::string reason = error.what();
    place.reset();  // makes room
    keep_elsewhere(name, reason, [&](const fs::path& elsewhere) {
      Place other(elsewhere);
      fill(other);
    });
  }
}

}  // namespace

FileOutput::FileOutput(const std::string& name, const std::vector<std::string>& inputs,
                       const std::string& out, const std::string& option)
    : name_(name) {
  if (name.empty()) return;
  refuse_input(option, name, inputs);
  if (!out.empty()) refuse_inside(option, name, "--out", out);
  refuse_slash(option, name);
  refuse_existing(option, name);
  file_ = make_place(name);
}

void FileOutput::require_space(std::uint64_t bytes) const {
  require_disk_space(name_, absolute_path(name_).parent_path(), bytes, 0, bytes);
}

void FileOutput::write(const std::function<void(AtomicFile&)>& fill) {
  fill_or_keep_elsewhere(file_, name_, fill);
}

void FileOutput::tell() const {
  std::error_code missing;  // what is kept elsewhere has an error that says so
  const auto bytes = static_cast<double>(fs::file_size(name_, missing));
  if (!missing) fmt::print("wrote        {}, {}\n", printable(name_), format_bytes(bytes));
}

ModelOutput::ModelOutput(std::string out, const std::string& model, bool is_gguf) : out_(std::move(out)) {
  std::error_code ignored;
  if (fs::is_directory(model, ignored)) refuse_inside("--out", out_, "the model", model);
  refuse_existing("--out", out_);
  refuse_misnamed(out_, is_gguf);
  if (is_gguf) {
    file_ = std::make_unique<FileOutput>(out_, std::vector<std::string>{}, "", "--out");
    return;
  }
  directory_ = std::make_unique<AtomicDirectory>(out_);
  tell_swept(directory_->swept());
}

void ModelOutput::require_space(std::uint64_t bytes, std::uint64_t beside) const {
  if (file_) return file_->require_space(bytes);
  require_disk_space(out_, directory_->path(), bytes, beside,
                     std::min(bytes, ShardOptions{}.max_shard_bytes));
}

void ModelOutput::write(const std::function<void(AtomicDirectory&)>& fill) {
  fill_or_keep_elsewhere(directory_, out_, fill);
}

void ModelOutput::tell() const {
  if (file_) return file_->tell();
  fmt::print("wrote        {}, {}\n", printable(out_), format_bytes(bytes_in(directory_->target())));
}

ReportFile::ReportFile(const std::string& name, const std::vector<std::string>& inputs,
                       const std::string& out, const std::string& option)
    : name_(name) {
  if (name.empty()) return;
  refuse_input(option, name, inputs);
  if (!out.empty()) refuse_inside(option, name, "--out", out);
  refuse_slash(option, name);
  if (!is_stream(name)) refuse_existing(option, name);
  file_ = std::make_unique<OutputFile>(name);
  tell_swept(file_->swept());
  if (name != "-") return;
  std::fflush(stdout);
  stdout_ = ::dup(STDOUT_FILENO);
  ::dup2(STDERR_FILENO, STDOUT_FILENO);
}

void ReportFile::write(const nlohmann::json& report) {
  if (wanted()) write_text(report.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n");
}

void ReportFile::write_page(const std::function<std::string()>& make) {
  if (wanted()) write_text(make());
}

void ReportFile::write_model(nlohmann::json record, const std::string& out, double seconds) {
  record["out"]["path"] = out;
  record["seconds"] = seconds;
  write(record);
}

void ReportFile::write_text(const std::string& text) {
  std::fflush(stdout);
  if (stdout_ >= 0) ::dup2(stdout_, STDOUT_FILENO);
  std::string reason;
  try {
    file_->write(text);
  } catch (const Error& error) {
    reason = error.what();
  }
  if (stdout_ >= 0) ::dup2(STDERR_FILENO, STDOUT_FILENO);
  if (!reason.empty()) {
    file_.reset();
    keep_elsewhere(name_, reason, [&](const fs::path& place) { write_file(place, text); });
  }
}

void report_then_tell(std::initializer_list<std::function<void()>> reports,
                      const std::function<void()>& tell) {
  std::string failures;
  for (const auto& report : reports) {
    try {
      report();
    } catch (const Error& error) {
      if (error.code() != ErrorCode::io) throw;
      failures += (failures.empty() ? "" : "; ") + std::string(error.what());
    }
  }
  tell();
  if (!failures.empty()) fail(ErrorCode::io, failures);
}

}  // namespace mixtape::cli
