// mixtape chat: a conversation with a model, or with two side by side.
#include <fmt/core.h>

#include <algorithm>
#include <cctype>
#include <nlohmann/json.hpp>

#include "cli/chat_input.h"
#include "cli/commands.h"
#include "cli/finite_weights.h"
#include "cli/loaded_model.h"
#include "cli/open_device.h"
#include "cli/progress.h"
#include "cli/quote.h"
#include "cli/sampling_flags.h"
#include "cli/signals.h"
#include "cli/terminal.h"
#include "cli/text_printer.h"
#include "mixtape/core/counted.h"
#include "mixtape/core/stopwatch.h"
#include "mixtape/io/chat_template.h"
#include "mixtape/io/text_utf8.h"

namespace mixtape::cli {
namespace {

constexpr const char* kCommands = "/again  another answer    /clear  begin anew    /help    /exit, or Ctrl-D";

struct ChatCommand {
  ModelOptions model;
  SamplingFlags sampling = {.count = 1024};
  std::string against, system, date;
};

enum class Answer {
  whole,
  stopped,
  unsaid,  // stopped before its first token
  none     // there was no room for one
};

// One model and what was said to it and by it.
class Party {
 public:
  Party(const ChatCommand& o, const std::string& path, const Device& device)
      : o_(o), loaded_(options_of(o, path), device), sample_(o.sampling.sample) {
    const auto found = ChatTemplate::from_source(*loaded_.opened().source);
    require(found.has_value(), loaded_.opened().source->where(),
            ": found no chat template, expected one; mixtape generate continues any text");
    template_ = *found;
    sample_.stop = loaded_.stop();
    clear();
    messages_.push_back({{"role", "user"}, {"content", "?"}});
    tokens();  // a template that refuses a system message says so now
    clear();
  }

  void clear() {
    messages_ = nlohmann::ordered_json::array();
    if (!o_.system.empty()) messages_.push_back({{"role", "system"}, {"content", o_.system}});
  }

  // Without the last answer; false where there is none.
  bool take_back() {
    if (messages_.empty() || messages_.back()["role"] != "assistant") return false;
    messages_.erase(messages_.size() - 1);
    ++sample_.seed;
    return true;
  }

  void hear(const std::string& text) { messages_.push_back({{"role", "user"}, {"content", text}}); }
  void forget_last() { messages_.erase(messages_.size() - 1); }

  // Prints its answer to what it heard last.
  Answer answer() {
    const TokenRow ids = tokens();
    const std::int64_t room = room_after(ids);
    if (room <= 0) {
      forget_last();
      note(fmt::format("{} so far, the model's context has {}: no answer; /clear begins anew",
                       counted(ids.size(), "token"), loaded_.opened().config.max_position_embeddings));
      return Answer::none;
    }
    if (!goes_on(ids)) state_ = {};
    const auto fed = static_cast<double>(std::ssize(ids) - state_.length);
    seen_ = ids;
    const bool is_stopped = draw(ids, std::min(room, o_.sampling.count), fed);
    const TokenRow said(seen_.begin() + std::ssize(ids), seen_.end());
    messages_.push_back({{"role", "assistant"}, {"content", loaded_.tokenizer().decode(said, true)}});
    if (is_stopped) return said.empty() ? Answer::unsaid : Answer::stopped;
    if (!said.empty() && ends_text(said.back())) return Answer::whole;
    note(room < o_.sampling.count ? "[cut: the model's context is full]"
                                  : fmt::format("[cut: -n {}]", said.size()));
    return Answer::whole;
  }

 private:
  static ModelOptions options_of(const ChatCommand& o, const std::string& path) {
    ModelOptions options = o.model;
    options.path = path;
    return options;
  }

  // The conversation, up to where the model speaks.
  TokenRow tokens() const {
    ChatOptions options;
    options.add_generation_prompt = true;
    options.now = today(o_.date);
    TokenRow ids = loaded_.tokenizer().encode(template_->render(messages_.dump(), options), false);
    if (ids.empty()) ids = {first_token(loaded_.opened())};
    check_ids(std::vector<TokenRow>{ids}, loaded_.opened().config.vocab_size);
    return ids;
  }

  std::int64_t room_after(const TokenRow& ids) const {
    const std::int64_t most = loaded_.opened().config.max_position_embeddings;
    return most > 0 ? most - std::ssize(ids) : o_.sampling.count;
  }

  // Whether `ids` begin with all that the state holds. A template may write an answer in another way than it was said.
  bool goes_on(const TokenRow& ids) const {
    return state_.length < std::ssize(ids) &&
           std::equal(seen_.begin(), seen_.begin() + state_.length, ids.begin());
  }

  bool ends_text(std::uint32_t id) const {
    return std::find(sample_.stop.begin(), sample_.stop.end(), id) != sample_.stop.end();
  }

  // Whether the user stopped it.
  bool draw(const TokenRow& ids, std::int64_t count, double fed) {
    const InterruptScope interrupts;
    TextPrinter printer(loaded_.tokenizer());
    const Stopwatch watch;
    double first = 0.0;
    const auto add = [&](std::size_t, std::uint32_t id) {
      if (std::ssize(seen_) == std::ssize(ids)) first = watch.seconds();
      seen_.push_back(id);
      if (!ends_text(id)) printer.add(id);
    };
    const RunHooks hooks{.progress = {}, .should_stop = [&] { return interrupts.asked(); }};
    try {
      sample(loaded_.model(), loaded_.tape(), {ids}, count, sample_, add, hooks, &state_);
    } catch (const Error& error) {
      if (error.code() != ErrorCode::interrupted) blame_logits(*loaded_.opened().source, error);
    }
    fmt::print("\n");
    std::fflush(stdout);
    show_speed(fed, first, static_cast<double>(seen_.size() - ids.size()), watch.seconds());
    return interrupts.asked();
  }

