#include "mixtape/calib/text_rows.h"

#include <algorithm>

#include "mixtape/core/counted.h"
#include "mixtape/core/error.h"
#include "mixtape/io/text.h"

namespace mixtape {
namespace {

TokenRow chat_row(const Document& document, const Tokenizer& tokenizer,
                  const std::optional<ChatTemplate>& chat_template, ChatOptions options, bool ends_texts) {
  if (!document.is_chat()) {
    TokenRow row = tokenizer.encode(document.text, true);
    const auto eos = tokenizer.eos_id();
    if (ends_texts && eos && (row.empty() || row.back() != *eos)) row.push_back(*eos);
    return row;
  }
  require(chat_template.has_value(), "a chat, but the model has no chat template");
  options.tools = document.tools;
  return tokenizer.encode(chat_template->render(document.messages, options), false);
}

// A row for the report, one for validation and one for training.
constexpr std::size_t kSourceRows = 3;

TokenRow file_tokens(const std::filesystem::path& file, const Tokenizer& tokenizer) {
  require(file.extension() != ".jsonl", file.string(),
          ": JSON lines, expected text; they can be read as chats");
  const std::string text = read_utf8_file(file);
  require(!text.empty(), file.string(), ": found an empty file, expected text");
  return tokenizer.encode(text, false);
}

std::string first_and_more(const std::vector<std::filesystem::path>& files) {
  if (files.empty()) return "text";
  return files[0].string() + (files.size() > 1 ? str(" and ", files.size() - 1, " more") : "");
}

// `where`: what the tokens are of.
std::vector<TokenRow> rows_of_stream(const std::string& where, const TokenRow& stream,
                                     const Tokenizer& tokenizer, std::int64_t length) {
  std::vector<TokenRow> rows = cut_rows(stream, tokenizer.prefix(), length);
  require(!rows.empty(), where, ": found ", counted(stream.size(), "token"), ", expected at least ",
          length + 1 - static_cast<std::int64_t>(tokenizer.prefix().size()), " for one row");
  return rows;
}

}  // namespace

TextRows text_rows(const std::vector<std::filesystem::path>& files, const Tokenizer& tokenizer,
                   std::int64_t length, std::int64_t max_tokens) {
  TextRows result;
  TokenRow stream;
  for (const std::filesystem::path& file : files) {
    const TokenRow ids = file_tokens(file, tokenizer);
    stream.insert(stream.end(), ids.begin(), ids.end());
    ++result.documents;
  }
  result.tokens = static_cast<std::int64_t>(stream.size());
  if (max_tokens > 0) stream.resize(std::min(stream.size(), static_cast<std::size_t>(max_tokens)));
  result.rows = rows_of_stream(first_and_more(files), stream, tokenizer, length);
  return result;
}

std::vector<RowSource> text_sources(const std::vector<std::filesystem::path>& files,
                                    const Tokenizer& tokenizer, std::int64_t length) {
  std::vector<RowSource> sources;
  TokenRow small;
  std::vector<std::filesystem::path> small_files;
  for (const std::filesystem::path& file : files) {
    const TokenRow ids = file_tokens(file, tokenizer);
    std::vector<TokenRow> rows = cut_rows(ids, tokenizer.prefix(), length);
    if (rows.size() >= kSourceRows) {
      sources.push_back({file.string(), std::move(rows)});
      continue;
    }
    small.insert(small.end(), ids.begin(), ids.end());
    small_files.push_back(file);
  }
  if (small_files.empty()) return sources;
  const std::string name = first_and_more(small_files);
  sources.push_back({name, rows_of_stream(name, small, tokenizer, length)});
  return sources;
}

TextRows chat_rows(const std::vector<std::filesystem::path>& files, const Tokenizer& tokenizer,
                   const std::optional<ChatTemplate>& chat_template, std::int64_t length,
                   const ChatOptions& options, bool ends_texts) {
  TextRows result;
  const auto longest = static_cast<std::size_t>(length) + 1;
  for (const std::filesystem::path& file : files) {
    const std::vector<Document> documents = read_jsonl(file);
    require(!documents.empty(), file.string(), ": found no line, expected chats or texts");
    for (const Document& document : documents) {
      TokenRow row;
      try {
        row = chat_row(document, tokenizer, chat_template, options, ends_texts);
      } catch (const Error& error) {
        fail(error.code(), document.where, ": ", error.what());
      }
      ++result.documents;
      result.tokens += static_cast<std::int64_t>(row.size());
      result.cut += row.size() > longest;
      result.dropped += row.size() < 2;
      row.resize(std::min(row.size(), longest));
      if (row.size() > 1) result.rows.push_back(std::move(row));
    }
  }
  return result;
}

}  // namespace mixtape
