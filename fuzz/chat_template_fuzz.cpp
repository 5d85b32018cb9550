// Sections "template" and "messages": rendered with and without a generation prompt.
#include <nlohmann/json.hpp>

#include "fuzz/fuzz.h"
#include "mixtape/io/chat_template.h"

using namespace mixtape;

namespace {

std::string messages_of(const std::string& text) {
  if (nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false).is_array()) return text;
  return R"([{"role": "user", "content": "Hi there."}, {"role": "assistant", "content": "Hello!"}])";
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  auto sections = fuzz::sections_of(fuzz::text_of(data, size));
  fuzz::allow_error([&] {
    const ChatTemplate chat(sections["template"], {{"bos_token", "<s>"}, {"eos_token", "</s>"}});
    ChatOptions options;
    options.tools = R"([{"name": "look_up", "parameters": {"word": "string"}}])";
    options.variables = R"({"enable_thinking": false})";
    for (const bool prompt : {false, true}) {
      options.add_generation_prompt = prompt;
      fuzz::allow_error([&] { chat.render(messages_of(sections["messages"]), options); });
    }
  });
  return 0;
}
