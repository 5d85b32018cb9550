#include "mixtape/io/atomic_file.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <vector>

#include "mixtape/core/error.h"
#include "mixtape/testing/check_op.h"
#include "mixtape/testing/temp_directory.h"

namespace mixtape {
namespace {

namespace fs = std::filesystem;
using testing::contents_of;
using testing::TempDirectory;

std::size_t entries_in(const fs::path& path) {
  return static_cast<std::size_t>(std::distance(fs::directory_iterator(path), fs::directory_iterator()));
}

// While it lives, a file that grows beyond `bytes` fails to be written.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t bytes) : handler_(std::signal(SIGXFSZ, SIG_IGN)) {
    getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit limit{bytes, before_.rlim_max};
    setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~FileSizeLimit() {
    setrlimit(RLIMIT_FSIZE, &before_);
    std::signal(SIGXFSZ, handler_);
  }

 private:
  void (*handler_)(int);
  rlimit before_{};
};

TEST(AtomicFile, AppearsAtCommitAndReplaces) {
  const TempDirectory directory;
  const fs::path target = directory.write("out.bin", "old");
  AtomicFile file(target);
  file.write("abc");
  file.write("def");
  file.write_at(1, std::as_bytes(std::span("X", 1)));
  EXPECT_EQ(contents_of(target), "old");
  file.commit();
  EXPECT_EQ(contents_of(target), "aXcdef");
  EXPECT_EQ(entries_in(directory.path()), 1u);
  EXPECT_THROW(file.commit(), Error);
  EXPECT_THROW(file.write("late"), Error);
}

TEST(AtomicFile, LeavesNothingWithoutCommit) {
  const TempDirectory directory;
  {
    AtomicFile file(directory / "out.bin");
    file.write("half");
    EXPECT_EQ(entries_in(directory.path()), 1u);
  }
  EXPECT_EQ(entries_in(directory.path()), 0u);
}

TEST(AtomicFile, TakesThePermissionsOfAnOrdinaryFile) {
  const TempDirectory directory;
  const mode_t before = umask(022);
  write_file(directory / "out.bin", "x");
  umask(before);
  EXPECT_EQ(fs::status(directory / "out.bin").permissions(), static_cast<fs::perms>(0644));
}

TEST(AtomicFile, FailedWriteNamesPathAndReason) {
  const TempDirectory directory;
  const std::string big(100'000, 'x');
  {
    const FileSizeLimit limit(4096);
    MIXTAPE_EXPECT_ERROR(write_file(directory / "out.bin", big), ErrorCode::io,
                         (directory / "out.bin").string() + ": cannot write: File too large");
  }
  EXPECT_EQ(entries_in(directory.path()), 0u);
}

TEST(AtomicFile, RefusesWhatCannotBeCreated) {
  const TempDirectory directory;
  const fs::path plain = directory.write("plain", "");
  MIXTAPE_EXPECT_ERROR(AtomicFile(plain / "below" / "out.bin"), ErrorCode::io, "Not a directory");
  fs::create_directory(directory / "taken");
  AtomicFile file(directory / "taken");
  MIXTAPE_EXPECT_ERROR(file.commit(), ErrorCode::io, "Is a directory");
  EXPECT_THROW(AtomicFile(fs::path()), Error);
}

TEST(AtomicFile, KeepsThePermissionsOfTheFileItReplaces) {
  const TempDirectory directory;
  const fs::path target = directory.write("out.bin", "old");
  fs::permissions(target, static_cast<fs::perms>(0640));
  write_file(target, "new");
  EXPECT_EQ(fs::status(target).permissions(), static_cast<fs::perms>(0640));
}

TEST(AtomicFile, MissingParentsAreMadeAndRemovedAgainWithoutCommit) {
  const TempDirectory directory;
  { const AtomicFile file(directory / "a" / "b" / "out.bin"); }
  EXPECT_EQ(entries_in(directory.path()), 0u);
  write_file(directory / "a" / "b" / "out.bin", "x");
  EXPECT_EQ(contents_of(directory / "a" / "b" / "out.bin"), "x");
}

// Runs `body` in a child that dies at its end as by kill -9.
template <class Body>
void in_killed_child(Body body) {
  const pid_t child = ::fork();
  if (child == 0) {
    body();
    ::raise(SIGKILL);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFSIGNALED(status));
}

TEST(AtomicDirectory, WhatADeadProcessLeftIsRemovedAndNamed) {
  const TempDirectory directory;
  in_killed_child([&] {
    auto* out = new AtomicDirectory(directory / "model");
    write_file(out->path() / "a.txt", "a");
  });
  directory.write("model.tmp-0123456", "too short to be a temporary");
  directory.write("other.tmp-01234567", "of another target");
  ASSERT_EQ(entries_in(directory.path()), 3u);
  const AtomicDirectory out(directory / "model");
  ASSERT_EQ(out.swept().size(), 1u);
  EXPECT_TRUE(out.swept()[0].filename().string().starts_with("model.tmp-"));
  EXPECT_EQ(entries_in(directory.path()), 3u);
}

TEST(AtomicDirectory, RefusesATargetThatAnotherIsAboutToTake) {
  const TempDirectory directory;
  const AtomicDirectory first(directory / "model");
  MIXTAPE_EXPECT_ERROR(AtomicDirectory(directory / "model/"), ErrorCode::io,
                       "another run is writing it: " + first.path().string());
  EXPECT_EQ(entries_in(directory.path()), 1u);
}

TEST(Temporary, AllThatLiveAreRemovedBeforeASignalEndsTheProgram) {
  const TempDirectory directory;
  AtomicDirectory out(directory / "model");
  AtomicFile in_it(out.path() / "weights"), beside(directory / "report.json");
  write_file(directory / "done.json", "{}");
  remove_live_temporaries();
  EXPECT_EQ(entries_in(directory.path()), 1u);
  EXPECT_THROW(beside.commit(), Error);
}

TEST(AtomicDirectory, AppearsWholeAtCommit) {
  const TempDirectory directory;
  const fs::path target = directory / "model";
  AtomicDirectory out(target);
  write_file(out.path() / "a.txt", "a");
  EXPECT_FALSE(fs::exists(target));
  EXPECT_EQ(out.path().parent_path(), directory.path());
  EXPECT_TRUE(out.path().filename().string().starts_with("model.tmp-"));
  out.commit();
  EXPECT_EQ(contents_of(target / "a.txt"), "a");
  EXPECT_EQ(entries_in(directory.path()), 1u);
}

TEST(AtomicDirectory, TrailingSlashNamesTheSameDirectory) {
  const TempDirectory directory;
  AtomicDirectory out(directory.path() / "model/");
  out.commit();
  EXPECT_TRUE(fs::is_directory(directory / "model"));
  EXPECT_EQ(entries_in(directory.path()), 1u);
}

TEST(AtomicDirectory, LeavesNothingWithoutCommit) {
  const TempDirectory directory;
  {
    const AtomicDirectory out(directory / "model");
    write_file(out.path() / "a.txt", "a");
  }
  EXPECT_EQ(entries_in(directory.path()), 0u);
}

TEST(AtomicDirectory, RefusesAnExistingTarget) {
  const TempDirectory directory;
  fs::create_directory(directory / "model");
  MIXTAPE_EXPECT_ERROR(AtomicDirectory(directory / "model"), ErrorCode::io, "output directory exists");
  fs::create_symlink("nowhere", directory / "link");
  MIXTAPE_EXPECT_ERROR(AtomicDirectory(directory / "link"), ErrorCode::io, "exists as a link to nothing");
  MIXTAPE_EXPECT_ERROR(AtomicDirectory(directory / "link/"), ErrorCode::io, "exists as a link to nothing");

  AtomicDirectory out(directory / "late");
  directory.write("late", "a file took the name");
  MIXTAPE_EXPECT_ERROR(out.commit(), ErrorCode::io, "output directory exists");
}

}  // namespace
}  // namespace mixtape
