// Sections "tokenizer", "config" and "text": parsed, encoded, decoded.
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "fuzz/fuzz.h"
#include "mixtape/io/json_file.h"
#include "mixtape/io/tokenizer.h"

using namespace mixtape;

namespace {

void use(const Tokenizer& tokenizer, const std::string& text) {
  for (const bool special : {false, true}) {
    fuzz::allow_error([&] {
      const std::vector<std::uint32_t> ids = tokenizer.encode(text, special);
      for (const std::uint32_t id : ids) {
        if (id >= tokenizer.vocab_size()) std::abort();
      }
      tokenizer.decode(ids, special);
    });
  }
  for (std::uint32_t id = 0; id < 40; ++id) {
    fuzz::allow_error([&] { tokenizer.decode(std::vector<std::uint32_t>{id, id + 1}, id % 2 == 0); });
    fuzz::allow_error([&] { tokenizer.id_of(tokenizer.token(id)); });
    tokenizer.is_special(id);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  auto sections = fuzz::sections_of(fuzz::text_of(data, size));
  fuzz::allow_error([&] {
    const nlohmann::json config =
        sections.contains("config") ? parse_json(sections["config"], "config") : nlohmann::json();
    const Tokenizer tokenizer = Tokenizer::from_json(parse_json(sections["tokenizer"], "tokenizer"), config);
    use(tokenizer, sections["text"]);
  });
  return 0;
}
