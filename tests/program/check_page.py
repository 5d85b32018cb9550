"""check_page.py FILE TEXT...: the page is whole HTML that fetches nothing, its charts lie in their frames, numbers too
where a phone's style makes letters large, and the texts are on it."""
import sys
from html.parser import HTMLParser


class Page(HTMLParser):
    EMPTY = {"meta"}
    DIGIT = 12.0  # units wide, at most

    def __init__(self):
        super().__init__()
        self.open, self.text, self.charts, self.size, self.label = [], "", 0, (0.0, 0.0), None

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
        if tag == "text":
            self.label = float(found["x"]), found["text-anchor"]
        if tag not in self.EMPTY:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.handle_starttag(tag, attributes)
        self.open.pop()

    def handle_endtag(self, tag):
        assert self.open and self.open.pop() == tag, tag

    def handle_data(self, data):
        self.text += data
        if self.open and self.open[-1] == "text" and data[0] in "-.0123456789":
            at, anchor = self.label
            left = at - len(data) * self.DIGIT * {"start": 0.0, "middle": 0.5, "end": 1.0}[anchor]
            assert left >= 0 and left + len(data) * self.DIGIT <= self.size[0], (data, left, self.size)


page = Page()
page.feed(open(sys.argv[1], encoding="utf-8").read())
page.close()
assert page.open == [] and page.charts > 0, (page.open, page.charts)
for text in sys.argv[2:]:
    assert text in page.text, text
