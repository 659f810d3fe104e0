"""Texts to counts of words: the terms found in most documents, and their tf-idf weights."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from typing import Any

import numpy as np
import scipy.sparse as sp

from wideangle_lab.originals.converters import Arrays, ConversionError

WORD = re.compile(r"[a-z]{3,}")
"""Runs of at least three letters; shorter runs are dropped, longer ones never cut."""
N_TERMS = 5000


def word_counts(text: str) -> Counter[str]:
    """Words of a text in lower case, without scikit-learn's English stop words."""
    from sklearn.feature_extraction.text import ENGLISH_STOP_WORDS

    return Counter(word for word in WORD.findall(text.lower()) if word not in ENGLISH_STOP_WORDS)


def text_arrays(documents: Iterable[Counter[str]], n_terms: int = N_TERMS) -> Arrays:
    """Counts, tf-idf and vocabulary of documents.

    The ``n_terms`` terms found in most documents are kept, of equally frequent ones the first in
    the alphabet; columns are in alphabetical order.
    """
    documents = list(documents)
    found_in = Counter(word for document in documents for word in document)
    if not found_in:
        raise ConversionError("the documents have no words.")
    kept = sorted(found_in, key=lambda word: (-found_in[word], word))[:n_terms]
    vocabulary = sorted(kept)
    column = {word: place for place, word in enumerate(vocabulary)}
    rows = [
        sorted((column[word], count) for word, count in document.items() if word in column)
        for document in documents
    ]
    indptr = np.cumsum([0, *map(len, rows)])
    entries = np.array([entry for row in rows for entry in row], np.int64).reshape(-1, 2)
    shape = (len(documents), len(vocabulary))
    counts = sp.csr_array((entries[:, 1], entries[:, 0], indptr), shape=shape)
    return {**weighted(counts), "vocab": np.array(vocabulary)}


def weighted(counts: Any) -> Arrays:
    """Both weights of a CSR matrix of counts: ``counts``, and ``tfidf`` = (1 + ln tf) ln(N / df).

    Rows of ``tfidf`` have unit length, except those that are zero; df is over all rows.
    """
    n_rows, n_columns = counts.shape
    largest = np.iinfo(np.uint16).max
    found_in = np.bincount(counts.indices, minlength=n_columns)
    values = (1.0 + np.log(counts.data)) * np.log(n_rows / found_in[counts.indices])
    row = np.repeat(np.arange(n_rows), np.diff(counts.indptr))
    length = np.sqrt(np.bincount(row, values**2, minlength=n_rows))
    return {
        "counts": np.minimum(counts.data, largest).astype(np.uint16),
        "tfidf": (values / np.where(length > 0, length, 1.0)[row]).astype(np.float32),
        "indices": counts.indices.astype(np.int16 if n_columns < 2**15 else np.int32),
        "indptr": counts.indptr.astype(np.int32),
        "shape": np.array(counts.shape),
    }
