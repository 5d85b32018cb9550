// mixtape info: what a model consists of.
#include <fmt/core.h>

#include <set>

#include "cli/commands.h"
#include "cli/model_options.h"
#include "cli/model_path.h"
#include "cli/progress.h"
#include "mixtape/io/tensor_list.h"

namespace mixtape::cli {
namespace {

void print(const AttentionSpec& a) {
  fmt::print("heads          {} query, {} key/value, {} wide\n", a.heads, a.kv_heads, a.head_dim);
  if (a.window > 0) fmt::print("window         {} positions\n", a.window);
}
void print(const DenseMlpSpec& m) { fmt::print("mlp            {} wide\n", m.width); }
void print(const SparseMlpSpec& m) {
  fmt::print("experts        {} of {}, {} wide\n", m.experts_per_token, m.experts, m.width);
}

// Each kind of mixer and MLP once, where it comes first.
void print_layers(const std::vector<LayerSpec>& layers) {
  std::set<std::size_t> mixers, mlps;
  const auto show = [](const auto& part) { print(part); };
  for (const LayerSpec& layer : layers) {
    if (mixers.insert(layer.mixer.index()).second) std::visit(show, layer.mixer);
    if (mlps.insert(layer.mlp.index()).second) std::visit(show, layer.mlp);
  }
}

void print_config(const ModelConfig& c) {
  fmt::print("architecture   {}\n", c.architecture->model_type);
  fmt::print("layers         {}\n", c.layers.size());
  fmt::print("hidden size    {}\n", c.hidden_size);
  print_layers(c.layers);
  fmt::print("vocabulary     {}{}\n", c.vocab_size, c.tie_word_embeddings ? ", tied" : "");
  fmt::print("rope           {}, theta {}\n", name(c.ropes.front().type), c.ropes.front().theta);
}

void run_info(const std::string& path, bool list) {
  const auto source = open_model(find_model(path));
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
  OptionGroup group(*command, "Model");
  group
      .path("-m,--model,model", *path, "MODEL",
            "Hugging Face or MLX directory, GGUF file, or owner/name in the Hugging Face cache")
      ->required();
  group.flag("--tensors", *list, "List every tensor");
  command->callback([=] { run_info(*path, *list); });
}

}  // namespace mixtape::cli
