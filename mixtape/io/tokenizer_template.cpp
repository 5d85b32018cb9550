#include <nlohmann/json.hpp>

#include "mixtape/core/error.h"
#include "mixtape/io/tokenizer_parts.h"

namespace mixtape {
namespace {

using nlohmann::json;

std::vector<std::uint32_t> ids_of(const json& spec, const json& piece) {
  const std::string name = part::text(piece, "id");
  const json& known = part::member(spec, "special_tokens");
  if (!known.is_object() || !known.contains(name) || !known[name].contains("ids")) {
    fail(ErrorCode::format, "tokenizer TemplateProcessing: \"special_tokens\" has no ids of ", name);
  }
  std::vector<std::uint32_t> ids;
  for (const json& id : known[name]["ids"]) {
    if (!part::is_id(id))
      fail(ErrorCode::format, "tokenizer TemplateProcessing: an id of ", name, " is ", id.dump());
    ids.push_back(id.get<std::uint32_t>());
  }
  return ids;
}

Template from_pieces(const json& spec) {
  Template result;
  int texts = 0;
  for (const json& piece : part::member(spec, "single")) {
    if (piece.contains("SpecialToken")) {
      auto& side = texts == 0 ? result.before : result.after;
      const std::vector<std::uint32_t> ids = ids_of(spec, piece["SpecialToken"]);
      side.insert(side.end(), ids.begin(), ids.end());
    } else {
      texts += piece.contains("Sequence") && part::text(piece["Sequence"], "id") == "A";
    }
  }
  if (texts != 1)
    fail(ErrorCode::format, "tokenizer TemplateProcessing: \"single\" holds sequence A ", texts,
         " times, expected once");
  return result;
}

// Later steps go around what earlier ones made.
Template sequence_template(const json& spec) {
  Template result;
  for (const json& step : part::member(spec, "processors")) {
    const Template outer = make_template(step);
    result.before.insert(result.before.begin(), outer.before.begin(), outer.before.end());
    result.after.insert(result.after.end(), outer.after.begin(), outer.after.end());
  }
  return result;
}

}  // namespace

Template make_template(const json& spec) {
  if (spec.is_null()) return {};
  const std::string type = part::type(spec, "post_processor");
  if (type == "TemplateProcessing") return from_pieces(spec);
  if (type == "ByteLevel") return {};  // trims offsets only
  if (type == "Sequence") return sequence_template(spec);
  part::unknown(type, "post_processor");
}

}  // namespace mixtape
