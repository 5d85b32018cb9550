#include "mixtape/runtime/connection.h"

#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <thread>
#include <utility>

#include "mixtape/core/error.h"

namespace mixtape {
namespace {

// A host that doesn't answer counts as gone after some 20 + 4 * 10 seconds.
constexpr int kIdleSeconds = 20, kProbeSeconds = 10, kProbes = 4;
constexpr unsigned kUnheardMilliseconds = 60'000;
constexpr int kWaiting = 64;              // connections that are not accepted yet
constexpr std::chrono::seconds kTurn{5};  // of one of several addresses of a name

std::string reason(int error) {
  return error == ECONNRESET || error == EPIPE ? "it has ended" : std::strerror(error);
}

template <class T>
void set(int socket, int level, int name, const T& value) {
  ::setsockopt(socket, level, name, &value, sizeof value);
}

// Milliseconds for poll, which is called again after an hour; rounded up.
int milliseconds_to(Deadline deadline) {
  constexpr std::chrono::hours kHour{1};
  const auto now = std::chrono::steady_clock::now();
  if (deadline <= now) return 0;
  if (deadline - now > kHour) return static_cast<int>(std::chrono::milliseconds(kHour).count());
  return static_cast<int>(std::chrono::ceil<std::chrono::milliseconds>(deadline - now).count());
}

// What of `events` came, or an end of the connection; 0: the deadline.
short wait_for(int socket, short events, Deadline deadline) {
  for (;;) {
    pollfd state{socket, events, 0};
    const int found = ::poll(&state, 1, milliseconds_to(deadline));
    if (found > 0) return state.revents;
    if (found < 0 && errno != EINTR) fail(ErrorCode::device, reason(errno));
    if (found == 0 && std::chrono::steady_clock::now() >= deadline) return 0;
  }
}

Socket opened(int family) { return Socket(::socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0)); }

bool listens(const Socket& socket, const sockaddr* address, socklen_t size) {
  return ::bind(socket.descriptor(), address, size) == 0 && ::listen(socket.descriptor(), kWaiting) == 0;
}

Socket listening_v6(int port, bool is_local) {
  Socket socket = opened(AF_INET6);
  if (socket.descriptor() < 0) return socket;
  set(socket.descriptor(), IPPROTO_IPV6, IPV6_V6ONLY, 0);
  set(socket.descriptor(), SOL_SOCKET, SO_REUSEADDR, 1);
  sockaddr_in6 address{};
  address.sin6_family = AF_INET6;
  address.sin6_port = htons(static_cast<std::uint16_t>(port));
  // ::ffff:127.0.0.1: the loopback of version 4, as connections from this host have it.
  if (is_local) {
    address.sin6_addr.s6_addr[10] = address.sin6_addr.s6_addr[11] = 0xff;
    address.sin6_addr.s6_addr[12] = 127;
    address.sin6_addr.s6_addr[15] = 1;
  }
  if (!listens(socket, reinterpret_cast<const sockaddr*>(&address), sizeof address)) return Socket();
  return socket;
}

Socket listening_v4(int port, bool is_local) {
  Socket socket = opened(AF_INET);
  if (socket.descriptor() < 0) return socket;
  set(socket.descriptor(), SOL_SOCKET, SO_REUSEADDR, 1);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<std::uint16_t>(port));
  address.sin_addr.s_addr = htonl(is_local ? INADDR_LOOPBACK : INADDR_ANY);
  if (!listens(socket, reinterpret_cast<const sockaddr*>(&address), sizeof address)) return Socket();
  return socket;
}

struct AddressesEnd {
  void operator()(addrinfo* first) const { ::freeaddrinfo(first); }
};
using Addresses = std::unique_ptr<addrinfo, AddressesEnd>;

Addresses addresses_of(const std::string& name, int port) {
  addrinfo hints{}, *first = nullptr;
  hints.ai_socktype = SOCK_STREAM;
  const int status = ::getaddrinfo(name.c_str(), std::to_string(port).c_str(), &hints, &first);
  if (status != 0) fail(ErrorCode::device, ::gai_strerror(status));
  return Addresses(first);
}

