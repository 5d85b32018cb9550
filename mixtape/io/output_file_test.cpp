#include "mixtape/io/output_file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "mixtape/core/error.h"
#include "mixtape/testing/check_op.h"
#include "mixtape/testing/temp_directory.h"

namespace mixtape {
namespace {

namespace fs = std::filesystem;
using testing::contents_of;
using testing::TempDirectory;

TEST(OutputFile, AFileIsReplacedWholeAtWrite) {
  const TempDirectory directory;
  const fs::path target = directory.write("report.json", "old");
  {
    OutputFile file(target.string());
    EXPECT_EQ(contents_of(target), "old");
    file.write("new");
  }
  EXPECT_EQ(contents_of(target), "new");
  { const OutputFile unwritten(directory / "absent" / "report.json"); }
  EXPECT_FALSE(fs::exists(directory / "absent"));
}

TEST(OutputFile, LinksAreFollowedAndStay) {
  const TempDirectory directory, elsewhere;
  const fs::path target = elsewhere.write("report.json", "old");
  fs::create_symlink(target, directory / "there");
  fs::create_symlink("there", directory / "link");
  OutputFile(directory / "link").write("new");
  EXPECT_EQ(contents_of(target), "new");
  EXPECT_TRUE(fs::is_symlink(directory / "link"));
  EXPECT_TRUE(fs::is_symlink(directory / "there"));

  fs::create_symlink(elsewhere / "fresh.json", directory / "dangling");
  OutputFile(directory / "dangling").write("made");
  EXPECT_EQ(contents_of(elsewhere / "fresh.json"), "made");
}

TEST(OutputFile, DevicesAndFifosAreWrittenIntoAndNeverReplaced) {
  OutputFile("/dev/null").write("x");
  EXPECT_TRUE(fs::is_character_file("/dev/null"));
  MIXTAPE_EXPECT_ERROR(OutputFile("/dev/full").write("x"), ErrorCode::io,
                       "/dev/full: cannot write: No space left on device");
  EXPECT_TRUE(fs::is_character_file("/dev/full"));

  const TempDirectory directory;
  const fs::path fifo = directory / "fifo";
  ASSERT_EQ(::mkfifo(fifo.c_str(), 0600), 0);
  const int reader = ::open(fifo.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  OutputFile(fifo.string()).write("through");
  char text[16] = {};
  EXPECT_EQ(::read(reader, text, sizeof text), 7);
  ::close(reader);
  EXPECT_STREQ(text, "through");
  EXPECT_TRUE(fs::is_fifo(fifo));
}

// A descriptor's file keeps what stands in it: the text goes where the next output would.
TEST(OutputFile, ADescriptorIsWrittenWhereItStands) {
  const TempDirectory directory;
  const fs::path log = directory.write("log", "");
  const int fd = ::open(log.c_str(), O_WRONLY | O_CLOEXEC);
  ASSERT_EQ(::write(fd, "before ", 7), 7);
  OutputFile("/dev/fd/" + std::to_string(fd)).write("after");
  OutputFile("/proc/self/fd/" + std::to_string(fd)).write("!");
  ::close(fd);
  EXPECT_EQ(contents_of(log), "before after!");
  MIXTAPE_EXPECT_ERROR(OutputFile("/dev/fd/987"), ErrorCode::io, "Bad file descriptor");
}

TEST(OutputFile, TheFileBehindStandardOutputIsNotReplaced) {
  const TempDirectory directory;
  const fs::path log = directory.write("log", "");
  const int standard_output = ::dup(STDOUT_FILENO);
  const int fd = ::open(log.c_str(), O_WRONLY | O_CLOEXEC);
  std::fflush(stdout);
  ::dup2(fd, STDOUT_FILENO);
  for (const std::string& name : {log.string(), std::string("-"), std::string("/dev/stdout")}) {
    OutputFile(name).write(name == "-" ? "2" : "1");
  }
  ::dup2(standard_output, STDOUT_FILENO);
  ::close(standard_output);
  ::close(fd);
  EXPECT_EQ(contents_of(log), "121");
}

TEST(OutputFile, WhatCannotBeWrittenIsRefusedAtOnce) {
  const TempDirectory directory;
  MIXTAPE_EXPECT_ERROR(OutputFile(directory.path().string()), ErrorCode::io,
                       "is a directory, expected a file");
  EXPECT_THROW(OutputFile(""), Error);
  const fs::path plain = directory.write("plain", "");
  MIXTAPE_EXPECT_ERROR(OutputFile(plain / "report.json"), ErrorCode::io, "Not a directory");
}

}  // namespace
}  // namespace mixtape
