#include "mixtape/core/counted.h"

#include <gtest/gtest.h>

namespace mixtape {
namespace {

TEST(Counted, OneIsSingular) {
  EXPECT_EQ(counted(1, "row"), "1 row");
  EXPECT_EQ(counted(0, "row"), "0 rows");
  EXPECT_EQ(counted(std::size_t{3}, "row"), "3 rows");
  EXPECT_EQ(counted(1, "batch", "batches"), "1 batch");
  EXPECT_EQ(counted(2, "batch", "batches"), "2 batches");
}

}  // namespace
}  // namespace mixtape
