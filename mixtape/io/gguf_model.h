// A GGUF file as a model: architectures llama, qwen3 and qwen3moe.
#pragma once

#include <filesystem>
#include <memory>

#include "mixtape/io/gguf.h"
#include "mixtape/io/model_source.h"

namespace mixtape {

// Opens and checks the whole file: every tensor that the config calls for is there with its shape, and no
// other. Weights are decoded when loaded; q and k of llama are put back into Hugging Face's row order. Throws
// as GgufFile and gguf_config_json do; tokenizer_json throws for a tokenizer that it can't express.
std::unique_ptr<ModelSource> open_gguf_model(const std::filesystem::path& path);

// The file behind a model that open_gguf_model opened, null behind any other.
const GgufFile* gguf_file_of(const ModelSource& source);

// The file's row for row `row` of Hugging Face's, of a matrix of `rows`: per head, the file has pairs (i, half i) next
// to each other, Hugging Face the first halves before the second. 0 heads: the same row.
std::int64_t gguf_row(std::int64_t row, std::int64_t rows, std::int64_t interleaved_heads);

}  // namespace mixtape
