#include "cli/shared_run.h"

#include <cstdlib>
#include <cstring>
#include <nlohmann/json.hpp>
#include <system_error>
#include <vector>

#include "cli/commands.h"
#include "cli/model_card.h"
#include "cli/signals.h"
#include "cli/terminal.h"
#include "mixtape/core/error.h"
#include "mixtape/io/json_file.h"

namespace mixtape::cli {
namespace {

namespace fs = std::filesystem;

using TokenWords = std::vector<std::uint32_t>;

void append(TokenWords& words, const std::vector<TokenRow>& rows) {
  words.push_back(static_cast<std::uint32_t>(rows.size()));
  for (const TokenRow& row : rows) {
    words.push_back(static_cast<std::uint32_t>(row.size()));
    words.insert(words.end(), row.begin(), row.end());
  }
}

std::vector<TokenRow> rows_at(const TokenWords& words, std::size_t& at) {
  std::vector<TokenRow> rows(words.at(at++));
  for (TokenRow& row : rows) {
    row.resize(words.at(at++));
    for (std::uint32_t& token : row) token = words.at(at++);
  }
  return rows;
}

// Of two processes of one run; the place of a difference is a fingerprint for people to look for.
std::string difference(const Checkpoint::Inputs& first, const Checkpoint::Inputs& mine) {
  const auto shown = [](const Checkpoint::Inputs& inputs, const std::string& name) {
    const auto found = inputs.find(name);
    return found == inputs.end() ? "not given" : found->second;
  };
  Checkpoint::Inputs names = first;
  names.insert(mine.begin(), mine.end());
  for (const auto& [name, value] : names) {
    if (shown(first, name) != shown(mine, name))
      return str(name, " is ", shown(mine, name), ", rank 0's is ", shown(first, name));
  }
  return "";
}

// The first process has ended with `status` where something else was expected of it.
struct FirstEnded {
  int status;
};

// An error of this process ends the others.
template <class Work>
auto told_to(Processes& processes, const Work& work) {
  try {
    return work();
  } catch (const Error& error) {
    processes.fail(error.code(), error.what());
    throw;
  }
}

}  // namespace

std::optional<Launch> launch_of_run() {
  std::optional<Launch> launch = launch_of([](const char* name) { return std::getenv(name); });
  if (launch) launch->program = version_record();
  if (is_member(launch)) tell_errors_alone(str("rank ", launch->rank));
  return launch;
}

int run_as_first(Processes* processes, const std::optional<Checkpoint>& checkpoint,
                 const std::function<int()>& work) {
  if (processes == nullptr) return run_unless_stopped(checkpoint, work);
  return told_to(*processes, [&] {
    const int status = run_unless_stopped(checkpoint, work);
    try {
      if (status == Status::stopped) processes->throw_if_lost();
      send_text(processes, std::to_string(status));
    } catch (const Error&) {
      if (!interrupted()) throw;  // else who was stopped with this one has ended, too
    }
    return status;
  });
}

int run_as_member(Processes& processes, const std::function<void()>& work) {
  return told_to(processes, [&] {
    try {
      work();
      return std::atoi(receive_text(processes).c_str());
    } catch (const FirstEnded& end) {
      return end.status;
    }
  });
}

std::function<bool()> stops_first(const Processes* processes) {
  if (processes == nullptr) return interrupted;
  return [processes] { return interrupted() || processes->has_lost_one(); };
}

void tell_run(Processes* processes, const Checkpoint& checkpoint) {
  if (processes == nullptr) return;
  const auto replace = nlohmann::json::error_handler_t::replace;  // names of files may be no UTF-8
  const nlohmann::json run = {{"inputs", checkpoint.inputs()}, {"states", checkpoint.sizes()}};
  send_text(processes, run.dump(-1, ' ', false, replace));
}

// What the first process alone reads, and what it sends, is no difference.
SeenStates::SeenStates(Processes& processes, const CheckpointOptions& options, const std::string& out,
                       Checkpoint::Inputs inputs) {
  const nlohmann::json run = receive_json(processes, "what rank 0 says");
  auto first = run.at("inputs").get<Checkpoint::Inputs>();
  for (const char* name : {"text", "tokenizer", "plan", "device"}) first.erase(name);
  inputs.emplace("mixtape", version_record());
  inputs.insert(options.settings.begin(), options.settings.end());
  const std::string other = difference(first, inputs);
  require(other.empty(), other, ", expected the same command, model and program in all processes");
  for (const auto& [name, bytes] : run.at("states").items()) {
    const fs::path file = Checkpoint::state_of(out, name);
    std::error_code missing;
    if (fs::file_size(file, missing) != bytes.get<std::uintmax_t>() || missing) {
      fail(ErrorCode::io, file.string(),
           ": is not here as rank 0 sees it, expected the same folder: processes on several ",
           "hosts go on with a run (--resume) where they share the folder of --out");
    }
    files_.emplace(name, file);
  }
}

std::optional<SafetensorsFile> SeenStates::find(const std::string& name) {
  const auto found = files_.find(name);
  return found == files_.end() ? std::nullopt : std::optional(SafetensorsFile::open(found->second));
}

void send_text(Processes* processes, const std::string& text) {
  if (processes == nullptr) return;
  const auto part = std::as_bytes(std::span(text));
  Bytes bytes(part.begin(), part.end());
  processes->broadcast(Exchange::message, bytes);
}

std::string receive_text(Processes& processes) {
  Bytes bytes;
  processes.broadcast(Exchange::message, bytes);
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

nlohmann::json receive_json(Processes& processes, const std::string& where) {
  nlohmann::json json = parse_json(receive_text(processes), where);
  if (json.is_number()) throw FirstEnded{json.get<int>()};
  return json;
}

void send_data(Processes* processes, const CalibrationData& data) {
  if (processes == nullptr) return;
  TokenWords words;
  for (const auto* rows : {&data.train, &data.validation, &data.report}) append(words, *rows);
  const auto part = std::as_bytes(std::span(words));
  Bytes bytes(part.begin(), part.end());
  processes->broadcast(Exchange::message, bytes);
}

CalibrationData receive_data(Processes& processes) {
  Bytes bytes;
  processes.broadcast(Exchange::message, bytes);
  TokenWords words(bytes.size() / sizeof(std::uint32_t));
  std::memcpy(words.data(), bytes.data(), words.size() * sizeof(std::uint32_t));
  std::size_t at = 0;
  CalibrationData data;
  for (auto* rows : {&data.train, &data.validation, &data.report}) *rows = rows_at(words, at);
  return data;
}

}  // namespace mixtape::cli
