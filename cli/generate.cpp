// mixtape generate: continues a prompt.
#include <fmt/core.h>
#include <unistd.h>

#include <cerrno>
#include <ctime>
#include <nlohmann/json.hpp>
#include <system_error>

#include "cli/commands.h"
#include "cli/open_device.h"
#include "cli/text_options.h"
#include "mixtape/calib/sample.h"
#include "mixtape/io/chat_template.h"
#include "mixtape/io/json_file.h"
#include "mixtape/io/text_utf8.h"
#include "mixtape/io/tokenizer_files.h"

namespace mixtape::cli {
namespace {

struct GenerateOptions {
  ModelOptions model;
  std::string prompt;
  bool chat = false;
  std::string date;  // empty: today
  std::int64_t count = 128;
  std::int64_t samples = 1;
  SampleOptions sample = {.temperature = 0.8, .top_p = 0.95, .seed = 0, .stop = {}};
};

// What the clock on the wall says, as if it were UTC.
std::chrono::sys_seconds local_time() {
  const std::time_t now = std::time(nullptr);
  std::tm local{};
  localtime_r(&now, &local);
  return std::chrono::sys_seconds(std::chrono::seconds(now + local.tm_gmtoff));
}

TokenRow prompt_tokens(const GenerateOptions& o, const OpenedModel& opened) {
  require_utf8(o.prompt, "--prompt");
  TokenRow ids;
  if (o.chat) {
    const auto chat_template = ChatTemplate::from_source(*opened.source);
    require(chat_template.has_value(), "--chat: the model has no chat template");
    const nlohmann::ordered_json message = {{"role", "user"}, {"content", o.prompt}};
    ChatOptions options;
    options.add_generation_prompt = true;
    options.now = o.date.empty() ? local_time() : parse_date(o.date);
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

// Prints what is new since the last call: a token may end inside a character.
class Printer {
 public:
  explicit Printer(const Tokenizer& tokenizer) : tokenizer_(tokenizer) {}
  void add(std::uint32_t id) {
    ids_.push_back(id);
    const std::string text = tokenizer_.decode(ids_, true);
    if (text.size() <= shown_ || text.ends_with("\xef\xbf\xbd")) return;
    fmt::print("{}", text.substr(shown_));
    if (std::fflush(stdout) != 0) throw std::system_error(errno, std::generic_category(), "cannot write");
    shown_ = text.size();
  }

 private:
  const Tokenizer& tokenizer_;
  TokenRow ids_;
  std::size_t shown_ = 0;
};

void refuse_idle(const CLI::App& command, const GenerateOptions& o) {
  require(o.chat || command.count("--date") == 0, "--date has no effect: expected --chat beside it");
  for (const char* name : {"--top-p", "--seed"})
    require(o.sample.temperature > 0.0 || command.count(name) == 0, name, " has no effect: --temperature 0");
}

// How a model continues one prompt.
struct Drawing {
  const CausalLm& model;
  Tape& tape;
  const Tokenizer& tokenizer;
  TokenRow prompt;
  std::int64_t count;  // tokens
  SampleOptions options;
};

// The prompt, unless it is a chat, and the text after it, as it comes.
void print_text(const Drawing& d, bool is_chat) {
  Printer printer(d.tokenizer);
  if (!is_chat) {
    for (const std::uint32_t id : d.prompt) printer.add(id);
  }
  try {
    sample(d.model, d.tape, {d.prompt}, d.count, d.options,
           [&](std::size_t, std::uint32_t id) { printer.add(id); });
  } catch (const Error&) {
    fmt::print("\n");  // what there is of the text ends its line
    throw;
  }
  fmt::print("\n");
}

// Several texts, a line each.
void print_texts(Drawing d, std::int64_t samples) {
  constexpr std::int64_t kBatch = 64;
  for (std::int64_t done = 0; done < samples; done += kBatch) {
    const std::vector<TokenRow> prompts(static_cast<std::size_t>(std::min(kBatch, samples - done)), d.prompt);
    for (const TokenRow& row : sample(d.model, d.tape, prompts, d.count, d.options)) {
      fmt::print("{}\n", d.tokenizer.decode(row, true));
    }
    ++d.options.seed;
  }
}

void run_generate(const GenerateOptions& o) {
  const Device device = open_device(o.model.device, stderr);
  const OpenedModel opened = o.model.open();
  Tape tape(device);
  const DType dtype = o.model.compute_dtype(opened.config);
  const Parameters parameters = load_parameters(*opened.source, opened.config, dtype, device);
  TapeWeights weights(tape, parameters, Trainable::nothing);
  const CausalLm model(opened.config, weights, dtype);
  Drawing drawing{model, tape, opened.tokenizer, prompt_tokens(o, opened), o.count, o.sample};
  drawing.options.stop = stop_ids(*opened.source, opened.tokenizer);
  check_ids(std::vector<TokenRow>{drawing.prompt}, opened.config.vocab_size);
  try {
    if (o.samples == 1) {
      print_text(drawing, o.chat);
    } else {
      print_texts(std::move(drawing), o.samples);
    }
  } catch (const Error& error) {
    if (error.code() != ErrorCode::format) throw;
    fail(error.code(), opened.source->where(), ": ", error.what());
  }
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
  group.whole("-n,--count,--max-tokens", o->count, {.least = 1}, "Tokens at most");
  group.whole("--samples", o->samples, {.least = 1}, "How many texts");
  group.number("--temperature,--temp", o->sample.temperature, {.least = 0.001, .most = 100, .or_zero = true},
               "0 takes the most probable token");
  group.number("--top-p", o->sample.top_p, {.least = 0, .most = 1},
               "Keep the most probable tokens up to this probability");
  group.seed("--seed", o->sample.seed, "Seed of the draws");
  command->footer(
      "Examples:\n"
      "  mixtape generate -m Qwen3-0.6B-3bit -p 'Once upon a time' -n 64\n"
      "  echo 'Why is the sky blue?' | mixtape generate -m Qwen3-0.6B-3bit --chat");
  command->callback([o, command] {
    if (o->prompt == "-" || (command->count("--prompt") == 0 && ::isatty(STDIN_FILENO) == 0)) {
      o->prompt = read_standard_input();
    }
    refuse_idle(*command, *o);
    run_generate(*o);
  });
}

}  // namespace mixtape::cli
