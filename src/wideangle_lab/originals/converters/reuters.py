"""Reuters-21578, Distribution 1.0: SGML files ``reut2-000.sgm`` to ``reut2-021.sgm``."""

from __future__ import annotations

import html
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from wideangle_lab.originals.converters import Arrays, ConversionError, opened
from wideangle_lab.originals.converters.words import N_TERMS, text_arrays, word_counts

ARCHIVE, N_TOPICS = "reuters21578.tar.gz", 9
STORY = re.compile(r"<REUTERS(.*?)>(.*?)</REUTERS>", re.DOTALL)
ATTRIBUTE = re.compile(r'(\w+)="(.*?)"')


class Story(NamedTuple):
    """One document of a single topic."""

    newid: int
    topic: str
    train: bool
    text: str


def convert(folder: Path, n_topics: int = N_TOPICS, n_terms: int = N_TERMS) -> Arrays:
    """Text arrays, ``labels`` in order of size, ``label_names``, ``newid``, ``modapte_train``.

    The ModApte split: LEWISSPLIT is TRAIN or TEST and TOPICS is "YES"; of these the documents with
    exactly one topic and a body; of these the ``n_topics`` largest topics.
    """
    with opened(folder, ARCHIVE) as contents:
        files = sorted(contents.rglob("reut2-*.sgm"))
        if not files:
            raise ConversionError(f"{folder} has no reut2-*.sgm: not Reuters-21578.")
        found = [story for file in files for story in stories(file.read_bytes())]
    sizes = Counter(story.topic for story in found)
    topics = sorted(sizes, key=lambda topic: (-sizes[topic], topic))[:n_topics]
    found = [story for story in found if story.topic in topics]
    return {
        "labels": np.array([topics.index(story.topic) for story in found], np.int16),
        "label_names": np.array(topics),
        "newid": np.array([story.newid for story in found], np.int32),
        "modapte_train": np.array([story.train for story in found], bool),
        **text_arrays((word_counts(story.text) for story in found), n_terms),
    }


def stories(sgml: bytes) -> Iterator[Story]:
    """Documents of the ModApte split with one topic and a body; the text is title and body."""
    for header, content in STORY.findall(sgml.decode("latin-1")):
        attributes = dict(ATTRIBUTE.findall(header))
        if attributes.get("LEWISSPLIT") not in ("TRAIN", "TEST") or (
            attributes.get("TOPICS") != "YES"
        ):
            continue
        topics = re.findall(r"<D>(.*?)</D>", _inside(content, "TOPICS"))
        body = _inside(content, "BODY")
        if len(topics) == 1 and body.strip():
            text = html.unescape(f"{_inside(content, 'TITLE')} {body}")
            yield Story(
                int(attributes["NEWID"]), topics[0], attributes["LEWISSPLIT"] == "TRAIN", text
            )


def _inside(content: str, tag: str) -> str:
    found = re.search(rf"<{tag}>(.*?)</{tag}>", content, re.DOTALL)
    return found[1] if found else ""
