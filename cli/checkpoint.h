// The states of a run in the directory OUT.checkpoint: run.json, which says what run it is, and a file for each state.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "cli/checkpoint_options.h"
#include "mixtape/calib/kept_states.h"
#include "mixtape/calib/split_sources.h"
#include "mixtape/core/error.h"
#include "mixtape/core/stopwatch.h"

namespace mixtape::cli {

class Checkpoint final : public KeptStates {
 public:
  // What a result follows from, by name, beside the options' settings: "text" and its fingerprint.
  using Inputs = std::map<std::string, std::string>;

  // Looks for the one of a former run into `out`. Throws io, naming it and what goes on from it, if there is one and
  // this run doesn't; if another process uses it; if it is none. With --resume: invalid_argument, naming what differs,
  // for one of another run. One without states is removed.
  Checkpoint(const CheckpointOptions& options, const std::string& out, Inputs inputs);
  ~Checkpoint() override;
  Checkpoint(const Checkpoint&) = delete;
  Checkpoint& operator=(const Checkpoint&) = delete;

  // From now on states are kept.
  void begin();
  // Of a run that came to its end.
  void remove();
  // Says how to go on, if there is anything to go on from.
  void tell_how_to_resume() const;

  // What the run follows from, and bytes of the states that are there, by name.
  const Inputs& inputs() const { return inputs_; }
  std::map<std::string, std::uintmax_t> sizes() const;
  // Where a run into `out` has that state.
  static std::filesystem::path state_of(const std::string& out, const std::string& name);

  // What to do where a state isn't what it was; empty for other errors.
  std::string way_out(const Error& error) const;

  bool is_due() override;
  bool keep(const std::string& name, const Save& save) override;
  std::optional<SafetensorsFile> find(const std::string& name) override;
  void forget(const std::string& begin) override;

 private:
  void open(const std::string& out);
  void make() const;
  void lock();
  void sweep() const;
  std::vector<std::string> states() const;
  std::filesystem::path file_of(const std::string& name) const;
  // Of the run that made it to this one; empty: none.
  std::string difference(const nlohmann::json& run) const;
  nlohmann::json record() const;

  CheckpointOptions o_;
  Inputs inputs_;
  std::filesystem::path place_;
  int lock_ = -1;  // the directory; -1: there is none yet
  bool keeps_ = false;
  Stopwatch since_kept_;
};

// The status that `work` gives. Where it is stopped, by an error `interrupted`, says so, that nothing was written, and
// how to go on with what the checkpoint holds, once there is one.
int run_unless_stopped(const std::optional<Checkpoint>& checkpoint, const std::function<int()>& work);

// Of rows: those that are split and those that will be.
std::string data_fingerprint(const CalibrationData& data, const std::vector<RowSource>& sources = {});

}  // namespace mixtape::cli
