#include "mixtape/backend/cuda/cublaslt.h"

#include "mixtape/backend/cuda/shared_library.h"
#include "mixtape/runtime/libraries.h"

namespace mixtape::cuda {

struct Algorithm {
  std::uint64_t data[8];
};
struct Heuristic {
  Algorithm algorithm;
  std::size_t workspace;
  int status;
  float waves;
  int reserved[4];
};

namespace {

// Numbers of the cuBLASLt reference.
constexpr int kCompute32F = 68;
// A product whose depth is split adds its parts up before the one rounding.
constexpr std::uint32_t kReduceInF32 = 2;
constexpr int kTypeF32 = 0, kTypeF16 = 2, kTypeBf16 = 14;
constexpr int kOpN = 0, kOpT = 1;
constexpr int kDescTransA = 3, kDescTransB = 4;
constexpr int kLayoutBatch = 5, kLayoutStride = 6;
constexpr int kPreferWorkspace = 1, kPreferReduction = 3, kPreferAlignA = 5, kPreferAlignB = 6,
              kPreferAlignC = 7, kPreferAlignD = 8;

int type_of(DType dtype) {
  if (dtype == DType::bf16) return kTypeBf16;
  return dtype == DType::f16 ? kTypeF16 : kTypeF32;
}

}  // namespace

struct LtTable {
  std::size_t (*GetVersion)();
  int (*Create)(void**);
  int (*MatmulDescCreate)(void**, int, int);
  int (*MatmulDescDestroy)(void*);
  int (*MatmulDescSetAttribute)(void*, int, const void*, std::size_t);
  int (*MatrixLayoutCreate)(void**, int, std::uint64_t, std::uint64_t, std::int64_t);
  int (*MatrixLayoutDestroy)(void*);
  int (*MatrixLayoutSetAttribute)(void*, int, const void*, std::size_t);
  int (*MatmulPreferenceCreate)(void**);
  int (*MatmulPreferenceDestroy)(void*);
  int (*MatmulPreferenceSetAttribute)(void*, int, const void*, std::size_t);
  int (*MatmulAlgoGetHeuristic)(void*, void*, void*, void*, void*, void*, void*, int, Heuristic*, int*);
  int (*Matmul)(void*, void*, const void*, const void*, void*, const void*, void*, const void*, const void*,
                void*, void*, void*, const Algorithm*, void*, std::size_t, Stream);
};

namespace {

const LtTable& table() {
  static const LtTable loaded = [] {
    static const SharedLibrary library({"libcublasLt.so.13", "libcublasLt.so.12", "libcublasLt.so"});
    if (!library)
      fail(ErrorCode::not_supported, "cuda: matrix products need cuBLASLt (", library.error(), ")");
    LtTable t{};
    const auto load = [&](auto& function, const char* name) {
      function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(library.find(name));
      if (function == nullptr) fail(ErrorCode::not_supported, "cuda: cuBLASLt has no function ", name);
    };
    load(t.GetVersion, "cublasLtGetVersion");
    load(t.Create, "cublasLtCreate");
    load(t.MatmulDescCreate, "cublasLtMatmulDescCreate");
    load(t.MatmulDescDestroy, "cublasLtMatmulDescDestroy");
    load(t.MatmulDescSetAttribute, "cublasLtMatmulDescSetAttribute");
    load(t.MatrixLayoutCreate, "cublasLtMatrixLayoutCreate");
    load(t.MatrixLayoutDestroy, "cublasLtMatrixLayoutDestroy");
    load(t.MatrixLayoutSetAttribute, "cublasLtMatrixLayoutSetAttribute");
    load(t.MatmulPreferenceCreate, "cublasLtMatmulPreferenceCreate");
    load(t.MatmulPreferenceDestroy, "cublasLtMatmulPreferenceDestroy");
    load(t.MatmulPreferenceSetAttribute, "cublasLtMatmulPreferenceSetAttribute");
    load(t.MatmulAlgoGetHeuristic, "cublasLtMatmulAlgoGetHeuristic");
    load(t.Matmul, "cublasLtMatmul");
    return t;
  }();
  return loaded;
}

// 120804 is 12.8.4.
std::string lt_version() {
  const std::size_t version = table().GetVersion();
  return str(version / 10000, ".", version / 100 % 100, ".", version % 100);
}

[[maybe_unused]] const bool lt_registered = register_library({"cuBLASLt", lt_version});

void expect(int status, const char* what) {
  if (status != 0) fail(ErrorCode::device, "cuda: cuBLASLt: ", what, " gave status ", status);
}

// The largest power of two up to 256 that divides the address.
std::uint32_t alignment_of(DevicePointer p) {
  return static_cast<std::uint32_t>(std::min<std::uint64_t>(256, p & (~p + 1)));
}

}  // namespace

struct LtPlan {
  void* desc = nullptr;
  void* a = nullptr;
  void* b = nullptr;
  void* c = nullptr;
  Heuristic choice{};

