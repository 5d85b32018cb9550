// Processes of a run find each other, go on together, and never wait for one that is gone. Threads stand for them, as each
// knows the others by its connections alone.
#include "mixtape/runtime/processes.h"

#include <sys/wait.h>

#include <csignal>
#include <functional>
#include <thread>

#include "mixtape/testing/check_op.h"
#include "mixtape/testing/free_port.h"

namespace mixtape {
namespace {

using Work = std::function<void(const Launch& launch)>;

Launch launch_at(int port, std::int64_t rank, std::int64_t size) {
  return {rank, size, rank, "localhost", port, std::chrono::seconds(20), "tests 1"};
}

// The error of each process; empty: none.
std::vector<std::string> errors_of(std::int64_t size, const Work& work) {
  const int port = testing::free_port();
  std::vector<std::string> errors(static_cast<std::size_t>(size));
  std::vector<std::thread> threads;
  for (std::int64_t rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      try {
        work(launch_at(port, rank, size));
      } catch (const Error& error) {
        errors[static_cast<std::size_t>(rank)] = str(name(error.code()), ": ", error.what());
      }
    });
  }
  for (std::thread& t : threads) t.join();
  return errors;
}

void expect_no_error(const std::vector<std::string>& errors) {
  for (const std::string& error : errors) EXPECT_EQ(error, "");
}

void expect_in(const std::string& part, const std::string& text) {
  EXPECT_NE(text.find(part), std::string::npos) << "'" << part << "' is not in: " << text;
}

Bytes bytes(const std::string& text) {
  const auto part = std::as_bytes(std::span(text));
  return {part.begin(), part.end()};
}

TEST(Processes, GatherAndBroadcast) {
  expect_no_error(errors_of(3, [](const Launch& launch) {
    Processes p(launch, str("I am ", launch.rank));
    EXPECT_EQ(p.said(), (std::vector<std::string>{"I am 0", "I am 1", "I am 2"}));
    expect_in("rank 1 on ", p.name_of(1));
    const std::vector<Bytes> all = p.gather(Exchange::message, bytes(std::string(p.rank() + 1, 'x')));
    EXPECT_EQ(all, p.is_first() ? (std::vector<Bytes>{bytes("x"), bytes("xx"), bytes("xxx")})
                                : std::vector<Bytes>());
    Bytes many = p.is_first() ? Bytes(1 << 23, std::byte{7}) : Bytes();
    p.broadcast(Exchange::sum, many);
    EXPECT_EQ(many, Bytes(1 << 23, std::byte{7}));
    EXPECT_EQ(p.share(str("a\n", p.rank())), (std::vector<std::string>{"a 0", "a 1", "a 2"}));
    EXPECT_FALSE(p.has_lost_one());
    static_cast<void>(p.gather(Exchange::end, {}));  // nobody goes before the others looked
    Bytes nothing;
    p.broadcast(Exchange::end, nothing);
  }));
}

TEST(Processes, AFailureEndsAll) {
  const std::vector<std::string> errors = errors_of(3, [](const Launch& launch) {
    Processes p(launch, "");
    if (p.rank() == 1) {
      p.fail(ErrorCode::out_of_memory, "no room");
      fail(ErrorCode::out_of_memory, "no room");
    }
    for (int i = 0; i < 2; ++i) {  // the second one too
      try {
        static_cast<void>(p.gather(Exchange::sum, {}));
        Bytes sum;
        p.broadcast(Exchange::sum, sum);
      } catch (const Error&) {
        if (i == 1) throw;
      }
    }
  });
  EXPECT_EQ(errors[1], "out_of_memory: no room");
  for (const std::size_t rank : {0, 2}) {
    expect_in("out_of_memory: rank 1 on ", errors[rank]);
    expect_in(": no room", errors[rank]);
  }
}

// Sums larger than what the connection holds: who sends finds out too.
TEST(Processes, WhoEndsWithoutAWordIsNamed) {
  for (const std::int64_t who : {0, 1, 2}) {
    const std::vector<std::string> errors = errors_of(3, [who](const Launch& launch) {
      Processes p(launch, "");
      if (p.rank() == who) return;
      const Bytes many(1 << 23);
      static_cast<void>(p.gather(Exchange::sum, many));
      Bytes sum;
      p.broadcast(Exchange::sum, sum);
    });
    for (std::size_t rank = 0; rank < 3; ++rank) {
      if (static_cast<std::int64_t>(rank) == who) continue;
      expect_in(str("device: processes: rank ", who, " on "), errors[rank]);
      expect_in("is lost: ", errors[rank]);
    }
  }
}

TEST(Processes, AKilledProcessIsNoticed) {
  const int port = testing::free_port();
  const pid_t child = ::fork();
  if (child == 0) {
    Processes p(launch_at(port, 1, 2), "");
    for (;;) ::pause();
  }
  Processes p(launch_at(port, 0, 2), "");
  EXPECT_FALSE(p.has_lost_one());
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  EXPECT_TRUE(p.has_lost_one());
  MIXTAPE_EXPECT_ERROR(p.gather(Exchange::sum, {}), ErrorCode::device, "is lost: it has ended");
}