  static void show_speed(double fed, double first, double drawn, double seconds) {
    if (drawn < 2 || !can_rewrite_line()) return;
    note(fmt::format("[{:.0f} tokens, {}; {:.0f} before them, {}]", drawn,
                     format_rate((drawn - 1) / (seconds - first), "tokens"), fed,
                     format_rate(fed / first, "tokens")));
  }

  const ChatCommand& o_;
  LoadedModel loaded_;
  SampleOptions sample_;
  std::optional<ChatTemplate> template_;
  nlohmann::ordered_json messages_;
  TokenRow seen_;  // the state holds the first of them
  GenerationState state_;
};

// A word that begins with a slash.
bool is_command(const std::string& text) {
  return text.starts_with('/') &&
         std::all_of(text.begin() + 1, text.end(), [](unsigned char c) { return std::isalpha(c) != 0; });
}

bool is_valid(const std::string& text) {
  try {
    require_utf8(text, "the message");
    return true;
  } catch (const Error& error) {
    note(str("mixtape: ", error.what()));
    return false;
  }
}

class Conversation {
 public:
  explicit Conversation(const ChatCommand& o) {
    const Device device = open_device(o.model.device, stderr);
    names_ = {o.model.path};
    if (!o.against.empty()) names_.push_back(o.against);
    for (const std::string& name : names_) parties_.push_back(std::make_unique<Party>(o, name, device));
  }

  // Whether every message had its answer.
  bool run() {
    if (input_.is_terminal()) note(kCommands);
    bool all_answered = true;
    std::string text;
    while (input_.read(text)) {
      if (text.find_first_not_of(" \t\n") == text.npos) continue;
      if (text == "/exit" || text == "/quit") return all_answered;
      if (is_command(text)) {
        all_answered = obey(text) && all_answered;
      } else {
        all_answered = is_valid(text) && say(text) && all_answered;
      }
    }
    return all_answered || input_.is_terminal();
  }

 private:
  bool say(const std::string& text) {
    for (const auto& party : parties_) party->hear(text);
    return answer();
  }

  bool obey(const std::string& command) {
    if (command == "/clear") {
      for (const auto& party : parties_) party->clear();
      return true;
    }
    if (command == "/again") {
      bool is_there = true;
      for (const auto& party : parties_) is_there = party->take_back() && is_there;
      if (is_there) return answer();
      note("there is no answer yet");
      return false;
    }
    if (command != "/help") note("unknown command " + printable(command));
    note(kCommands);
    return command == "/help";
  }

  // Ctrl-C stops the answer of the one who speaks, the others are asked all the same: what one heard all have heard.
  bool answer() {
    bool all_answered = true;
    for (std::size_t i = 0; i < parties_.size(); ++i) {
      if (parties_.size() > 1) fmt::print("[{}]\n", printable(names_[i]));
      const Answer found = parties_[i]->answer();
      if (i == 0 && found == Answer::unsaid) {
        drop_message();
        return true;
      }
      all_answered = all_answered && found != Answer::none;
    }
    return all_answered;
  }

  void drop_message() {
    parties_[0]->take_back();
    for (const auto& party : parties_) party->forget_last();
    note("[stopped before the first word: the message is dropped]");
  }

  ChatInput input_;
  std::vector<std::string> names_;
  std::vector<std::unique_ptr<Party>> parties_;
};

}  // namespace

void add_chat(CLI::App& app, int& status) {
  CLI::App* command = app.add_subcommand("chat", "A conversation, in the model's chat template.");
  auto o = std::make_shared<ChatCommand>();
  o->model.add(*command);
  o->model.add_dtype(*command);
  OptionGroup(*command, "Model")
      .path("--against", o->against, "MODEL",
            "A second model, that answers the same beside it: the teacher, say");
  OptionGroup group(*command, "Text");
  group.text("--system,--system-prompt", o->system, "TEXT", "What the model is told before the conversation");
  group.path("--date", o->date, "DATE",
             "What the chat template takes for today, YYYY-MM-DD; today if not given");
  o->sampling.add(*command, "Sampling");
  command->footer(
      "Each line is a message; one that ends in \\ goes on in the next. On a terminal a\n"
      "line is edited as in a shell, the arrows bring back those before it, and what is\n"
      "pasted is one message. What is typed during an answer waits for the next one.\n"
      "Ctrl-C stops an answer, or drops what is typed. /again: another answer; /clear:\n"
      "begin anew; /help; /exit, or Ctrl-D.\n"
      "With --against each model has a history of its own. Exit status 2 where a\n"
      "message out of a pipe was not answered.\n"
      "Examples:\n"
      "  mixtape chat -m Qwen3-0.6B-3bit\n"
      "  mixtape chat -m Qwen3-3bit --against Qwen3-0.6B --system 'Be brief.'\n"
      "  echo 'Why is the sky blue?' | mixtape chat -m Qwen3-0.6B-3bit --temp 0");
  command->callback([o, command, &status] {
    require_utf8(o->system, "--system");
    o->sampling.check(*command);
    if (!o->date.empty()) today(o->date);
    status = Conversation(*o).run() ? Status::ok : Status::usage;
  });
}

}  // namespace mixtape::cli
