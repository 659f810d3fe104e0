"""Reuters and 20 newsgroups from small files in the original formats."""

import io
import tarfile

import numpy as np
import pytest

from wideangle_lab.originals.converters import ConversionError, newsgroups, reuters

STORY = """<REUTERS TOPICS="{listed}" LEWISSPLIT="{split}" CGISPLIT="TRAINING-SET" OLDID="1" NEWID="{id}">
<DATE>26-FEB-1987 15:01:01.79</DATE>
<TOPICS>{topics}</TOPICS>
<PLACES><D>usa</D></PLACES>
<UNKNOWN> &#5;&#5;&#5;C T</UNKNOWN>
<TEXT>&#2;
<TITLE>{title}</TITLE>
<DATELINE>    NEW YORK, Feb 26 - </DATELINE>{body}</TEXT>
</REUTERS>
"""  # noqa: E501


def story(id, topics="earn", split="TRAIN", listed="YES", title="PROFIT", body="dividend rose"):
    marked = "".join(f"<D>{topic}</D>" for topic in topics.split())
    inner = f"<BODY>{body}\n Reuter\n&#3;</BODY>" if body else ""
    return STORY.format(
        id=id, topics=marked, split=split, listed=listed, title=title, body=inner
    ).encode("latin-1")


SGML = {
    "reut2-000.sgm": [
        story(1, title="AT&amp;T PROFIT", body="dividend &lt;T> na\xefve \xa3 dividend"),
        story(2, "earn acq"),  # two topics
        story(3, "acq", split="TEST", body="merger bid"),
        story(4, "acq", split="NOT-USED"),
        story(5, "earn", listed="NO"),
        story(6, ""),
        story(7, "earn", body=""),
    ],
    "reut2-001.sgm": [story(8, "earn", body="quarter"), story(9, "coffee", body="beans")],
}


@pytest.fixture
def sgml(tmp_path):
    for name, stories in SGML.items():
        header = b'<!DOCTYPE lewis SYSTEM "lewis.dtd">\n'
        (tmp_path / name).write_bytes(header + b"".join(stories))
    (tmp_path / "README.txt").write_text("not a story")
    return tmp_path


def test_reuters_takes_the_modapte_stories_with_one_topic_and_a_body(sgml):
    arrays = reuters.convert(sgml, n_topics=2)
    assert arrays["newid"].tolist() == [1, 3, 8]
    # earn has two stories; acq and coffee one each, and acq comes first in the alphabet.
    assert arrays["label_names"].tolist() == ["earn", "acq"]
    assert arrays["labels"].tolist() == [0, 1, 0]
    assert arrays["modapte_train"].tolist() == [True, False, True]
    words = dict(zip(arrays["vocab"].tolist(), range(99), strict=False))
    assert {"dividend", "merger", "quarter", "profit", "reuter"} <= set(words)
    first = slice(*arrays["indptr"][:2])
    row = dict(zip(arrays["indices"][first], arrays["counts"][first], strict=True))
    assert row[words["dividend"]] == 2
    assert not {"amp", "feb", "york", "beans"} & set(words)  # entities, dateline, third topic


def test_reuters_is_the_same_packed_as_unpacked(sgml, tmp_path):
    packed = tmp_path / "packed"
    packed.mkdir()
    with tarfile.open(packed / reuters.ARCHIVE, "w:gz") as tar:
        for name in SGML:
            tar.add(sgml / name, name)
    one, two = reuters.convert(sgml), reuters.convert(packed)
    assert all(np.array_equal(one[name], two[name]) for name in one)
    assert [path.name for path in packed.iterdir()] == [reuters.ARCHIVE]


def test_a_folder_without_stories_is_refused(tmp_path):
    with pytest.raises(ConversionError, match="not Reuters-21578"):
        reuters.convert(tmp_path)


POSTS = {
    "20news-bydate-train/rec.autos/102": "From: a@example.org (Smith)\nSubject: Re: engine\n"
    "Organization: secret\n\nEngine oil leaks\n\nsecond paragraph",
    "20news-bydate-train/rec.autos/101": "Subject: brakes\r\nFrom: x\r\n\r\nbrakes squeal",
    "20news-bydate-train/alt.atheism/9": "From: y\n\nsubject: reason",
    "20news-bydate-test/alt.atheism/10": "Subject: logic\n\ncaf\xe9 proof",
    "20news-bydate-test/rec.autos/103": "no header at all",
}


@pytest.fixture
def posts(tmp_path):
    with tarfile.open(tmp_path / newsgroups.ARCHIVE, "w:gz") as tar:
        for name, text in POSTS.items():
            content = text.encode("latin-1")
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return tmp_path


def test_newsgroups_take_subject_and_body_in_order_of_names(posts):
    arrays = newsgroups.convert(posts)
    assert arrays["label_names"].tolist() == ["alt.atheism", "rec.autos"]
    assert arrays["labels"].tolist() == [0, 1, 1, 0, 1]
    assert arrays["bydate_train"].tolist() == [True, True, True, False, False]
    words = arrays["vocab"].tolist()
    assert {"engine", "brakes", "squeal", "paragraph", "logic", "subject", "reason"} <= set(words)
    assert not {"smith", "secret", "organization", "header"} & set(words)
    dense = np.zeros((5, len(words)), int)
    row = np.repeat(np.arange(5), np.diff(arrays["indptr"]))
    dense[row, arrays["indices"]] = arrays["counts"]
    assert dense[1, words.index("brakes")] == 2  # 101 comes before 102
    assert dense[2, words.index("engine")] == 2


def test_newsgroups_that_are_not_there_are_named(tmp_path):
    with pytest.raises(ConversionError, match="20news-bydate-train"):
        newsgroups.convert(tmp_path)
    (tmp_path / "20news-bydate-train").mkdir()
    (tmp_path / "20news-bydate-test").mkdir()
    with pytest.raises(ConversionError, match="no folders"):
        newsgroups.convert(tmp_path)
