// Token rows made from files: text, and chats as the model's template writes them.
#pragma once

#include <filesystem>
#include <optional>
#include <vector>

#include "mixtape/calib/split_sources.h"
#include "mixtape/io/chat_template.h"
#include "mixtape/io/tokenizer.h"

namespace mixtape {

struct TextRows {
  std::vector<TokenRow> rows;
  std::int64_t tokens = 0;     // that the files hold, whether used or not
  std::int64_t documents = 0;  // texts or chats
  std::int64_t cut = 0;        // chats longer than a row, whose end was left out
  std::int64_t dropped = 0;    // chats of fewer than two tokens, which have nothing to predict
};

// The texts end to end, at most `max_tokens` of them (0: all), in rows of length+1 tokens that begin with what the
// tokenizer puts before a text. Throws invalid_argument where that makes no row, with the tokens found and wanted,
// and for a .jsonl file, whose syntax is no text; errors in a file name it.
TextRows text_rows(const std::vector<std::filesystem::path>& files, const Tokenizer& tokenizer,
                   std::int64_t length, std::int64_t max_tokens = 0);

// One source for each file, named as the file is. Files of fewer than three rows are read end to end as one, named
// after the first, "a.txt and 2 more". Errors are those of text_rows.
std::vector<RowSource> text_sources(const std::vector<std::filesystem::path>& files,
                                    const Tokenizer& tokenizer, std::int64_t length);

// One row for each line of .jsonl files, cut at length+1 tokens: a chat through `chat_template`, with the line's
// tools, or a "text", which `ends_texts` closes with the end-of-sequence token. Errors name file and line, also
// those of the template.
TextRows chat_rows(const std::vector<std::filesystem::path>& files, const Tokenizer& tokenizer,
                   const std::optional<ChatTemplate>& chat_template, std::int64_t length,
                   const ChatOptions& options = {}, bool ends_texts = false);

}  // namespace mixtape
