"""20 newsgroups by date: ``20news-bydate-{train,test}/GROUP/NUMBER``, one post in each file."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from wideangle_lab.originals.converters import Arrays, ConversionError, only, opened
from wideangle_lab.originals.converters.words import N_TERMS, text_arrays, word_counts

ARCHIVE = "20news-bydate.tar.gz"
PARTS = ("20news-bydate-train", "20news-bydate-test")


def convert(folder: Path, n_terms: int = N_TERMS) -> Arrays:
    """Text arrays, ``labels``, ``label_names``, ``bydate_train``; training posts come first."""
    documents, labels, train = [], [], []
    with opened(folder, ARCHIVE) as contents:
        places = [only(contents, part, "20 newsgroups by date") for part in PARTS]
        groups = sorted(place.name for place in places[0].iterdir() if place.is_dir())
        if not groups:
            raise ConversionError(f"{places[0]} has no folders of newsgroups.")
        for place in places:
            for label, group in enumerate(groups):
                for post in sorted((place / group).iterdir()):
                    documents.append(word_counts(subject_and_body(post.read_bytes())))
                    labels.append(label)
                    train.append(place is places[0])
    return {
        "labels": np.array(labels, np.int16),
        "label_names": np.array(groups),
        "bydate_train": np.array(train, bool),
        **text_arrays(documents, n_terms),
    }


def subject_and_body(post: bytes) -> str:
    """The subject line and what follows the header; other header lines name group and author."""
    header, _, body = post.decode("latin-1").replace("\r\n", "\n").partition("\n\n")
    subject = (line[8:] for line in header.splitlines() if line.lower().startswith("subject:"))
    return " ".join([*subject, body])
