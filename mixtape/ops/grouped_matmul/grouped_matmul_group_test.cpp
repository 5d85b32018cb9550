// The same tests with the kernels of warp groups, which take what they can.
#include "mixtape/ops/grouped_matmul/grouped_matmul.h"
#include "mixtape/ops/grouped_matmul/grouped_matmul_group_cuda.cu"
#include "mixtape/ops/grouped_matmul/grouped_matmul_tensor_test.cpp"
