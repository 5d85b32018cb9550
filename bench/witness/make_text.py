"""English text out of Debian's documentation packages, for the witness model of bench/results/quality.csv.
usage: make_text.py DIR OUT: DIR/<package>/ holds each package of PACKAGES unpacked (apt-get download, dpkg -x).
Writes 80 MB: paragraphs of prose, none twice, in shuffled pieces of 32 KB."""
import gzip
import hashlib
import os
import random
import re
import sys
from html.parser import HTMLParser

PACKAGES = """anarchism apache2-doc cfi-en crawl-common debian-handbook debian-reference-en developers-reference
dict-devil dict-foldoc dict-gcide dict-jargon erlang-doc fortunes git-doc gnucash-docs libreoffice-help-en-us
linux-doc-6.1 manpages manpages-dev maxima-doc nethack-common octave-doc perl-doc postgresql-doc-15
python-django-doc python3.11-doc""".split()
BYTES, PIECE = 80_000_000, 32_768
SKIPPED = {"script", "style", "nav", "header", "footer", "pre", "table", "head"}
BLOCKS = {"p", "div", "li", "h1", "h2", "h3", "h4", "dd", "dt", "br", "section", "blockquote"}
OTHER_LANGUAGES = re.compile(
    r"\b(de|fr|es|it|ja|pt|ru|zh|ko|nb|pl|el|ar|da|fa|hr|id|nl|ro|sv|tr|vi|uk|cs|[a-z]{2}-[A-Z]{2}|zh_CN)\b")


class Prose(HTMLParser):
    def __init__(self):
        super().__init__(convert_charrefs=True)
        self.parts, self.depth = [], 0

    def handle_starttag(self, tag, attrs):
        self.depth += tag in SKIPPED
        if tag in BLOCKS:
            self.parts.append("\n\n")

    def handle_endtag(self, tag):
        self.depth = max(0, self.depth - (tag in SKIPPED))
        if tag in BLOCKS:
            self.parts.append("\n\n")

    def handle_data(self, data):
        if not self.depth:
            self.parts.append(data)


def without_roff(text):
    text = re.sub(r"^\.(TH|so|de|if|ie|el|ds|nr|\\\").*$", "", text, flags=re.M)
    text = re.sub(r"^\.(SH|SS|PP|P|LP|TP|IP|RS|RE|sp|br).*$", "\n", text, flags=re.M)
    text = re.sub(r"^\.\w+ ?", "", text, flags=re.M)
    return re.sub(r"\\f[BIRP]|\\&|\\\||\\%", "", text).replace("\\-", "-").replace("\\(aq", "'")


def text_of(path):
    raw = open(path, "rb").read()
    if path.endswith((".gz", ".dz")):
        raw, path = gzip.decompress(raw), path[:-3]
    text = raw.decode("utf-8", "ignore")
    if path.endswith((".html", ".htm", ".xhtml")):
        prose = Prose()
        prose.feed(text)
        return "".join(prose.parts)
    if re.search(r"\.[1-9]$", path):
        return without_roff(text)
    if path.endswith((".pod", ".txt", ".rst", ".utf8", ".dict")) or "/fortunes/" in path or path.endswith("devil"):
        return text
    return ""


def is_prose(paragraph):
    letters = sum(c.isalpha() and c.isascii() or c == " " for c in paragraph)
    return len(paragraph) >= 60 and letters > 0.86 * len(paragraph) and paragraph.count(" ") > 8


def paragraphs(root):
    seen = set()
    for package in PACKAGES:
        top = os.path.join(root, package)
        for folder, _, names in sorted(os.walk(top)):
            if OTHER_LANGUAGES.search(folder[len(top):].replace("en-US", "")):
                continue
            for path in (os.path.join(folder, name) for name in sorted(names)):
                for paragraph in re.split(r"\n\s*\n", "" if os.path.islink(path) else text_of(path)):
                    paragraph = " ".join(paragraph.split())
                    digest = hashlib.blake2b(paragraph.encode(), digest_size=8).digest()
                    if is_prose(paragraph) and digest not in seen:
                        seen.add(digest)
                        yield paragraph


def main(root, out):
    pieces, piece, size = [], [], 0
    for paragraph in paragraphs(root):
        piece.append(paragraph)
        size += len(paragraph) + 2
        if size > PIECE:
            pieces.append("\n\n".join(piece))
            piece, size = [], 0
    random.Random(1).shuffle(pieces)
    open(out, "wb").write("\n\n".join(pieces).encode()[:BYTES].decode("utf-8", "ignore").encode())


main(*sys.argv[1:])
