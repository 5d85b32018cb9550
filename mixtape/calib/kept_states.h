// Where long work keeps its state, so that a run that ended too soon can go on with the same bits. The library says
// what a state is and when it may be kept; whoever owns the place decides where it lies and how often it is written.
//
// A state is a safetensors file under the name of its stage. It is of use to the same work alone: the same model, plan,
// rows, options and device, which the owner sees to. Work that finds its state goes on from there; what a finished
// stage was made of may be forgotten.
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string>

#include "mixtape/core/run_hooks.h"
#include "mixtape/io/safetensors.h"

namespace mixtape {

class KeptStates {
 public:
  using Save = std::function<void(const std::filesystem::path& file)>;

  virtual ~KeptStates() = default;
  // Asked after each piece of work: whether a state is kept now though its stage goes on.
  virtual bool is_due() = 0;
  // Keeps what `save` writes to the file that it is given, which appears whole, in place of an older one of that name.
  // A place that refuses costs the state, not the run: returns whether it was kept.
  virtual bool keep(const std::string& name, const Save& save) = 0;
  // Nothing if there is none that can be read. May be called from several threads.
  virtual std::optional<SafetensorsFile> find(const std::string& name) = 0;
  // All whose names begin so.
  virtual void forget(const std::string& begin) = 0;
};

// Another's states, to be found and left as they are: those of the first of several devices that share a run.
class FoundStates final : public KeptStates {
 public:
  // Null: none.
  explicit FoundStates(KeptStates* states) : states_(states) {}
  bool is_due() override { return false; }
  bool keep(const std::string&, const Save&) override { return false; }
  std::optional<SafetensorsFile> find(const std::string& name) override {
    return states_ ? states_->find(name) : std::nullopt;
  }
  void forget(const std::string&) override {}

 private:
  KeptStates* states_;
};

// The state of one stage under hooks.scope + name; nothing happens where the hooks have no place for states.
class KeptStage {
 public:
  // The hooks and what `save` refers to must outlive it.
  KeptStage(const RunHooks& hooks, const std::string& name, KeptStates::Save save);

  std::optional<SafetensorsFile> find() const;
  bool keep() const;  // whether it was
  // Whether it is time, or the caller wants to stop, or the work `is_stopped`: others of a shared run may have asked.
  bool is_due(bool is_stopped = false) const {
    return hooks_.states && (is_stopped || hooks_.states->is_due() || hooks_.stops());
  }
  void keep_if_due(bool is_stopped = false) const {
    if (is_due(is_stopped)) keep();
  }
  // Work whose state holds between any two of its parts: keeps it at the end, and where the caller stops the work.
  void run(const std::function<void()>& work) const;

 private:
  const RunHooks& hooks_;
  std::string name_;
  KeptStates::Save save_;
};

// The same hooks for a part of the work, whose states have names that begin with `scope`.
RunHooks within(RunHooks hooks, const std::string& scope);
// Forgets those of that part.
void forget(const RunHooks& hooks, const std::string& scope);

}  // namespace mixtape