// Connected, or the reason why not.
std::pair<Socket, int> connected(const addrinfo& to, Deadline deadline) {
  Socket socket(::socket(to.ai_family, to.ai_socktype | SOCK_CLOEXEC | SOCK_NONBLOCK, to.ai_protocol));
  if (socket.descriptor() < 0) return {Socket(), errno};
  int error = ::connect(socket.descriptor(), to.ai_addr, to.ai_addrlen) == 0 ? 0 : errno;
  if (error == EINPROGRESS) {
    if (wait_for(socket.descriptor(), POLLOUT, deadline) == 0) return {Socket(), ETIMEDOUT};
    socklen_t size = sizeof error;
    ::getsockopt(socket.descriptor(), SOL_SOCKET, SO_ERROR, &error, &size);
  }
  if (error != 0) return {Socket(), error};
  return {std::move(socket), 0};
}

}  // namespace

Socket::Socket(Socket&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}

Socket& Socket::operator=(Socket&& other) noexcept {
  std::swap(descriptor_, other.descriptor_);
  return *this;
}

Socket::~Socket() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

Connection::Connection(Socket socket) : socket_(std::move(socket)) {
  const int s = socket_.descriptor();
  ::fcntl(s, F_SETFL, ::fcntl(s, F_GETFL) | O_NONBLOCK);
  set(s, SOL_SOCKET, SO_KEEPALIVE, 1);
  set(s, IPPROTO_TCP, TCP_KEEPIDLE, kIdleSeconds);
  set(s, IPPROTO_TCP, TCP_KEEPINTVL, kProbeSeconds);
  set(s, IPPROTO_TCP, TCP_KEEPCNT, kProbes);
  set(s, IPPROTO_TCP, TCP_USER_TIMEOUT, kUnheardMilliseconds);
  set(s, IPPROTO_TCP, TCP_NODELAY, 1);
}

void Connection::send(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::send(socket_.descriptor(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (n >= 0) {
      bytes = bytes.subspan(static_cast<std::size_t>(n));
      continue;
    }
    if (errno == EINTR) continue;
    if (errno != EAGAIN && errno != EWOULDBLOCK) fail(ErrorCode::device, reason(errno));
    const short found = wait_for(socket_.descriptor(), POLLOUT | POLLRDHUP, kNoDeadline);
    if ((found & POLLRDHUP) != 0) fail(ErrorCode::device, "it has ended");
  }
}

void Connection::receive(std::span<std::byte> bytes, Deadline deadline) {
  while (!bytes.empty()) {
    const ssize_t n = ::recv(socket_.descriptor(), bytes.data(), bytes.size(), 0);
    if (n > 0) {
      bytes = bytes.subspan(static_cast<std::size_t>(n));
      continue;
    }
    if (n == 0) fail(ErrorCode::device, "it has ended");
    if (errno == EINTR) continue;
    if (errno != EAGAIN && errno != EWOULDBLOCK) fail(ErrorCode::device, reason(errno));
    if (wait_for(socket_.descriptor(), POLLIN, deadline) == 0)
      fail(ErrorCode::device, "nothing came in time");
  }
}

bool Connection::has_come(Deadline deadline) const {
  return wait_for(socket_.descriptor(), POLLIN, deadline) != 0;
}

bool Connection::has_ended() const {
  pollfd state{socket_.descriptor(), POLLRDHUP, 0};
  return ::poll(&state, 1, 0) > 0;
}

void Connection::end() { ::shutdown(socket_.descriptor(), SHUT_WR); }

Entrance::Entrance(int port, bool is_local) {
  socket_ = listening_v6(port, is_local);
  if (socket_.descriptor() < 0) socket_ = listening_v4(port, is_local);
  if (socket_.descriptor() < 0) fail(ErrorCode::io, reason(errno));
  ::fcntl(socket_.descriptor(), F_SETFL, ::fcntl(socket_.descriptor(), F_GETFL) | O_NONBLOCK);
}

std::optional<Connection> Entrance::next(Deadline deadline) {
  while (wait_for(socket_.descriptor(), POLLIN, deadline) != 0) {
    Socket socket(::accept4(socket_.descriptor(), nullptr, nullptr, SOCK_CLOEXEC));
    if (socket.descriptor() >= 0) return Connection(std::move(socket));  // else it went again
  }
  return std::nullopt;
}

Connection connect_to(const std::string& address, int port, Deadline deadline) {
  const Addresses all = addresses_of(address, port);
  for (;;) {
    int error = 0;
    for (const addrinfo* to = all.get(); to != nullptr; to = to->ai_next) {
      const Deadline turn = std::chrono::steady_clock::now() + kTurn;
      auto [socket, failure] = connected(*to, std::min(turn, deadline));
      if (failure == 0) return Connection(std::move(socket));
      error = failure;
    }
    if (std::chrono::steady_clock::now() >= deadline) fail(ErrorCode::device, reason(error));
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
}

}  // namespace mixtape
