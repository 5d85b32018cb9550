#include "mixtape/runtime/processes.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <sstream>

#include "mixtape/core/counted.h"

namespace mixtape {
namespace {

// The first bytes that each end sends: what sends others is no process of a run.
constexpr std::string_view kGreeting = "mixtape run  1\r\n";
constexpr std::chrono::seconds kGreetingPatience{10}, kLastWordPatience{1};
constexpr std::chrono::minutes kSumPatience{30};
constexpr std::chrono::milliseconds kGlance{200};  // between two looks at whether to wait on
constexpr std::uint64_t kMostOfArrival = 1 << 16;  // bytes, from somebody who may be anybody

struct Header {
  Exchange exchange;
  std::uint32_t code;  // of a failure
  std::uint64_t bytes;
};

Deadline after(std::chrono::milliseconds patience) { return std::chrono::steady_clock::now() + patience; }

Deadline deadline_of(Exchange exchange) {
  return exchange == Exchange::message ? kNoDeadline : after(kSumPatience);
}

std::span<const std::byte> bytes_of(std::string_view text) { return std::as_bytes(std::span(text)); }
std::string text_of(const Bytes& bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

void send_frame(Connection& connection, const Header& header, std::span<const std::byte> bytes) {
  connection.send(std::as_bytes(std::span(&header, 1)));
  connection.send(bytes);
}

Header receive_header(Connection& connection, Deadline deadline) {
  Header header{};
  connection.receive(std::as_writable_bytes(std::span(&header, 1)), deadline);
  return header;
}

Bytes receive_bytes(Connection& connection, std::uint64_t count, Deadline deadline) {
  Bytes bytes(count);
  connection.receive(bytes, deadline);
  return bytes;
}

bool is_greeted(Connection& connection, Deadline deadline) {
  std::array<char, kGreeting.size()> found{};
  connection.receive(std::as_writable_bytes(std::span(found)), deadline);
  return std::string_view(found.data(), found.size()) == kGreeting;
}

std::string host_name() {
  std::array<char, 256> name{};
  return ::gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "an unnamed host";
}

std::string joined(const std::vector<std::string>& lines) {
  std::string text;
  for (const std::string& line : lines) text += line + "\n";
  return text;
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

bool is_this_host(const std::string& address) { return address == "localhost" || address == "127.0.0.1"; }

}  // namespace

const char* name(Exchange exchange) {
  constexpr std::array kNames = {"failure", "arrival", "sum", "message", "end"};
  const auto i = static_cast<std::size_t>(exchange);
  return i < kNames.size() ? kNames[i] : "unknown";
}

// What a process says when it comes.
struct Processes::Arrival {
  std::string program, size, rank, host, said;

  std::string text() const { return joined({program, size, rank, host, said}); }
  static std::optional<Arrival> of(const std::string& text) {
    const std::vector<std::string> lines = lines_of(text);
    if (lines.size() != 5) return std::nullopt;
    return Arrival{lines[0], lines[1], lines[2], lines[3], lines[4]};
  }
};

Processes::Processes(const Launch& launch, const std::string& said)
    : launch_(launch),
      hosts_(static_cast<std::size_t>(launch.size)),
      said_(static_cast<std::size_t>(launch.size)) {
  require(launch.size > 1 && launch.rank >= 0 && launch.rank < launch.size, "processes: rank ", launch.rank,
          " of ", launch.size, ", expected one of two or more");
  const Arrival own{launch.program, std::to_string(launch.size), std::to_string(launch.rank), host_name(),
                    said};
  hosts_[static_cast<std::size_t>(launch.rank)] = own.host;
  said_[static_cast<std::size_t>(launch.rank)] = said;
  if (is_first()) {
    wait_for_others();
  } else {
    go_to_first(own);
  }
  Bytes known;
  if (is_first()) {
    const std::string text = joined(hosts_) + joined(said_);
    known.assign(bytes_of(text).begin(), bytes_of(text).end());
  }
  broadcast(Exchange::arrival, known);
  const std::vector<std::string> lines = lines_of(text_of(known));
  for (std::size_t i = 0; i < hosts_.size(); ++i)
    hosts_[i] = lines.at(i), said_[i] = lines.at(hosts_.size() + i);
}

std::string Processes::name_of(std::int64_t rank) const {
  const std::string& host = hosts_[static_cast<std::size_t>(rank)];
  return str("rank ", rank, host.empty() ? "" : " on ", host);
}

void Processes::wait_for_others() {
  const Deadline deadline = after(launch_.patience);
  try {
    Entrance entrance(launch_.port, is_this_host(launch_.address));
    while (peers_.size() + 1 < hosts_.size()) {
      std::optional<Connection> connection = entrance.next(deadline);
      if (!connection) {
        end_by(ErrorCode::device, str("processes: ", missing(), " did not come to ", launch_.address, ":",
                                      launch_.port, " within ", counted(launch_.patience.count(), "second"),
                                      ", expected ", size(), " processes"));
      }
      welcome(std::move(*connection), deadline);
    }
  } catch (const Error& error) {
    if (error.code() != ErrorCode::io) throw;
    mixtape::fail(ErrorCode::io, "processes: rank 0 can't wait at port ", launch_.port, ": ", error.what(),
                  "; choose another MASTER_PORT");
  }
  std::sort(peers_.begin(), peers_.end(), [](const Peer& a, const Peer& b) { return a.rank < b.rank; });
}

// Who doesn't greet is let go: ports are knocked at by others.
void Processes::welcome(Connection connection, Deadline deadline) {
  const Deadline soon = std::min(deadline, after(kGreetingPatience));
  std::optional<Arrival> arrival;
  try {
    if (!is_greeted(connection, soon)) return;
    connection.send(bytes_of(kGreeting));
    const Header header = receive_header(connection, soon);
    if (header.exchange != Exchange::arrival || header.bytes > kMostOfArrival) return;
    arrival = Arrival::of(text_of(receive_bytes(connection, header.bytes, soon)));
  } catch (const Error&) {
    return;
  }
  if (!arrival) return;
  const std::int64_t rank = std::atoll(arrival->rank.c_str());
  try {
    check(*arrival);
  } catch (const Error& error) {
    peers_.push_back({rank, std::move(connection)});
    end_by(error.code(), error.what());
  }
  hosts_[static_cast<std::size_t>(rank)] = arrival->host;
  said_[static_cast<std::size_t>(rank)] = arrival->said;
  peers_.push_back({rank, std::move(connection)});
}

void Processes::check(const Arrival& a) const {
  const std::string who = str("processes: rank ", a.rank, " on ", a.host);
  require(a.program == launch_.program, who, " is ", a.program, ", rank 0 ", launch_.program,
          ", expected one program");
  require(a.size == std::to_string(size()), who, " is one of ", a.size, " processes, rank 0 of ", size(),
          ", expected one number");
  const std::int64_t rank = std::atoll(a.rank.c_str());
  require(rank > 0 && rank < size() && !is_here(rank), who, " comes, and rank ", a.rank,
          " is there, expected each rank once");
}

bool Processes::is_here(std::int64_t rank) const {
  return rank == 0 ||
         std::any_of(peers_.begin(), peers_.end(), [&](const Peer& p) { return p.rank == rank; });
}

std::string Processes::missing() const {
  std::string ranks;
  for (std::int64_t rank = 0; rank < size(); ++rank) {
    if (!is_here(rank)) ranks += str(ranks.empty() ? "rank " : ", ", rank);
  }
  return ranks;
}

void Processes::go_to_first(const Arrival& own) {
  const std::string place = str(launch_.address, ":", launch_.port);
  const Deadline deadline = after(launch_.patience), last = deadline + kGreetingPatience;
  try {
    Connection connection = connect_to(launch_.address, launch_.port, deadline);
    connection.send(bytes_of(kGreeting));
    const std::string text = own.text();
    send_frame(connection, {Exchange::arrival, 0, text.size()}, bytes_of(text));
    const bool is_first_there = is_greeted(connection, last);
    if (!is_first_there) mixtape::fail(ErrorCode::device, "what is there is no mixtape");
    peers_.push_back({0, std::move(connection)});
  } catch (const Error& error) {
    mixtape::fail(ErrorCode::device, "processes: there is no rank 0 at ", place, ": ", error.what(),
                  "; see MASTER_ADDR, MASTER_PORT and what rank 0 printed");
  }
}

std::vector<Bytes> Processes::gather(Exchange exchange, std::span<const std::byte> mine) {
  throw_if_ended();
  if (!is_first()) {
    send(peers_[0], exchange, mine);
    return {};
  }
  std::vector<Bytes> all = {Bytes(mine.begin(), mine.end())};
  for (Peer& peer : peers_) all.push_back(receive(peer, exchange, deadline_of(exchange)));
  return all;
}

void Processes::broadcast(Exchange exchange, Bytes& bytes) {
  throw_if_ended();
  if (!is_first()) {
    const Deadline patient =
        exchange == Exchange::arrival ? after(launch_.patience + kGreetingPatience) : deadline_of(exchange);
    bytes = receive(peers_[0], exchange, patient);
    return;
  }
  for (Peer& peer : peers_) send(peer, exchange, bytes);
}

std::vector<std::string> Processes::share(const std::string& mine) {
  std::vector<std::string> lines;
  for (const Bytes& bytes : gather(Exchange::message, bytes_of(mine))) {
    lines.push_back(text_of(bytes));
    std::replace(lines.back().begin(), lines.back().end(), '\n', ' ');
  }
  const std::string text = joined(lines);
  Bytes all(bytes_of(text).begin(), bytes_of(text).end());
  broadcast(Exchange::message, all);
  return lines_of(text_of(all));
}

void Processes::send(Peer& peer, Exchange exchange, std::span<const std::byte> bytes) {
  try {
    send_frame(peer.connection, {exchange, 0, bytes.size()}, bytes);
  } catch (const Error& error) {
    lose(peer, error.what());
  }
}

void Processes::wait_unless_asked(const Peer& peer) const {
  const bool was_asked = asked_();  // what was asked for before is others' business
  while (!peer.connection.has_come(after(kGlance))) {
    if (!was_asked && asked_()) mixtape::fail(ErrorCode::interrupted, "interrupted");
  }
}

Bytes Processes::receive(Peer& peer, Exchange exchange, Deadline deadline) {
  if (exchange == Exchange::message && asked_) wait_unless_asked(peer);
  Header header{};
  Bytes bytes;
  try {
    header = receive_header(peer.connection, deadline);
    bytes = receive_bytes(peer.connection, header.bytes, deadline);
  } catch (const Error& error) {
    lose(peer, error.what());
  }
  if (header.exchange == Exchange::failure) {
    peer.is_lost = true;
    end_by(static_cast<ErrorCode>(header.code), text_of(bytes));
  }
  if (header.exchange != exchange) {
    end_by(ErrorCode::invalid_argument,
           str("processes: ", name_of(peer.rank), " is at its ", header.exchange, ", ", name_of(rank()),
               " at its ", exchange, ", expected the same work"));
  }
  return bytes;
}

// What can't be sent to it may be so because it has failed: then it said why.
void Processes::lose(Peer& peer, const std::string& reason) {
  peer.is_lost = true;
  std::optional<Header> header;
  std::string said;
  try {
    header = receive_header(peer.connection, after(kLastWordPatience));
    if (header->exchange == Exchange::failure)
      said = text_of(receive_bytes(peer.connection, header->bytes, after(kLastWordPatience)));
  } catch (const Error&) {
  }
  if (!said.empty()) end_by(static_cast<ErrorCode>(header->code), said);
  end_by(ErrorCode::device, str("processes: ", name_of(peer.rank), " is lost: ", reason,
                                "; what it printed last says more, and what was kept stands"));
}

void Processes::end_by(ErrorCode code, const std::string& what) {
  error_ = std::make_exception_ptr(Error(code, what));
  pass_on(code, what);
  std::rethrow_exception(error_);
}

void Processes::throw_if_ended() const {
  if (error_) std::rethrow_exception(error_);
}

void Processes::fail(ErrorCode code, const std::string& what) noexcept {
  if (error_) return;
  error_ = std::make_exception_ptr(Error(code, what));
  pass_on(code, str(name_of(rank()), ": ", what));
}

void Processes::pass_on(ErrorCode code, const std::string& what) noexcept {
  for (Peer& peer : peers_) {
    if (peer.is_lost) continue;
    try {
      send_frame(peer.connection, {Exchange::failure, static_cast<std::uint32_t>(code), what.size()},
                 bytes_of(what));
      peer.connection.end();
    } catch (const Error&) {  // it is gone too
    }
  }
}

void Processes::throw_if_lost() {
  for (Peer& peer : peers_) {
    if (peer.connection.has_ended()) lose(peer, "it has ended");
  }
}

bool Processes::has_lost_one() const {
  return std::any_of(peers_.begin(), peers_.end(), [](const Peer& p) { return p.connection.has_ended(); });
}

}  // namespace mixtape
