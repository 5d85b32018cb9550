// A run that several processes share, which a launcher started with the same command (runtime/launch.h). The first one reads
// the text, decides, writes and reports. The others take part in its steps: they read the model and what states the run
// goes on from, and say who they are and what went wrong.
#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "cli/checkpoint.h"
#include "mixtape/calib/data.h"
#include "mixtape/calib/kept_states.h"
#include "mixtape/runtime/launch.h"
#include "mixtape/runtime/processes.h"

namespace mixtape::cli {

// What the environment says. In all processes but the first, errors alone are told from then on, by rank.
std::optional<Launch> launch_of_run();
// Whether this is another process than the first.
inline bool is_member(const std::optional<Launch>& launch) { return launch && launch->rank > 0; }

// run_unless_stopped, whose status the other processes end with too; they end by its error where it throws one. Null:
// there are none.
int run_as_first(Processes* processes, const std::optional<Checkpoint>& checkpoint,
                 const std::function<int()>& work);
// In another process: the status of the first one, once `work` is done.
int run_as_member(Processes& processes, const std::function<void()>& work);

// Whether the first process is to stop: it was asked to, or another process has ended, which the others would find only when
// all meet again.
std::function<bool()> stops_first(const Processes* processes);

// What the first process tells the others before the work: what the run is, and the states that it goes on from.
void tell_run(Processes* processes, const Checkpoint& checkpoint);

// The states of the first process's checkpoint, as another process sees them.
class SeenStates final : public KeptStates {
 public:
  // Receives what tell_run says. Throws invalid_argument for another run than that of the options and inputs, naming what
  // differs; io where this process doesn't see the states in the checkpoint of `out`.
  SeenStates(Processes& processes, const CheckpointOptions& options, const std::string& out,
             Checkpoint::Inputs inputs);
  bool is_due() override { return false; }
  bool keep(const std::string&, const Save&) override { return false; }
  std::optional<SafetensorsFile> find(const std::string& name) override;
  void forget(const std::string&) override {}

 private:
  std::map<std::string, std::filesystem::path> files_;
};

// From the first process to the others.
void send_text(Processes* processes, const std::string& text);
std::string receive_text(Processes& processes);
// An object; where the first process has ended instead, run_as_member does too, with its status.
nlohmann::json receive_json(Processes& processes, const std::string& where);
void send_data(Processes* processes, const CalibrationData& data);
CalibrationData receive_data(Processes& processes);  // without groups

}  // namespace mixtape::cli