// What was asked for before it waited is no reason.
TEST(Processes, WaitingForAMessageEndsWhereAsked) {
  const std::vector<std::string> errors = errors_of(2, [](const Launch& launch) {
    Processes p(launch, "");
    if (p.is_first()) {
      Bytes message = bytes("go on");
      p.broadcast(Exchange::message, message);
      while (!p.has_lost_one()) std::this_thread::sleep_for(std::chrono::milliseconds(10));
      p.throw_if_lost();
      return;
    }
    Bytes message;
    p.wait_until([] { return true; });
    p.broadcast(Exchange::message, message);
    EXPECT_EQ(message, bytes("go on"));
    int looks = 0;
    p.wait_until([&] { return ++looks > 3; });
    try {
      p.broadcast(Exchange::message, message);
    } catch (const Error& error) {
      p.fail(error.code(), error.what());
      throw;
    }
  });
  expect_in("interrupted: rank 1 on ", errors[0]);
  EXPECT_EQ(errors[1], "interrupted: interrupted");
}

TEST(Processes, WhoIsElsewhereIsNamed) {
  const std::vector<std::string> errors = errors_of(2, [](const Launch& launch) {
    Processes p(launch, "");
    const Exchange exchange = p.is_first() ? Exchange::sum : Exchange::end;
    static_cast<void>(p.gather(exchange, {}));
    Bytes sum;
    p.broadcast(exchange, sum);
  });
  expect_in("is at its end, rank 0 on ", errors[0]);
  EXPECT_EQ(errors[1], errors[0]);
}

TEST(Processes, OneThatDoesNotComeIsNamed) {
  const std::vector<std::string> errors = errors_of(3, [](Launch launch) {
    launch.patience = std::chrono::seconds(1);
    launch.size = 4;
    if (launch.rank == 2) return;
    Processes p(launch, "");
  });
  for (const std::size_t rank : {0, 1}) {
    expect_in("device: processes: rank 2, 3 did not come to localhost:", errors[rank]);
    expect_in(" within 1 second, expected 4 processes", errors[rank]);
  }
}

TEST(Processes, NobodyThereIsSaid) {
  Launch launch = launch_at(testing::free_port(), 1, 2);
  launch.patience = std::chrono::seconds(1);
  MIXTAPE_EXPECT_ERROR(Processes(launch, ""), ErrorCode::device, "there is no rank 0 at localhost:");
  launch.address = "no such host.invalid";
  MIXTAPE_EXPECT_ERROR(Processes(launch, ""), ErrorCode::device,
                       "there is no rank 0 at no such host.invalid:");
}

TEST(Processes, APortThatIsTakenIsSaid) {
  const int port = testing::free_port();
  const Entrance other(port, true);
  MIXTAPE_EXPECT_ERROR(Processes(launch_at(port, 0, 2), ""), ErrorCode::io,
                       str("processes: rank 0 can't wait at port ", port, ": Address already in use"));
}

TEST(Processes, RefuseWhoIsNotOfTheRun) {
  const std::vector<std::string> twice = errors_of(3, [](Launch launch) {
    launch.rank = std::min<std::int64_t>(launch.rank, 1);
    Processes p(launch, "");
  });
  expect_in("comes, and rank 1 is there, expected each rank once", twice[0]);
  const std::vector<std::string> versions = errors_of(2, [](Launch launch) {
    if (launch.rank == 1) launch.program = "tests 2";
    Processes p(launch, "");
  });
  for (const std::string& error : versions)
    expect_in(" is tests 2, rank 0 tests 1, expected one program", error);
  const std::vector<std::string> sizes = errors_of(2, [](Launch launch) {
    if (launch.rank == 1) launch.size = 5;
    Processes p(launch, "");
  });
  for (const std::string& error : sizes) {
    expect_in("invalid_argument: processes: rank 1 on ", error);
    expect_in(" is one of 5 processes, rank 0 of 2, expected one number", error);
  }
}

// What knocks at the port, and what is there instead of rank 0, are other programs.
TEST(Processes, OtherProgramsAreNoProcesses) {
  expect_no_error(errors_of(2, [](const Launch& launch) {
    if (launch.rank == 1) {
      const auto soon = std::chrono::steady_clock::now() + std::chrono::seconds(20);
      connect_to("localhost", launch.port, soon).send(bytes("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"));
      connect_to("localhost", launch.port, soon);  // and goes
    }
    const Processes p(launch, "");
  }));
  const std::vector<std::string> errors = errors_of(2, [](const Launch& launch) {
    if (launch.rank == 1)
      return Processes(launch, "").broadcast(Exchange::message, *std::make_unique<Bytes>());
    Entrance entrance(launch.port, true);
    std::optional<Connection> c = entrance.next(std::chrono::steady_clock::now() + std::chrono::seconds(20));
    if (c) c->send(bytes("HTTP/1.1 400 Bad Request\r\n\r\n"));
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  });
  expect_in("what is there is no mixtape", errors[1]);
}

}  // namespace
}  // namespace mixtape
