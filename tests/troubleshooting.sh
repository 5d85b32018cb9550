#!/usr/bin/env bash
# What docs/troubleshooting.md quotes is what the program says: of each message in a table's first column the longest piece
# without names and numbers stands in a source file.
# usage: tests/troubleshooting.sh SOURCE_DIR
set -uo pipefail
cd "$1"
python3 - <<'END'
import pathlib, re, sys

sources = "\n".join(p.read_text(errors="replace") for folder in ("cli", "mixtape")
                    for p in pathlib.Path(folder).rglob("*.cpp") if not p.name.endswith("_test.cpp"))
sources += pathlib.Path("run").read_text()
sources = re.sub(r'"\s*\n\s*"', "", sources).replace('\\"', '"')
failed = found = 0
for line in pathlib.Path("docs/troubleshooting.md").read_text().splitlines():
    if not line.startswith("| `") and not line.startswith("| status 3"):
        continue
    for quoted in re.findall(r"`([^`]+)`", line.split(" | ")[0]):
        pieces = re.split(r"\.\.\.|[:;,()'?]|\d|No space left on device|unknown option|--bits is ", quoted)
        longest = max(pieces, key=len).strip(' -')
        found += 1
        if longest not in sources:
            print(f"docs/troubleshooting.md: no source says '{longest}' of '{quoted}'")
            failed = 1
if found < 40:
    print(f"found {found} messages, expected 40 or more")
    failed = 1
sys.exit(failed)
END
