// mixtape info: what a model consists of.
#include <fmt/core.h>

#include "cli/commands.h"
#include "cli/model_options.h"
#include "cli/progress.h"
#include "mixtape/nn/tensor_list.h"

namespace mixtape::cli {
namespace {

void print_config(const ModelConfig& c) {
  fmt::print("architecture   {}\n", name(c.architecture));
  fmt::print("layers         {}\n", c.num_hidden_layers);
  fmt::print("hidden size    {}\n", c.hidden_size);
  fmt::print("heads          {} query, {} key/value, {} wide\n", c.num_attention_heads, c.num_key_value_heads,
             c.head_dim);
  fmt::print("mlp            {} wide\n", c.intermediate_size);
  if (c.num_experts > 0) {
    fmt::print("experts        {} of {}, {} wide\n", c.num_experts_per_tok, c.num_experts,
               c.moe_intermediate_size);
  }
  fmt::print("vocabulary     {}{}\n", c.vocab_size, c.tie_word_embeddings ? ", tied" : "");
  fmt::print("rope           {}, theta {}\n", name(c.rope.type), c.rope.theta);
}

void run_info(const std::string& path, bool list) {
  const auto source = open_model(path);
  const ModelConfig config = source->config();
  print_config(config);
  std::int64_t parameters = 0;
  for (const ModelTensor& t : tensor_list(config)) parameters += t.shape.numel();
  fmt::print("parameters     {:.2f} million\n", static_cast<double>(parameters) / 1e6);
  double bytes = 0.0;
  for (const std::string& tensor : source->names()) {
    const DType dtype = source->stored_dtype(tensor);
    bytes += static_cast<double>(source->shape(tensor).numel()) * static_cast<double>(size_of(dtype));
    if (list) fmt::print("{:<60} {}{}\n", tensor, name(dtype), str(source->shape(tensor)));
  }
  fmt::print("tensors        {}, {} when decoded\n", source->names().size(), format_bytes(bytes));
}

}  // namespace

void add_info(CLI::App& app, int&) {
  CLI::App* command = app.add_subcommand("info", "Shows a model's architecture and tensors.");
  auto path = std::make_shared<std::string>();
  auto list = std::make_shared<bool>(false);
  command->add_option("model", *path, "A Hugging Face or MLX directory, or a .gguf file")->required();
  command->add_flag("--tensors", *list, "List every tensor");
  command->callback([=] { run_info(*path, *list); });
}

}  // namespace mixtape::cli
