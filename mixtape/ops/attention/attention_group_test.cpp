// The same tests with the kernels of warp groups, which take what they can.
#include "mixtape/ops/attention/attention.h"
#include "mixtape/ops/attention/attention_group_backward_cuda.cu"
#include "mixtape/ops/attention/attention_group_cuda.cu"
#include "mixtape/ops/attention/attention_tensor_test.cpp"
