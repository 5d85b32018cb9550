// A planned model as one GGUF file that llama.cpp loads.
#pragma once

#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "mixtape/io/atomic_file.h"
#include "mixtape/io/gguf_rope.h"
#include "mixtape/io/gguf_writer.h"
#include "mixtape/quant/gguf_encode.h"
#include "mixtape/quant/gguf_mix.h"
#include "mixtape/quant/quantized_model.h"

namespace mixtape {

struct GgufPlannedTensor {
  ModelTensor tensor;
  const PlannedModule* module;  // of the plan; null for biases
  GgufType type;
  std::span<const std::byte> carried = {};  // the tensor's bytes as they lie in the source; empty: computed
};

// What the file will hold, known before anything is computed. The plan must outlive it.
struct GgufPlan {
  GgufMetadata metadata;
  std::vector<GgufPlannedTensor> tensors;
  std::vector<GgufRopeTensor> rope_tensors;

  GgufLayout layout() const;
  std::int64_t tensor_bytes() const;               // without the space between them
  std::map<GgufType, std::int64_t> types() const;  // how many tensors each has
};

// Codes and blocks become the type of gguf_type_of; float matrices are stored in `floats`, without it each in its own
// dtype, vectors and routers in F32, as llama.cpp wants them. Throws not_supported or format, naming it, for an architecture, a setting, or a tokenizer component that
// llama.cpp does not know. `mix`: what the plan was made by, if anything; the file is called after it.
GgufPlan plan_gguf(const ModelSource& source, const QuantizationPlan& plan, std::optional<DType> floats,
                   const GgufMix* mix = nullptr);

// Tensors of a GGUF file whose type is the planned one are written byte by byte as they are. For a plan of plan_of_stored;
// the source must outlive it.
void carry_tensors(const ModelSource& source, GgufPlan& plan);

// tensor_bytes of that file; no matter whether llama.cpp knows the architecture and tokenizer.
std::int64_t gguf_tensor_bytes(const ModelSource& source, const QuantizationPlan& plan, DType dtype);

// Writes and commits `file`. Tensors that `tensors` does not give come from the source. Throws as write_quantized_model
// does.
GgufLoss write_gguf_model(AtomicFile& file, const ModelSource& source, const GgufPlan& plan,
                          const TensorProvider& tensors, const RunHooks& hooks = {});

}  // namespace mixtape
