// What op_check.h measures, as GoogleTest expectations.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "mixtape/testing/op_check.h"
#include "mixtape/testing/test_devices.h"

namespace mixtape::testing {

// Expects that measure_op finds no fault. The oracle is proved once, on the CPU.
inline OpReport check_op(const Device& device, OpCheck check, int runs = 20) {
  check.prove_oracle = check.prove_oracle && device == Device::cpu();
  OpReport report = measure_op(device, check, std::min(runs, most_runs(device)));
  for (const std::string& fault : report.faults) ADD_FAILURE() << fault;
  return report;
}

// Each of them; one must be of an empty batch.
inline void check_ops(const Device& device, const std::vector<OpCheck>& checks) {
  bool has_empty_batch = false;
  for (const OpCheck& check : checks) has_empty_batch |= check_op(device, check).is_of_empty_batch;
  EXPECT_TRUE(has_empty_batch) << "no check like " << checks.front().name << " is of an empty batch";
}

// Reports the worst element in units of its bound.
inline void expect_close(const std::string& what, const HostTensor& found, const Doubles& wanted,
                         Bound bound) {
  const Closeness result = closeness(what, found, wanted, bound);
  EXPECT_TRUE(result.fault.empty()) << result.fault;
}
inline void expect_close(const std::string& what, const Buffer& found, const Doubles& wanted, Bound bound) {
  expect_close(what, download(found), wanted, bound);
}

// Runs `work` `runs` times with the default thread count and once with 1, 2 and 7 threads: equal bytes each
// time.
inline void expect_same_bits(const std::string& what, const std::function<std::vector<Buffer>()>& work,
                             int runs = 20) {
  const std::string fault = bits_fault(what, work, std::min(runs, most_runs(Device::cpu())));
  EXPECT_TRUE(fault.empty()) << fault;
}

// EXPECT that `statement` throws Error with this code and a message that contains the text.
#define MIXTAPE_EXPECT_ERROR(statement, wanted_code, text)                                 \
  do {                                                                                     \
    try {                                                                                  \
      statement;                                                                           \
      ADD_FAILURE() << "no error, expected one containing: " << (text);                    \
    } catch (const ::mixtape::Error& error) {                                              \
      EXPECT_EQ(::mixtape::name(error.code()), std::string(::mixtape::name(wanted_code))); \
      EXPECT_NE(std::string(error.what()).find(text), std::string::npos) << error.what();  \
    }                                                                                      \
  } while (false)

}  // namespace mixtape::testing
