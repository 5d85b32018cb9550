// One end of a TCP connection between two processes of a run, which may stand on two hosts.
#pragma once

#include <chrono>
#include <cstddef>
#include <optional>
#include <span>
#include <string>

namespace mixtape {

using Deadline = std::chrono::steady_clock::time_point;
inline constexpr Deadline kNoDeadline = Deadline::max();

// What was opened, and is closed with it.
class Socket {
 public:
  Socket() = default;
  explicit Socket(int descriptor) : descriptor_(descriptor) {}
  Socket(Socket&& other) noexcept;
  Socket& operator=(Socket&& other) noexcept;
  ~Socket();
  int descriptor() const { return descriptor_; }

 private:
  int descriptor_ = -1;
};

// Errors are of the code device and say only what the system says of the other end: the caller knows whose it is.
class Connection {
 public:
  // Of a connected socket. A host that is gone is noticed after about a minute.
  explicit Connection(Socket socket);

  void send(std::span<const std::byte> bytes);
  void receive(std::span<std::byte> bytes, Deadline deadline);
  // Whether something came, or the other end's end, before the deadline.
  bool has_come(Deadline deadline) const;
  // Whether the other end sends no more, or is gone.
  bool has_ended() const;
  // No more is sent; what was sent arrives.
  void end();

 private:
  Socket socket_;
};

// Where other processes come in. `is_local`: from this host alone.
class Entrance {
 public:
  // Throws io where the port can't be had.
  Entrance(int port, bool is_local);
  // The next one that comes; nothing: nobody came in time.
  std::optional<Connection> next(Deadline deadline);

 private:
  Socket socket_;
};

// Tries until the deadline; nobody there is no error before it. Throws device with what the system says.
Connection connect_to(const std::string& address, int port, Deadline deadline);

}  // namespace mixtape
