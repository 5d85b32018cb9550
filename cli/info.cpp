// mixtape info: what a model consists of, how it is stored, and what it makes of text.
#include <fmt/core.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>

#include "cli/commands.h"
#include "cli/json_report.h"
#include "cli/model_options.h"
#include "cli/model_path.h"
#include "cli/outputs.h"
#include "cli/progress.h"
#include "cli/quote.h"
#include "cli/stored_forms.h"
#include "cli/text_table.h"
#include "mixtape/core/counted.h"
#include "mixtape/io/chat_template.h"
#include "mixtape/io/gguf.h"
#include "mixtape/io/tensor_list.h"
#include "mixtape/io/tokenizer_files.h"
#include "mixtape/quant/quantized_model.h"

namespace mixtape::cli {
namespace {

namespace fs = std::filesystem;
using Object = nlohmann::ordered_json;

// "chat_template" of "chat template".
std::string key_of(std::string name) {
  for (char& c : name) c = c == ' ' ? '_' : static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return name;
}

// The same facts as lines for people and as members of an object.
class Facts {
 public:
  void add(const std::string& name, const std::string& text, Object value) {
    add_as(key_of(name), name, text, std::move(value));
  }
  // Under another key.
  void add_as(const std::string& key, const std::string& name, const std::string& text, Object value) {
    lines_.push_back(fmt::format("{:<14} {}", name, text));
    json_[key] = std::move(value);
  }
  template <class Value>
  void add(const std::string& name, const Value& value) {
    add(name, fmt::format("{}", value), value);
  }
  // A member that is no line, and a line that is no member.
  void put(const std::string& key, Object value) { json_[key] = std::move(value); }
  void add_row(const std::string& name, const std::string& text) {
    lines_.push_back(fmt::format("{:<14} {}", name, text));
  }

  void print() const {
    for (const std::string& line : lines_) print_words(printable(line), 15);
  }
  const Object& json() const { return json_; }

