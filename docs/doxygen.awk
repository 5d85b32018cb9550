# Doxygen's view of a header: the block at its top is the file's text, kept as it stands (formulas, columns); comments
# above and behind declarations become `///` and `///<`.
function escaped(text) {
  gsub(/[\\@<>#%*&"]/, "\\\\&", text)
  return text
}
NR == 1 && /^\/\// { print "/** @file\n@verbatim"; is_top = 1 }
is_top && /^\/\// { sub(/^\/\/ ?/, ""); print; next }
is_top { print "@endverbatim */"; is_top = 0 }
/^ *\/\// {
  match($0, /\/\/ ?/)
  print substr($0, 1, RSTART - 1) "/// " escaped(substr($0, RSTART + RLENGTH))
  next
}
match($0, / +\/\/ /) && !/"/ {
  print substr($0, 1, RSTART - 1) "  ///< " escaped(substr($0, RSTART + RLENGTH))
  next
}
{ print }
