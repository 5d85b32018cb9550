#include "mixtape/io/text.h"

#include <nlohmann/json.hpp>

#include "mixtape/core/error.h"
#include "mixtape/io/json_file.h"
#include "mixtape/io/text_utf8.h"

namespace mixtape {
namespace {

using nlohmann::ordered_json;

constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";

std::string_view strip_line_breaks(std::string_view text) {
  const std::size_t begin = text.find_first_not_of("\r\n");
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of("\r\n") + 1 - begin);
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
  std::string text = read_text(path);
  require_utf8(text, path.string());
  if (text.starts_with(kByteOrderMark)) text.erase(0, kByteOrderMark.size());
  return text;
}

std::vector<std::string> split_documents(std::string_view text, std::string_view separator) {
  std::vector<std::string> documents;
  while (!text.empty()) {
    const std::size_t end = separator.empty() ? text.npos : text.find(separator);
    const std::string_view document = strip_line_breaks(text.substr(0, end));
    if (!document.empty()) documents.emplace_back(document);
    text.remove_prefix(end == text.npos ? text.size() : end + separator.size());
  }
  return documents;
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

std::vector<Document> read_documents(const std::filesystem::path& path, std::string_view separator) {
  std::vector<Document> documents;
  if (path.extension() == ".jsonl") {
    documents = read_jsonl(path);
  } else {
    for (std::string& text : split_documents(read_utf8_file(path), separator)) {
      documents.push_back({std::move(text), {}, {}, path.string()});
    }
  }
  if (documents.empty()) fail(ErrorCode::format, path.string(), ": found no document");
  return documents;
}

}  // namespace mixtape