 private:
  std::vector<std::string> lines_;
  Object json_;
};

void tell(Facts& facts, const AttentionSpec& a) {
  facts.add("heads", fmt::format("{} query, {} key/value, {} wide", a.heads, a.kv_heads, a.head_dim),
            {{"query", a.heads}, {"key_value", a.kv_heads}, {"width", a.head_dim}});
  if (a.window > 0) facts.add("window", counted(a.window, "position"), a.window);
}
void tell(Facts& facts, const DeltaNetSpec& d) {
  facts.add("delta net",
            fmt::format("{} key heads {} wide, {} value heads {} wide, {} taps", d.key_heads, d.key_dim,
                        d.value_heads, d.value_dim, d.taps),
            {{"key_heads", d.key_heads},
             {"key_width", d.key_dim},
             {"value_heads", d.value_heads},
             {"value_width", d.value_dim},
             {"taps", d.taps}});
}
void tell(Facts& facts, const DenseMlpSpec& m) { facts.add("mlp", fmt::format("{} wide", m.width), m.width); }
void tell(Facts& facts, const SparseMlpSpec& m) {
  facts.add("experts", fmt::format("{} of {}, {} wide", m.experts_per_token, m.experts, m.width),
            {{"per_token", m.experts_per_token}, {"count", m.experts}, {"width", m.width}});
  if (m.shared_width > 0) facts.add("shared expert", fmt::format("{} wide", m.shared_width), m.shared_width);
}

// Each kind of mixer and MLP once, where it comes first.
void tell_layers(Facts& facts, const std::vector<LayerSpec>& layers) {
  std::set<std::size_t> mixers, mlps;
  const auto show = [&](const auto& part) { tell(facts, part); };
  for (const LayerSpec& layer : layers) {
    if (mixers.insert(layer.mixer.index()).second) std::visit(show, layer.mixer);
    if (mlps.insert(layer.mlp.index()).second) std::visit(show, layer.mlp);
  }
}

void tell_config(Facts& facts, const ModelConfig& c) {
  facts.add_row("architecture", c.architecture->model_type);
  facts.add("layers", c.layers.size());
  facts.add("hidden size", c.hidden_size);
  tell_layers(facts, c.layers);
  facts.add("vocabulary", fmt::format("{}{}", c.vocab_size, c.tie_word_embeddings ? ", tied" : ""),
            c.vocab_size);
  facts.add("rope", fmt::format("{}, theta {}", name(c.ropes.front().type), c.ropes.front().theta),
            {{"type", name(c.ropes.front().type)}, {"theta", c.ropes.front().theta}});
  if (c.max_position_embeddings > 0)
    facts.add("context length", counted(c.max_position_embeddings, "position"), c.max_position_embeddings);
}

struct Token {
  std::uint32_t id;
  std::string text;
};

Token token(const Tokenizer& tokenizer, std::uint32_t id) {
  try {
    return {id, tokenizer.token(id)};
  } catch (const Error&) {  // named by the configuration alone
    return {id, "?"};
  }
}

void tell_tokens(Facts& facts, const std::string& name, const std::vector<Token>& tokens) {
  std::string text;
  Object list = Object::array();
  for (const Token& t : tokens) {
    text += fmt::format("{}{} ({})", text.empty() ? "" : ", ", t.text, t.id);
    list.push_back({{"id", t.id}, {"token", t.text}});
  }
  facts.add(name, text.empty() ? "none" : text, std::move(list));
}

// A model may be looked at without its tokenizer.
void tell_text(Facts& facts, const ModelSource& source) {
  try {
    const Tokenizer tokenizer = Tokenizer::from_json(source.tokenizer_json(), source.tokenizer_config_json());
    std::vector<Token> bos, eos;
    if (const auto id = tokenizer.bos_id()) bos.push_back(token(tokenizer, *id));
    for (const std::uint32_t id : stop_ids(source, tokenizer)) eos.push_back(token(tokenizer, id));
    tell_tokens(facts, "BOS", bos);
    tell_tokens(facts, "EOS", eos);
    const bool has_template = ChatTemplate::from_source(source).has_value();
    facts.add("chat template", has_template ? "yes" : "no", has_template);
  } catch (const Error& error) {
    facts.add("tokenizer", fmt::format("none ({})", error.what()), nullptr);
  }
}

void tell_forms(Facts& facts, const StoredForms& forms) {
  const StoredForm all = total(forms);
  Object list = Object::array();
  std::vector<std::string> rows;
  for (const auto& [name, f] : forms) {
    rows.push_back(fmt::format("{:<18} {:>5} tensors {:>10.2f} million weights {:>10} {:>7.3f} bits", name,
                               f.tensors, static_cast<double>(f.weights) / 1e6, format_bytes(f.bytes),
                               f.bits_per_weight()));
    list.push_back({{"form", name},
                    {"tensors", f.tensors},
                    {"weights", f.weights},
                    {"bytes", f.bytes},
                    {"bits_per_weight", f.bits_per_weight()}});
  }
  facts.add_as("weights", "parameters", fmt::format("{:.2f} million", static_cast<double>(all.weights) / 1e6),
               all.weights);
  facts.add("bits per weight", fmt::format("{:.3f}", all.bits_per_weight()), all.bits_per_weight());
  facts.put("bytes", static_cast<std::int64_t>(all.bytes));
  facts.add("stored as", rows.front(), std::move(list));
  for (std::size_t i = 1; i < rows.size(); ++i) facts.add_row("", rows[i]);
}

// The default of config.json says nothing where each module has a format of its own.
void tell_quantization(Facts& facts, const ModelSource& source, const StoredForms& forms) {
  const auto config = QuantizationConfig::find(source.config_json(), source.where());
  if (!config) return;
  const AffineParams p = config->defaults;
  if (!forms.contains(form_of(p)))
    return facts.add("quantized", "each module in a format of its own", nullptr);
  facts.add("quantized", form_of(p), {{"bits", p.bits}, {"group_size", p.group_size}});
}

// Of a file, or of what a directory holds.
void tell_size(Facts& facts, const fs::path& path) {
  std::uintmax_t bytes = 0, files = 0;
  const auto count_file = [&](const fs::path& file) { bytes += fs::file_size(file), ++files; };
  if (fs::is_directory(path)) {
    for (const auto& entry : fs::directory_iterator(path)) {
      if (entry.is_regular_file()) count_file(entry.path());
    }
  } else {
    count_file(path);
  }
  facts.add_as("bytes_on_disk", "size on disk",
               format_bytes(static_cast<double>(bytes)) + ", " + counted(files, "file"), bytes);
}

void print_tensor(const std::string& name, const std::string& stored) {
  print_words(fmt::format("{:<60} {}", printable(name), stored), 2);
}

// Layer by layer.
void print_tensors(const ModelSource& source) {
  std::vector<std::string> names = source.names();
  std::stable_sort(names.begin(), names.end(), [](const std::string& a, const std::string& b) {
    return layer_of(a).value_or(-1) < layer_of(b).value_or(-1);
  });
  for (const std::string& tensor : names)
    print_tensor(tensor, str(source.stored_dtype(tensor), source.shape(tensor)));
}

// Under the names that the file gives them.
void print_gguf_tensors(const fs::path& path) {
  const GgufFile file(path);
  for (const GgufTensor& t : file.tensors()) print_tensor(t.name, str(gguf_type_info(t.type).name, t.shape));
}

struct InfoOptions {
  std::string path, json_file;
  bool list = false;
};

void run_info(const InfoOptions& o) {
  const fs::path path = find_model(o.path);
  ReportFile report(o.json_file, {path.string()});
  const auto source = open_model(path);
  const ModelConfig config = source->config();
  Facts facts;
  tell_config(facts, config);
  tell_text(facts, *source);
  const StoredForms forms = stored_forms(*source, path);
  tell_quantization(facts, *source, forms);
  tell_forms(facts, forms);
  tell_size(facts, path);
  Object json(report_head("info"));
  json["model"] = model_json(o.path, config);
  json.update(facts.json());
  report_then_tell({[&] { report.write(json); }}, [&] {
    facts.print();
    if (o.list) fs::is_directory(path) ? print_tensors(*source) : print_gguf_tensors(path);
  });
}

}  // namespace

void add_info(CLI::App& app, int&) {
  CLI::App* command =
      app.add_subcommand("info", "Shows a model's architecture, tokens, and how it is stored.");
  auto o = std::make_shared<InfoOptions>();
  OptionGroup group(*command, "Model");
  group
      .path("-m,--model,model", o->path, "MODEL",
            "Hugging Face or MLX directory, GGUF file, or owner/name in the Hugging Face cache")
      ->required();
  group.flag("--tensors", o->list, "List every tensor");
  OptionGroup(*command, "Report").path("--json", o->json_file, "FILE", kJsonHelp);
  command->callback([=] { run_info(*o); });
}

}  // namespace mixtape::cli
