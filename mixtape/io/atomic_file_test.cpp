#include "mixtape/io/atomic_file.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>

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
  MIXTAPE_EXPECT_ERROR(AtomicFile(directory / "absent" / "out.bin"), ErrorCode::io,
                       "No such file or directory");
  fs::create_directory(directory / "taken");
  AtomicFile file(directory / "taken");
  MIXTAPE_EXPECT_ERROR(file.commit(), ErrorCode::io, "Is a directory");
  EXPECT_THROW(AtomicFile(fs::path()), Error);
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
  MIXTAPE_EXPECT_ERROR(AtomicDirectory(directory / "link"), ErrorCode::io, "output directory exists");

  AtomicDirectory out(directory / "late");
  directory.write("late", "a file took the name");
  MIXTAPE_EXPECT_ERROR(out.commit(), ErrorCode::io, "output directory exists");
}

}  // namespace
}  // namespace mixtape
