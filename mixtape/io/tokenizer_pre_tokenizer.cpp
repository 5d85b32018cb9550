#include <algorithm>
#include <nlohmann/json.hpp>

#include "mixtape/core/error.h"
#include "mixtape/io/text_utf8.h"
#include "mixtape/io/tokenizer_parts.h"
#include "mixtape/io/tokenizer_regex.h"

namespace mixtape {
namespace {

using nlohmann::json;

struct Span {
  std::size_t begin, end;
  bool is_match;
};

// The matches and what lies between them, in order, covering the whole piece.
std::vector<Span> cover(std::string_view piece, const std::vector<RegexMatch>& matches) {
  std::vector<Span> spans;
  std::size_t done = 0;
  for (const RegexMatch& match : matches) {
    if (match.begin > done) spans.push_back({done, match.begin, false});
    spans.push_back({match.begin, match.end, true});
    done = match.end;
  }
  if (done < piece.size()) spans.push_back({done, piece.size(), false});
  return spans;
}

// What becomes of a match, in the words of the format.
enum class Behavior { removed, isolated, merged_with_previous, merged_with_next, contiguous };

Behavior behavior_of(const json& spec) {
  const std::string name = part::text(spec, "behavior");
  if (name == "Removed") return Behavior::removed;
  if (name == "Isolated") return Behavior::isolated;
  if (name == "MergedWithPrevious") return Behavior::merged_with_previous;
  if (name == "MergedWithNext") return Behavior::merged_with_next;
  if (name == "Contiguous") return Behavior::contiguous;
  part::unknown(name, "Split behavior");
}

bool joins(Behavior behavior, const Span& previous, const Span& span) {
  switch (behavior) {
    case Behavior::merged_with_previous:
      return span.is_match && !previous.is_match;
    case Behavior::contiguous:
      return span.is_match == previous.is_match;
    default:
      return false;
  }
}

// Joins spans from left to right; each is compared with the kind of the span before it, joined or not.
std::vector<Span> join(Behavior behavior, const std::vector<Span>& spans) {
  std::vector<Span> out;
  for (std::size_t i = 0; i < spans.size(); ++i) {
    if (i > 0 && joins(behavior, spans[i - 1], spans[i])) {
      out.back().end = spans[i].end;
    } else {
      out.push_back(spans[i]);
    }
  }
  return out;
}

// The mirror image: a match joins what follows it unless that is a match.
std::vector<Span> join_with_next(const std::vector<Span>& spans) {
  std::vector<Span> out;
  for (std::size_t i = spans.size(); i-- > 0;) {
    if (i + 1 < spans.size() && spans[i].is_match && !spans[i + 1].is_match) {
      out.back().begin = spans[i].begin;
    } else {
      out.push_back(spans[i]);
    }
  }
  std::reverse(out.begin(), out.end());
  return out;
}

// Text that comes before the first piece is left out.
void drop(Pieces& out) { out.at_start = out.at_start && !out.ends.empty(); }

void add_split(std::string_view piece, std::vector<Span> spans, Behavior behavior, Pieces& out) {
  spans = behavior == Behavior::merged_with_next ? join_with_next(spans) : join(behavior, spans);
  for (const Span& span : spans) {
    const std::string_view text = piece.substr(span.begin, span.end - span.begin);
    if (behavior == Behavior::removed && span.is_match && !text.empty()) {
      drop(out);
    } else {
      out.add(text);
    }
  }
}

// Runs `cut(piece, is_first, out)` over all pieces.
template <class Cut>
PreTokenizer each_piece(Cut cut) {
  return [cut](const Pieces& in) {
    Pieces out;
    out.at_start = in.at_start;
    out.text.reserve(in.text.size() + 1);
    bool first = in.at_start;
    in.for_each([&](std::string_view piece) {
      cut(piece, first, out);
      first = false;
    });
    return out;
  };
}

PreTokenizer sequence_pre_tokenizer(const json& spec) {
  std::vector<PreTokenizer> steps;
  for (const json& step : part::member(spec, "pretokenizers")) steps.push_back(make_pre_tokenizer(step));
  return [steps](const Pieces& in) {
    Pieces pieces = in;
    for (const PreTokenizer& step : steps) pieces = step(pieces);
    return pieces;
  };
}

PreTokenizer split(const json& spec) {
  const Regex pattern = make_pattern(part::member(spec, "pattern"));
  const Behavior behavior = behavior_of(spec);
  const bool invert = part::flag(spec, "invert", false);
  return each_piece([pattern, behavior, invert](std::string_view piece, bool, Pieces& out) {
    std::vector<Span> spans = cover(piece, pattern.find_all(piece));
    for (Span& span : spans) span.is_match ^= invert;
    add_split(piece, std::move(spans), behavior, out);
  });
}

// The words of GPT-2: contractions, and letters, digits or other signs with at most one space before them.
const char* const kGpt2Words =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

void add_bytes(std::string_view piece, std::string& symbols, Pieces& out) {
  symbols.clear();
  for (const char c : piece) symbols += byte_symbol(static_cast<unsigned char>(c));
  out.add(symbols);
}

PreTokenizer byte_level(const json& spec) {
  const bool prefix = part::flag(spec, "add_prefix_space", true);
  const bool words = part::flag(spec, "use_regex", true);
  return each_piece([prefix, words, regex = Regex(kGpt2Words)](std::string_view piece, bool, Pieces& out) {
    std::string spaced, symbols;
    if (prefix && piece.front() != ' ') piece = spaced = str(' ', piece);
    if (!words) return add_bytes(piece, symbols, out);
    for (const Span& span : cover(piece, regex.find_all(piece))) {
      add_bytes(piece.substr(span.begin, span.end - span.begin), symbols, out);
    }
  });
}

PreTokenizer digits(const json& spec) {
  const Behavior behavior =
      part::flag(spec, "individual_digits", false) ? Behavior::isolated : Behavior::contiguous;
  return each_piece([behavior, digit = Regex("\\p{N}")](std::string_view piece, bool, Pieces& out) {
    add_split(piece, cover(piece, digit.find_all(piece)), behavior, out);
  });
}

enum class PrependScheme { always, first, never };

// Older files say add_prefix_space instead.
PrependScheme scheme_of(const json& spec) {
  if (!spec.contains("prepend_scheme")) {
    return part::flag(spec, "add_prefix_space", true) ? PrependScheme::always : PrependScheme::never;
  }
  const std::string name = part::text(spec, "prepend_scheme");
  if (name == "always") return PrependScheme::always;
  if (name == "first") return PrependScheme::first;
  if (name == "never") return PrependScheme::never;
  part::unknown(name, "Metaspace prepend_scheme");
}

PreTokenizer metaspace_pre_tokenizer(const json& spec) {
  const std::string mark = part::text(spec, "replacement");
  const PrependScheme scheme = scheme_of(spec);
  const bool cut = part::flag(spec, "split", true);
  return each_piece([=, space = Regex::literal(" "), marks = Regex::literal(mark)](std::string_view piece,
                                                                                   bool first, Pieces& out) {
    std::string text = replace_all(space, piece, mark);
    const bool wanted = scheme == PrependScheme::always || (scheme == PrependScheme::first && first);
    if (wanted && !text.starts_with(mark)) text = mark + text;
    if (!cut) return out.add(text);
    add_split(text, cover(text, marks.find_all(text)), Behavior::merged_with_next, out);
  });
}

enum class Kind { space, word, other };

Kind kind_of(char32_t c) { return is_white_space(c) ? Kind::space : is_word(c) ? Kind::word : Kind::other; }

// Runs of word characters and runs of other signs; white space is dropped.
PreTokenizer whitespace() {
  return each_piece([](std::string_view piece, bool, Pieces& out) {
    while (!piece.empty()) {
      const Kind kind = kind_of(first_code_point(piece).value);
      std::size_t end = 0;
      while (end < piece.size()) {
        const CodePoint c = first_code_point(piece.substr(end));
        if (kind_of(c.value) != kind) break;
        end += c.size;
      }
      if (kind == Kind::space) {
        drop(out);
      } else {
        out.add(piece.substr(0, end));
      }
      piece.remove_prefix(end);
    }
  });
}

}  // namespace

PreTokenizer make_pre_tokenizer(const json& spec) {
  if (spec.is_null()) return [](const Pieces& pieces) { return pieces; };
  const std::string type = part::type(spec, "pre_tokenizer");
  if (type == "Sequence") return sequence_pre_tokenizer(spec);
  if (type == "ByteLevel") return byte_level(spec);
  if (type == "Split") return split(spec);
  if (type == "Digits") return digits(spec);
  if (type == "Metaspace") return metaspace_pre_tokenizer(spec);
  if (type == "Whitespace") return whitespace();
  part::unknown(type, "pre_tokenizer");
}

}  // namespace mixtape
