// The place of a small result that is written at the end of long work.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "mixtape/io/atomic_file.h"

namespace mixtape {

// The constructor finds out whatever can be known before: name, parents, permissions.
//   regular file or new name   appears whole, at write(); links are followed to the file that they name
//   device, FIFO, socket       opened at once, written straight into, never replaced
//   "-", /dev/stdout, /dev/fd/N, and the file that standard output or error goes to: that descriptor
// Every method throws io, naming the path and the system's reason.
class OutputFile {
 public:
  explicit OutputFile(const std::string& name);
  ~OutputFile();
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;

  // Temporaries of dead processes that the constructor found beside it and removed.
  const std::vector<std::filesystem::path>& swept() const { return swept_; }
  void write(std::string_view text);  // once

 private:
  void write_straight(std::string_view text) const;

  std::string name_;
  std::unique_ptr<AtomicFile> file_;
  std::vector<std::filesystem::path> swept_;
  int fd_ = -1;
};

}  // namespace mixtape
