// A port of this host that nobody has.
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "mixtape/core/error.h"

namespace mixtape::testing {

inline int free_port() {
  const int socket = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  auto* place = reinterpret_cast<sockaddr*>(&address);
  const bool is_found = ::bind(socket, place, size) == 0 && ::getsockname(socket, place, &size) == 0;
  ::close(socket);
  if (!is_found) fail(ErrorCode::io, "tests: no free port");
  return ntohs(address.sin_port);
}

}  // namespace mixtape::testing
