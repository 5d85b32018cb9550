// The processes of one run, on one host or several. They find each other at rank 0, which the others are connected to,
// and go from one exchange to the next together. What goes over the network is neither encrypted nor signed: the network
// is trusted.
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "mixtape/core/error.h"
#include "mixtape/runtime/connection.h"
#include "mixtape/runtime/launch.h"

namespace mixtape {

using Bytes = std::vector<std::byte>;

// What an exchange is of: processes that are at different ones have lost each other.
enum class Exchange : std::uint32_t { failure, arrival, sum, message, end };
const char* name(Exchange exchange);

class Processes {
 public:
  // Comes back once all have come, with what each of them says of itself. Throws invalid_argument for a process of
  // another mixtape, another number of processes, or a rank that is there already; io where rank 0 can't have the port;
  // device, naming them, for ranks that don't come within the launch's patience, and where something else answers.
  Processes(const Launch& launch, const std::string& said);
  // The others find at their next exchange that this one has ended.
  ~Processes() = default;
  Processes(const Processes&) = delete;
  Processes& operator=(const Processes&) = delete;

  std::int64_t rank() const { return launch_.rank; }
  std::int64_t size() const { return launch_.size; }
  bool is_first() const { return rank() == 0; }
  // "rank 1 on node7"
  std::string name_of(std::int64_t rank) const;
  const std::vector<std::string>& hosts() const { return hosts_; }  // by rank
  const std::vector<std::string>& said() const { return said_; }    // by rank

  // All call them in the same order, by one thread at a time. Throw the error of a process that failed, which its message
  // names; device for one that has ended without a word, that is gone, or that stayed away from a sum for half an hour.
  // From the first error on every exchange throws it.
  //
  // To rank 0, by rank; the others get nothing.
  std::vector<Bytes> gather(Exchange exchange, std::span<const std::byte> mine);
  // From rank 0 to all.
  void broadcast(Exchange exchange, Bytes& bytes);
  // Each one's text, by rank, to all; line breaks become spaces.
  std::vector<std::string> share(const std::string& mine);
  // Ends the exchanges with an error of this process, which is passed on to the others.
  void fail(ErrorCode code, const std::string& what) noexcept;

  // Whether an exchange would find that another process has ended. From any thread.
  bool has_lost_one() const;
  // Throws the error of such a one, or that it is lost.
  void throw_if_lost();
  // From now on a message is waited for only until `asked` turns true, which ends the waiting by an error `interrupted`.
  void wait_until(std::function<bool()> asked) { asked_ = std::move(asked); }

 private:
  struct Peer {
    std::int64_t rank;
    Connection connection;
    bool is_lost = false;
  };
  struct Arrival;

  void wait_for_others();
  void welcome(Connection connection, Deadline deadline);
  void check(const Arrival& arrival) const;
  void go_to_first(const Arrival& own);
  bool is_here(std::int64_t rank) const;
  std::string missing() const;

  void send(Peer& peer, Exchange exchange, std::span<const std::byte> bytes);
  Bytes receive(Peer& peer, Exchange exchange, Deadline deadline);
  void wait_unless_asked(const Peer& peer) const;
  // Throws what the peer failed by, or that it is lost for `reason`.
  [[noreturn]] void lose(Peer& peer, const std::string& reason);
  [[noreturn]] void end_by(ErrorCode code, const std::string& what);
  void throw_if_ended() const;
  void pass_on(ErrorCode code, const std::string& what) noexcept;

  Launch launch_;
  std::vector<Peer> peers_;  // of rank 0: all others, by rank; else rank 0
  std::vector<std::string> hosts_, said_;
  std::exception_ptr error_;
  std::function<bool()> asked_;
};

}  // namespace mixtape
