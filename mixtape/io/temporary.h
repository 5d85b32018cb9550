// Temporary files and directories beside an output: "<target>.tmp-1a2b3c4d", locked as long as their process
// lives, so that a later run can tell one in use from one that a dead process left.
#pragma once

#include <filesystem>
#include <vector>

namespace mixtape {

// Missing folders above `path`, created; those are removed again (where still empty) unless keep() is called.
class ParentDirectories {
 public:
  explicit ParentDirectories(const std::filesystem::path& path);
  ~ParentDirectories();
  ParentDirectories(const ParentDirectories&) = delete;
  ParentDirectories& operator=(const ParentDirectories&) = delete;

  void keep();  // syncs them to disk too

 private:
  std::vector<std::filesystem::path> created_;  // outermost first
};

// One file or directory, open and locked; removed with its contents by the destructor unless it was put in
// the target's place. Throws io, naming the path and the system's reason.
class Temporary {
 public:
  enum class Kind { file, directory };

  Temporary(const std::filesystem::path& target, Kind kind);
  ~Temporary();
  Temporary(const Temporary&) = delete;
  Temporary& operator=(const Temporary&) = delete;

  const std::filesystem::path& target() const { return target_; }
  const std::filesystem::path& path() const { return path_; }
  int fd() const { return fd_; }  // a file's is open for writing
  bool in_place() const { return path_.empty(); }
  void put_in_place();  // renames and syncs; what was written before must have been synced
  // Removes what dead processes left beside the target and returns the names. Throws io, naming the
  // temporary, if it is a directory that somebody alive is about to put in the target's place.
  std::vector<std::filesystem::path> sweep() const;

 private:
  std::filesystem::path target_;
  ParentDirectories parents_;
  std::filesystem::path path_;
  int fd_ = -1;
};

// Removes every temporary of this process that is not in place yet: for a program that a signal ends. Safe
// from any thread; later uses of those temporaries fail.
void remove_live_temporaries();

// Files and directories alike. Throws io.
void sync_path(const std::filesystem::path& path);

}  // namespace mixtape
