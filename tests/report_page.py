"""What is on a report page, read as a browser would."""

import json
import zlib
from functools import reduce
from html.parser import HTMLParser


class Elements(HTMLParser):
    """Tags with their attributes, texts, and the content of scripts."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.scripts, self.words = [], [], []
        self.in_script = False
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))
        if tag == "script":
            self.scripts.append("")
            self.in_script = True

    def handle_endtag(self, tag):
        self.in_script = False

    def handle_data(self, content):
        if self.in_script:
            self.scripts[-1] += content
        else:
            self.words.append(content)


def unpacked(letters, size):
    """What the page makes of packed letters, here with big numbers."""
    codes = [60 if letter == "}" else ord(letter) for letter in letters]
    groups = [codes[i : i + 5] for i in range(0, len(codes), 5)]
    values = [reduce(lambda value, code: value * 85 + code - 40, group, 0) for group in groups]
    content = b"".join(value.to_bytes(4, "big") for value in values)
    return zlib.decompress(content[:size], wbits=-zlib.MAX_WBITS).decode()


def data_of(elements):
    """The data that the page draws from."""
    size = next(int(a["data-size"]) for _, a in elements.tags if a.get("id") == "data")
    return json.loads(unpacked(elements.scripts[0], size))