  ~LtPlan() {
    if (desc) table().MatmulDescDestroy(desc);
    for (void* layout : {a, b, c}) {
      if (layout) table().MatrixLayoutDestroy(layout);
    }
  }
};

namespace {

void make_layout(void** layout, DType dtype, std::int64_t rows, std::int64_t cols, std::int64_t ld,
                 std::int64_t batch, std::int64_t stride) {
  const LtTable& lt = table();
  expect(lt.MatrixLayoutCreate(layout, type_of(dtype), static_cast<std::uint64_t>(rows),
                               static_cast<std::uint64_t>(cols), ld),
         "a layout");
  if (batch == 1) return;
  const auto count = static_cast<std::int32_t>(batch);
  expect(lt.MatrixLayoutSetAttribute(*layout, kLayoutBatch, &count, sizeof count), "a batch count");
  expect(lt.MatrixLayoutSetAttribute(*layout, kLayoutStride, &stride, sizeof stride), "a batch stride");
}

// cuBLASLt is column-major: c^T = op(b)^T op(a)^T, where a row-major matrix read column-major is its
// transpose.
void describe(LtPlan& plan, const gpu::Gemm& g) {
  const LtTable& lt = table();
  expect(lt.MatmulDescCreate(&plan.desc, kCompute32F, kTypeF32), "a product");
  const std::int32_t op_first = g.trans_b ? kOpT : kOpN, op_second = g.trans_a ? kOpT : kOpN;
  expect(lt.MatmulDescSetAttribute(plan.desc, kDescTransA, &op_first, sizeof op_first), "transposition");
  expect(lt.MatmulDescSetAttribute(plan.desc, kDescTransB, &op_second, sizeof op_second), "transposition");
  make_layout(&plan.b, g.in, g.trans_b ? g.k : g.n, g.trans_b ? g.n : g.k, g.row_b, g.batch, g.step_b);
  make_layout(&plan.a, g.in, g.trans_a ? g.m : g.k, g.trans_a ? g.k : g.m, g.row_a, g.batch, g.step_a);
  make_layout(&plan.c, g.out, g.n, g.m, g.row_c, g.batch, g.step_c);
}

}  // namespace

bool MatrixProducts::is_there() {
  static const bool is_loaded = [] {
    try {
      table();
      return true;
    } catch (const Error&) {
      return false;
    }
  }();
  return is_loaded;
}

MatrixProducts::MatrixProducts() = default;
MatrixProducts::~MatrixProducts() {
  // A device lives until the process ends, and cuBLASLt may have ended before: what is freed here it freed itself.
  for (auto& [key, plan] : plans_) plan.release();
}

LtPlan& MatrixProducts::plan(const gpu::Gemm& g, std::uint32_t align_a, std::uint32_t align_b,
                             std::uint32_t align_c) {
  const Key key{g.in,    g.out,   g.m,      g.n,      g.k,      g.trans_a, g.trans_b, g.batch, g.row_a,
                g.row_b, g.row_c, g.step_a, g.step_b, g.step_c, align_a,   align_b,   align_c};
  std::unique_ptr<LtPlan>& slot = plans_[key];
  if (slot) return *slot;
  auto made = std::make_unique<LtPlan>();
  describe(*made, g);
  void* preference = nullptr;
  expect(lt_->MatmulPreferenceCreate(&preference), "a preference");
  const std::unique_ptr<void, int (*)(void*)> release(preference, lt_->MatmulPreferenceDestroy);
  const std::uint64_t workspace = kWorkspaceBytes;
  const auto prefer = [&](int attribute, const auto& value) {
    expect(lt_->MatmulPreferenceSetAttribute(preference, attribute, &value, sizeof value), "a preference");
  };
  prefer(kPreferWorkspace, workspace);
  prefer(kPreferReduction, kReduceInF32);
  prefer(kPreferAlignA, align_b);
  prefer(kPreferAlignB, align_a);
  prefer(kPreferAlignC, align_c);
  prefer(kPreferAlignD, align_c);
  int found = 0;
  const int status = lt_->MatmulAlgoGetHeuristic(handle_, made->desc, made->b, made->a, made->c, made->c,
                                                 preference, 1, &made->choice, &found);
  if (status != 0 || found == 0) {
    fail(ErrorCode::not_supported, "cuda: cuBLASLt has no algorithm for ", g.in, " [", g.m, ",", g.k, "] x [",
         g.k, ",", g.n, "] to ", g.out, " (status ", status, ")");
  }
  slot = std::move(made);
  return *slot;
}

void MatrixProducts::run(const gpu::Gemm& gemm, DevicePointer a, DevicePointer b, DevicePointer c,
                         DevicePointer addend, DevicePointer workspace, Stream stream) {
  if (!handle_) {
    lt_ = &table();
    expect(lt_->Create(&handle_), "a handle");
  }
  const gpu::Gemm g = gpu::with_strides(gemm);
  const DevicePointer before = addend != 0 ? addend : c;
  LtPlan& p = plan(g, alignment_of(a), alignment_of(b), alignment_of(c | before));
  const float alpha = g.alpha, beta = g.accumulate || addend != 0 ? 1.0f : 0.0f;
  const auto pointer = [](DevicePointer at) { return reinterpret_cast<void*>(at); };
  expect(lt_->Matmul(handle_, p.desc, &alpha, pointer(b), p.b, pointer(a), p.a, &beta, pointer(before), p.c,
                     pointer(c), p.c, &p.choice.algorithm, pointer(workspace), kWorkspaceBytes, stream),
         "a product");
}

}  // namespace mixtape::cuda
