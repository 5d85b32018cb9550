// mixtape generate: continues a prompt.
#include <fmt/core.h>
#include <unistd.h>

#include <nlohmann/json.hpp>

#include "cli/commands.h"
#include "cli/finite_weights.h"
#include "cli/json_report.h"
#include "cli/loaded_model.h"
#include "cli/open_device.h"
#include "cli/outputs.h"
#include "cli/sampling_flags.h"
#include "cli/terminal.h"
#include "cli/text_printer.h"
#include "mixtape/core/counted.h"
#include "mixtape/core/stopwatch.h"
#include "mixtape/io/chat_template.h"
#include "mixtape/io/json_file.h"
#include "mixtape/io/text_utf8.h"

namespace mixtape::cli {
namespace {

struct GenerateOptions {
  ModelOptions model;
  SamplingFlags sampling;
  std::string prompt, json_file;
  bool chat = false;
  std::string date;  // empty: today
  std::int64_t samples = 1;
};

TokenRow prompt_tokens(const GenerateOptions& o, const OpenedModel& opened) {
  require_utf8(o.prompt, "--prompt");
  TokenRow ids;
  if (o.chat) {
    const auto chat_template = ChatTemplate::from_source(*opened.source);
    require(chat_template.has_value(), "--chat: the model has no chat template");
    const nlohmann::ordered_json message = {{"role", "user"}, {"content", o.prompt}};
    ChatOptions options;
    options.add_generation_prompt = true;
    options.now = today(o.date);
    const std::string text = chat_template->render(nlohmann::ordered_json::array({message}).dump(), options);
    ids = opened.tokenizer.encode(text, false);
  } else {
    ids = opened.tokenizer.encode(o.prompt, true);
  }
  if (ids.empty()) ids = {first_token(opened)};
  return ids;
}

// Without the line break that ends it.
std::string read_standard_input() {
  std::string text = read_text("/dev/stdin");
  if (text.ends_with('\n')) text.pop_back();
  if (text.ends_with('\r')) text.pop_back();
  return text;
}

// How a model continues one prompt.
struct Drawing {
  LoadedModel& loaded;
  TokenRow prompt;
  std::int64_t count;  // tokens
  SampleOptions options;

  std::vector<TokenRow> drawn = {};  // so far, the prompt with its continuation

  // The new ones.
  std::span<const TokenRow> draw(std::size_t texts,
                                 const std::function<void(std::size_t, std::uint32_t)>& on_token = {}) {
    std::vector<TokenRow> rows =
        sample(loaded.model(), loaded.tape(), std::vector<TokenRow>(texts, prompt), count, options, on_token);
    for (TokenRow& row : rows) {
      warn_if_too_long(row);
      drawn.push_back(std::move(row));
    }
    return std::span(drawn).last(texts);
  }
  void warn_if_too_long(const TokenRow& row) const {
    const std::int64_t most = loaded.opened().config.max_position_embeddings;
    if (most <= 0 || std::ssize(row) <= most) return;
    warn(fmt::format("{}, the model was made for {} (max_position_embeddings)", counted(row.size(), "token"),
                     counted(most, "position")));
  }
};

// The prompt, unless it is a chat, and the text after it, as it comes.
void print_text(Drawing& d, bool is_chat) {
  TextPrinter printer(d.loaded.tokenizer());
  if (!is_chat) {
    for (const std::uint32_t id : d.prompt) printer.add(id);
  }
  try {
    d.draw(1, [&](std::size_t, std::uint32_t id) { printer.add(id); });
  } catch (const Error&) {
    fmt::print("\n");  // what there is of the text ends its line
    throw;
  }
  fmt::print("\n");
}

// Several texts, a line each.
void print_texts(Drawing& d, std::int64_t samples) {
  constexpr std::int64_t kBatch = 64;
  for (std::int64_t done = 0; done < samples; done += kBatch) {
    for (const TokenRow& row : d.draw(static_cast<std::size_t>(std::min(kBatch, samples - done))))
      fmt::print("{}\n", d.loaded.tokenizer().decode(row, true));
    ++d.options.seed;
  }
}

nlohmann::json report(const GenerateOptions& o, const Drawing& d, double seconds) {
  nlohmann::json texts = nlohmann::json::array();
  std::size_t tokens = 0;
  for (const TokenRow& row : d.drawn) {
    const auto said = std::span(row).subspan(d.prompt.size());
    texts.push_back({{"text", d.loaded.tokenizer().decode(said, true)}, {"tokens", said.size()}});
    tokens += said.size();
  }
  nlohmann::json json = report_head("generate");
  json.update({{"model", model_json(o.model.path, d.loaded.opened().config)},
               {"device", d.loaded.tape().device().name()},
               {"dtype", name(o.model.compute_dtype(d.loaded.opened().config))},
               {"seed", o.sampling.sample.seed},
               {"settings", o.sampling.record()},
               {"prompt", {{"text", o.prompt}, {"tokens", d.prompt.size()}}},
               {"texts", texts},
               {"seconds", seconds},
               {"tokens_per_second", static_cast<double>(tokens) / seconds}});
  return json;
}

void run_generate(const GenerateOptions& o) {
  ReportFile file(o.json_file, {o.model.path});
  const Device device = open_device(o.model.device, stderr);
  LoadedModel loaded(o.model, device);
  Drawing drawing{loaded, prompt_tokens(o, loaded.opened()), o.sampling.count, o.sampling.sample};
  drawing.options.stop = loaded.stop();
  check_ids(std::vector<TokenRow>{drawing.prompt}, loaded.opened().config.vocab_size);
  const Stopwatch watch;
  try {
    if (o.samples == 1) {
      print_text(drawing, o.chat);
    } else {
      print_texts(drawing, o.samples);
    }
  } catch (const Error& error) {
    blame_logits(*loaded.opened().source, error);
  }
  if (file.wanted()) file.write(report(o, drawing, watch.seconds()));
}

}  // namespace

void add_generate(CLI::App& app, int&) {
  CLI::App* command = app.add_subcommand("generate", "Continues a prompt.");
  auto o = std::make_shared<GenerateOptions>();
  o->model.add(*command);
  o->model.add_dtype(*command);
  OptionGroup group(*command, "Text");
  group.text("-p,--prompt", o->prompt, "TEXT", "Text to continue; -, or none in a pipe: standard input");
  group.flag("--chat", o->chat, "Put the prompt into the model's chat template; print the answer alone");
  group.path("--date", o->date, "DATE",
             "What the chat template takes for today, YYYY-MM-DD; today if not given");
  group.whole("--samples", o->samples, {.least = 1}, "How many texts");
  o->sampling.add(*command, "Sampling");
  OptionGroup(*command, "Report").path("--json", o->json_file, "FILE", kJsonHelp);
  command->footer(
      "Examples:\n"
      "  mixtape generate -m Qwen3-0.6B-3bit -p 'Once upon a time' -n 64\n"
      "  echo 'Why is the sky blue?' | mixtape generate -m Qwen3-0.6B-3bit --chat");
  command->callback([o, command] {
    if (o->prompt == "-" || (command->count("--prompt") == 0 && ::isatty(STDIN_FILENO) == 0)) {
      o->prompt = read_standard_input();
    }
    o->sampling.check(*command);
    require(o->chat || command->count("--date") == 0, "--date has no effect: expected --chat beside it");
    if (!o->date.empty()) today(o->date);
    run_generate(*o);
  });
}

}  // namespace mixtape::cli
