#include "mixtape/io/text.h"

#include <nlohmann/json.hpp>

#include "mixtape/core/error.h"
#include "mixtape/io/json_file.h"
#include "mixtape/io/text_utf8.h"

namespace mixtape {
namespace {

using nlohmann::ordered_json;

constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";

void refuse_utf16(std::string_view text, const std::string& where) {
  for (const std::string_view mark : {"\xFF\xFE", "\xFE\xFF"}) {
    if (text.starts_with(mark))
      fail(ErrorCode::format, where,
           ": found UTF-16 text, expected UTF-8; `iconv -f UTF-16 -t UTF-8` converts it");
  }
  const std::size_t nul = text.find('\0');
  if (nul != text.npos)
    fail(ErrorCode::format, where, ": byte ", nul, " is NUL, expected UTF-8 text; is it UTF-16 or binary?");
}

std::string with_plain_line_ends(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text.substr(i, 2) != "\r\n") out += text[i];
  }
  return out;
}

void check_message(const ordered_json& message, std::size_t index, const std::string& where) {
  const auto wrong = [&](const char* what) {
    fail(ErrorCode::format, where, ": message ", index, ' ', what);
  };
  if (!message.is_object()) wrong("is not an object");
  if (!message.contains("role") || !message["role"].is_string()) wrong("has no \"role\" that is a string");
  const bool empty = !message.contains("content") || message["content"].is_null();
  if (empty && !message.contains("tool_calls")) wrong("has no \"content\"");
  if (!empty && !message["content"].is_string() && !message["content"].is_array()) {
    wrong("has a \"content\" that is neither a string nor a list");
  }
}

Document chat(const ordered_json& line, const std::string& where) {
  const ordered_json& messages = line["messages"];
  if (!messages.is_array() || messages.empty()) {
    fail(ErrorCode::format, where, ": \"messages\" must be a list that is not empty");
  }
  for (std::size_t i = 0; i < messages.size(); ++i) check_message(messages[i], i, where);
  const bool has_tools = line.contains("tools") && !line["tools"].is_null();
  return {.text = {},
          .messages = messages.dump(),
          .tools = has_tools ? line["tools"].dump() : "",
          .where = where};
}

std::string text_member(const ordered_json& line, const char* key, const std::string& where) {
  if (!line.contains(key) || !line[key].is_string()) {
    fail(ErrorCode::format, where, ": \"", key, "\" must be a string");
  }
  return line[key].get<std::string>();
}

Document document_of(const ordered_json& line, const std::string& where) {
  if (!line.is_object()) fail(ErrorCode::format, where, ": expected a JSON object, found ", line.type_name());
  if (line.contains("messages")) return chat(line, where);
  Document document;
  if (line.contains("prompt")) {
    const std::string prompt = text_member(line, "prompt", where);
    const std::string completion = text_member(line, "completion", where);
    const ordered_json messages = {{{"role", "user"}, {"content", prompt}},
                                   {{"role", "assistant"}, {"content", completion}}};
    document.messages = messages.dump();
  } else if (line.contains("text")) {
    document.text = text_member(line, "text", where);
  } else {
    fail(ErrorCode::format, where, ": expected \"messages\", \"prompt\" and \"completion\", or \"text\"");
  }
  return document;
}

}  // namespace

std::string read_utf8_file(const std::filesystem::path& path) {
  const std::string bytes = read_text(path);
  std::string_view text = bytes;
  refuse_utf16(text, path.string());
  require_utf8(text, path.string());
  if (text.starts_with(kByteOrderMark)) text.remove_prefix(kByteOrderMark.size());
  return with_plain_line_ends(text);
}

std::vector<Document> read_jsonl(const std::filesystem::path& path) {
  const std::string text = read_utf8_file(path);
  std::vector<Document> documents;
  std::size_t number = 0;
  for (std::string_view rest = text; !rest.empty();) {
    const std::string_view line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(line.size() + 1, rest.size()));
    const std::string where = str(path.string(), ", line ", ++number);
    if (line.find_first_not_of(" \t\r") != line.npos) {
      documents.push_back(document_of(parse_ordered_json(line, where), where));
      documents.back().where = where;
    }
  }
  return documents;
}

}  // namespace mixtape
