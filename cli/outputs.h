// Where results go. Every result has a new name; folders that lead to it are made. Reports may also go to what takes a
// stream: standard output, a device, a FIFO. Whatever can be found out about a place is found out before the work begins; a result that
// still can't be written there is kept in another place.
#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "mixtape/io/atomic_file.h"
#include "mixtape/io/output_file.h"

namespace mixtape::cli {

// Throws if `path` is `folder` or lies below it; `what` and `of` name the two: "--json", "--out".
void refuse_inside(const std::string& what, const std::string& path, const std::string& of,
                   const std::string& folder);

// What a name ends in from its last dot on, in small letters, whether or not a slash follows: ".gguf".
std::string ending_of(const std::string& name);

// The place of `option`'s one large file of `bytes`: made, warned of what dead runs left beside it. Throws io, naming it,
// where that can't be, something has its name, the disk has less room, or the process may not write files as large.
std::unique_ptr<AtomicFile> place_for(const std::string& option, const std::string& name,
                                      std::uint64_t bytes);

// Throws if `path` is one of the files that the run reads, or lies in one of its directories; empty names are none.
void refuse_input(const std::string& what, const std::string& path, const std::vector<std::string>& inputs);

// Whether both are one file, or standard output. Never so for empty names, nor for devices and FIFOs, which keep nothing.
bool is_same_place(const std::string& a, const std::string& b);

// A result's option and where it goes; an empty path: nowhere.
struct Place {
  std::string option, path;
};
// Throws if two results would go to one file, or both to standard output.
void refuse_same_place(const std::vector<Place>& places);

// One large file that the work ends with; an empty name: there is none.
class FileOutput {
 public:
  // May not lie in `out`, the directory of --out, if that is given, nor be one of the run's inputs.
  FileOutput(const std::string& name, const std::vector<std::string>& inputs, const std::string& out,
             const std::string& option);

  bool wanted() const { return file_ != nullptr; }
  // Throws if the disk has less room, or the process may not write files as large.
  void require_space(std::uint64_t bytes) const;
  // `fill` writes and commits the file. If the system refuses, it is called again for other places, and an error says
  // which one took the result.
  void write(const std::function<void(AtomicFile&)>& fill);
  // Prints where it went and its size.
  void tell() const;

 private:
  std::string name_;
  std::unique_ptr<AtomicFile> file_;
};

// The directory of --out, or its GGUF file.
class ModelOutput {
 public:
  // Makes its place; warns of what dead runs left there. Refused are names that exist, that another run is
  // writing, or that lie in `model`.
  ModelOutput(std::string out, const std::string& model, bool is_gguf = false);

  bool is_gguf() const { return file_ != nullptr; }
  // Throws if the disk has less room than `bytes` of weights and, for a directory, bytes_beside() (disk_space.h), or the process may
  // not write files as large.
  void require_space(std::uint64_t bytes, std::uint64_t beside) const;
  // `fill` writes and commits the directory, or the file. If the system refuses, it is called again for other places,
  // and an error says which one took the result.
  void write(const std::function<void(AtomicDirectory&)>& fill);
  void write_gguf(const std::function<void(AtomicFile&)>& fill) { file_->write(fill); }
  // Prints where it went and its size.
  void tell() const;

 private:
  std::string out_;
  std::unique_ptr<AtomicDirectory> directory_;
  std::unique_ptr<FileOutput> file_;
};

// The file of --json, or of another `option`; "-" is standard output.
class ReportFile {
 public:
  // An empty name: there is no report. It may not lie in `out`, the directory of --out, if that is given, nor be one
  // of the run's inputs. "-": what else goes to standard output goes to standard error from then on.
  explicit ReportFile(const std::string& name, const std::vector<std::string>& inputs,
                      const std::string& out = "", const std::string& option = "--json");

  bool wanted() const { return file_ != nullptr; }
  // If the system refuses, the report is kept in another place, and an error says where.
  void write(const nlohmann::json& report);
  // `make` is not called where there is no report.
  void write_page(const std::function<std::string()>& make);
  // The record of a model that was written, with what differs from run to run: where it is, and what it took.
  void write_model(nlohmann::json record, const std::string& out, double seconds);

 private:
  void write_text(const std::string& text);

  std::string name_;
  std::unique_ptr<OutputFile> file_;
  int stdout_ = -1;  // where "-" goes
};

// Writes the reports, and then tells the results: standard output may fail. Where a report can't be written the others
// are, the results are told all the same, and its error, io, comes last.
void report_then_tell(std::initializer_list<std::function<void()>> reports,
                      const std::function<void()>& tell);

}  // namespace mixtape::cli
