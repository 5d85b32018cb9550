"""check_page.py FILE TEXT...: the page is whole HTML that fetches nothing, its charts lie in their frames, and the texts
are on it."""
import sys
from html.parser import HTMLParser


class Page(HTMLParser):
    EMPTY = {"meta"}

    def __init__(self):
        super().__init__()
        self.open, self.text, self.charts, self.size = [], "", 0, (0.0, 0.0)

    def handle_starttag(self, tag, attributes):
        found = dict(attributes)
        assert not {"src", "href", "onclick"} & set(found) and tag not in ("script", "link", "img"), tag
        if tag == "svg":
            self.charts += 1
            self.size = tuple(map(float, found["viewbox"].split()[2:]))
        for name, at in found.items():
            if name in ("x", "x1", "x2", "cx"):
                assert -1 <= float(at) <= self.size[0] + 1, (tag, found, self.size)
            if name in ("y", "y1", "y2", "cy"):
                assert -1 <= float(at) <= self.size[1] + 1, (tag, found, self.size)
        if tag not in self.EMPTY:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.handle_starttag(tag, attributes)
        self.open.pop()

    def handle_endtag(self, tag):
        assert self.open and self.open.pop() == tag, tag

    def handle_data(self, data):
        self.text += data


page = Page()
page.feed(open(sys.argv[1], encoding="utf-8").read())
page.close()
assert page.open == [] and page.charts > 0, (page.open, page.charts)
for text in sys.argv[2:]:
    assert text in page.text, text
