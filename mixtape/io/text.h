// Training and evaluation text: plain files, and .jsonl files of chats.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace mixtape {

// Either a text or a chat.
struct Document {
  std::string text;
  std::string messages;  // JSON: an array of {"role", "content", ...}; empty for a text
  std::string tools;     // JSON: what the chat's "tools" said; empty without
  std::string where;     // file and line, for messages

  bool is_chat() const { return !messages.empty(); }
};

// The whole file, UTF-8, without a byte order mark and with the line ends "\r\n" as "\n", as Python reads text. Throws
// io, and format naming the file: with the byte's offset if it isn't UTF-8 or has a NUL byte, by name if it begins as
// UTF-16 does.
std::string read_utf8_file(const std::filesystem::path& path);

// One JSON object a line, blank lines ignored: {"messages": [...]} or {"prompt", "completion"} (a user's
// message and the assistant's answer) or {"text"}. Throws format, naming file and line.
std::vector<Document> read_jsonl(const std::filesystem::path& path);

}  // namespace mixtape
