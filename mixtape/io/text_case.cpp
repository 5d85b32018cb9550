// Letters as capitals and small ones. The library that knows Unicode maps one code point to one; the letters that become
// several are listed here, from Unicode's SpecialCasing.txt.
#include <utf8proc.h>

#include <algorithm>

#include "mixtape/io/text_utf8.h"

namespace mixtape {
namespace {

struct Expansion {
  char32_t letter;
  const char *upper, *title;
};

constexpr Expansion kExpansions[] = {
    // clang-format off
    {U'\u00DF', "SS", "Ss"},
    {U'\u0149', "\u02BCN", "\u02BCN"},
    {U'\u01F0', "J\u030C", "J\u030C"},
    {U'\u0390', "\u0399\u0308\u0301", "\u0399\u0308\u0301"},
    {U'\u03B0', "\u03A5\u0308\u0301", "\u03A5\u0308\u0301"},
    {U'\u0587', "\u0535\u0552", "\u0535\u0582"},
    {U'\u1E96', "H\u0331", "H\u0331"},
    {U'\u1E97', "T\u0308", "T\u0308"},
    {U'\u1E98', "W\u030A", "W\u030A"},
    {U'\u1E99', "Y\u030A", "Y\u030A"},
    {U'\u1E9A', "A\u02BE", "A\u02BE"},
    {U'\u1F50', "\u03A5\u0313", "\u03A5\u0313"},
    {U'\u1F52', "\u03A5\u0313\u0300", "\u03A5\u0313\u0300"},
    {U'\u1F54', "\u03A5\u0313\u0301", "\u03A5\u0313\u0301"},
    {U'\u1F56', "\u03A5\u0313\u0342", "\u03A5\u0313\u0342"},
    {U'\u1F80', "\u1F08\u0399", "\u1F88"},
    {U'\u1F81', "\u1F09\u0399", "\u1F89"},
    {U'\u1F82', "\u1F0A\u0399", "\u1F8A"},
    {U'\u1F83', "\u1F0B\u0399", "\u1F8B"},
    {U'\u1F84', "\u1F0C\u0399", "\u1F8C"},
    {U'\u1F85', "\u1F0D\u0399", "\u1F8D"},
    {U'\u1F86', "\u1F0E\u0399", "\u1F8E"},
    {U'\u1F87', "\u1F0F\u0399", "\u1F8F"},
    {U'\u1F88', "\u1F08\u0399", "\u1F88"},
    {U'\u1F89', "\u1F09\u0399", "\u1F89"},
    {U'\u1F8A', "\u1F0A\u0399", "\u1F8A"},
    {U'\u1F8B', "\u1F0B\u0399", "\u1F8B"},
    {U'\u1F8C', "\u1F0C\u0399", "\u1F8C"},
    {U'\u1F8D', "\u1F0D\u0399", "\u1F8D"},
    {U'\u1F8E', "\u1F0E\u0399", "\u1F8E"},
    {U'\u1F8F', "\u1F0F\u0399", "\u1F8F"},
    {U'\u1F90', "\u1F28\u0399", "\u1F98"},
    {U'\u1F91', "\u1F29\u0399", "\u1F99"},
    {U'\u1F92', "\u1F2A\u0399", "\u1F9A"},
    {U'\u1F93', "\u1F2B\u0399", "\u1F9B"},
    {U'\u1F94', "\u1F2C\u0399", "\u1F9C"},
    {U'\u1F95', "\u1F2D\u0399", "\u1F9D"},
    {U'\u1F96', "\u1F2E\u0399", "\u1F9E"},
    {U'\u1F97', "\u1F2F\u0399", "\u1F9F"},
    {U'\u1F98', "\u1F28\u0399", "\u1F98"},
    {U'\u1F99', "\u1F29\u0399", "\u1F99"},
    {U'\u1F9A', "\u1F2A\u0399", "\u1F9A"},
    {U'\u1F9B', "\u1F2B\u0399", "\u1F9B"},
    {U'\u1F9C', "\u1F2C\u0399", "\u1F9C"},
    {U'\u1F9D', "\u1F2D\u0399", "\u1F9D"},
    {U'\u1F9E', "\u1F2E\u0399", "\u1F9E"},
    {U'\u1F9F', "\u1F2F\u0399", "\u1F9F"},
    {U'\u1FA0', "\u1F68\u0399", "\u1FA8"},
    {U'\u1FA1', "\u1F69\u0399", "\u1FA9"},
    {U'\u1FA2', "\u1F6A\u0399", "\u1FAA"},
    {U'\u1FA3', "\u1F6B\u0399", "\u1FAB"},
    {U'\u1FA4', "\u1F6C\u0399", "\u1FAC"},
    {U'\u1FA5', "\u1F6D\u0399", "\u1FAD"},
    {U'\u1FA6', "\u1F6E\u0399", "\u1FAE"},
    {U'\u1FA7', "\u1F6F\u0399", "\u1FAF"},
    {U'\u1FA8', "\u1F68\u0399", "\u1FA8"},
    {U'\u1FA9', "\u1F69\u0399", "\u1FA9"},
    {U'\u1FAA', "\u1F6A\u0399", "\u1FAA"},
    {U'\u1FAB', "\u1F6B\u0399", "\u1FAB"},
    {U'\u1FAC', "\u1F6C\u0399", "\u1FAC"},
    {U'\u1FAD', "\u1F6D\u0399", "\u1FAD"},
    {U'\u1FAE', "\u1F6E\u0399", "\u1FAE"},
    {U'\u1FAF', "\u1F6F\u0399", "\u1FAF"},
    {U'\u1FB2', "\u1FBA\u0399", "\u1FBA\u0345"},
    {U'\u1FB3', "\u0391\u0399", "\u1FBC"},
    {U'\u1FB4', "\u0386\u0399", "\u0386\u0345"},
    {U'\u1FB6', "\u0391\u0342", "\u0391\u0342"},
    {U'\u1FB7', "\u0391\u0342\u0399", "\u0391\u0342\u0345"},
    {U'\u1FBC', "\u0391\u0399", "\u1FBC"},
    {U'\u1FC2', "\u1FCA\u0399", "\u1FCA\u0345"},
    {U'\u1FC3', "\u0397\u0399", "\u1FCC"},
    {U'\u1FC4', "\u0389\u0399", "\u0389\u0345"},
    {U'\u1FC6', "\u0397\u0342", "\u0397\u0342"},
    {U'\u1FC7', "\u0397\u0342\u0399", "\u0397\u0342\u0345"},
    {U'\u1FCC', "\u0397\u0399", "\u1FCC"},
    {U'\u1FD2', "\u0399\u0308\u0300", "\u0399\u0308\u0300"},
    {U'\u1FD3', "\u0399\u0308\u0301", "\u0399\u0308\u0301"},
    {U'\u1FD6', "\u0399\u0342", "\u0399\u0342"},
    {U'\u1FD7', "\u0399\u0308\u0342", "\u0399\u0308\u0342"},
    {U'\u1FE2', "\u03A5\u0308\u0300", "\u03A5\u0308\u0300"},
    {U'\u1FE3', "\u03A5\u0308\u0301", "\u03A5\u0308\u0301"},
    {U'\u1FE4', "\u03A1\u0313", "\u03A1\u0313"},
    {U'\u1FE6', "\u03A5\u0342", "\u03A5\u0342"},
    {U'\u1FE7', "\u03A5\u0308\u0342", "\u03A5\u0308\u0342"},
    {U'\u1FF2', "\u1FFA\u0399", "\u1FFA\u0345"},
    {U'\u1FF3', "\u03A9\u0399", "\u1FFC"},
    {U'\u1FF4', "\u038F\u0399", "\u038F\u0345"},
    {U'\u1FF6', "\u03A9\u0342", "\u03A9\u0342"},
    {U'\u1FF7', "\u03A9\u0342\u0399", "\u03A9\u0342\u0345"},
    {U'\u1FFC', "\u03A9\u0399", "\u1FFC"},
    {U'\uFB00', "FF", "Ff"},
    {U'\uFB01', "FI", "Fi"},
    {U'\uFB02', "FL", "Fl"},
    {U'\uFB03', "FFI", "Ffi"},
    {U'\uFB04', "FFL", "Ffl"},
    {U'\uFB05', "ST", "St"},
    {U'\uFB06', "ST", "St"},
    {U'\uFB13', "\u0544\u0546", "\u0544\u0576"},
    {U'\uFB14', "\u0544\u0535", "\u0544\u0565"},
    {U'\uFB15', "\u0544\u053B", "\u0544\u056B"},
    {U'\uFB16', "\u054E\u0546", "\u054E\u0576"},
    {U'\uFB17', "\u0544\u053D", "\u0544\u056D"},
    // clang-format on
};

const Expansion* expansion(char32_t letter) {
  const auto* found = std::lower_bound(std::begin(kExpansions), std::end(kExpansions), letter,
                                       [](const Expansion& e, char32_t value) { return e.letter < value; });
  return found != std::end(kExpansions) && found->letter == letter ? found : nullptr;
}

template <class Map>
std::string map_code_points(std::string_view text, Map map) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const CodePoint c = first_code_point(text);
    out += map(c.value);
    text.remove_prefix(c.size);
  }
  return out;
}

std::string mapped(char32_t letter, utf8proc_int32_t (*map)(utf8proc_int32_t)) {
  return to_utf8(static_cast<char32_t>(map(static_cast<utf8proc_int32_t>(letter))));
}

}  // namespace

std::string to_lower(std::string_view text) {
  return map_code_points(text, [](char32_t c) {
    // I with a dot: i and the dot as a combining mark
    return c == 0x130 ? "i\u0307" : mapped(c, utf8proc_tolower);
  });
}

std::string to_upper(std::string_view text) {
  return map_code_points(text, [](char32_t c) {
    const Expansion* e = expansion(c);
    return e ? e->upper : mapped(c, utf8proc_toupper);
  });
}

std::string to_title(std::string_view text) {
  return map_code_points(text, [](char32_t c) {
    const Expansion* e = expansion(c);
    return e ? e->title : mapped(c, utf8proc_totitle);
  });
}

}  // namespace mixtape
