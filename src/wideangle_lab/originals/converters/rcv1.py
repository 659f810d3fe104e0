"""The RCV1 CCAT subset: RCV1-v2 as scikit-learn publishes it, drawn with the paper's class sizes.

``lyrl2004_vectors_*.dat.gz`` hold one ``document term:weight ...`` line for each document (47,236
terms, log tf-idf, unit length), ``rcv1v2.topics.qrels.gz`` one ``TOPIC document 1`` line for each
topic of a document.
"""

from __future__ import annotations

import gzip
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import scipy.sparse as sp

from wideangle_lab.originals.converters import Arrays, ConversionError

TOPICS = "rcv1v2.topics.qrels.gz"
N_TERMS = 47_236
SIZES = {
    "C18": 5281, "C17": 4125, "C12": 1194, "C14": 741, "C22": 611, "C34": 483, "C23": 262,
    "C32": 208, "C16": 192,
}  # fmt: skip
"""Documents of each of the nine subcategories in the paper's table; 13,097 in all."""
N_NEGATIVES = 15_000


def convert(
    folder: Path,
    sizes: Mapping[str, int] = SIZES,
    n_negatives: int = N_NEGATIVES,
    n_terms: int = N_TERMS,
) -> Arrays:
    """CSR parts, ``codes`` (place in ``nine``, -1 for not CCAT) and ``document`` numbers.

    The paper's nine sizes add up to its number of positives, so a document counts for one category
    only: those with exactly one of the nine codes are drawn from, and negatives are not under
    CCAT. Drawn with a fixed seed; rows are in order of document numbers.
    """
    chosen = choose(read_topics(folder / TOPICS), sizes, n_negatives)
    # One file at a time: all 804,414 documents together would need gigabytes.
    rows, documents = [], []
    files = sorted(folder.glob("lyrl2004_vectors_*.dat.gz"))
    for file in files:
        X, document = _read_vectors(file, n_terms)
        kept = np.flatnonzero(np.isin(document, list(chosen)))
        rows.append(X[kept])
        documents.append(document[kept])
    document = np.concatenate(documents) if files else np.zeros(0, np.int64)
    missing = len(chosen) - len(np.unique(document))
    if missing or len(document) != len(chosen):
        raise ConversionError(f"{folder}: {missing:,} documents of {TOPICS} have no vector.")
    order = np.argsort(document, kind="stable")
    X = sp.csr_array(sp.vstack(rows, format="csr"))[order]
    X.sort_indices()
    nine = list(sizes)
    places = {code: place for place, code in enumerate(nine)} | {"": -1}
    return {
        "data": X.data.astype(np.float32),
        "indices": X.indices.astype(np.int32),
        "indptr": X.indptr.astype(np.int32),
        "shape": np.array(X.shape),
        "codes": np.array([places[chosen[int(d)]] for d in document[order]], np.int8),
        "document": document[order].astype(np.int32),
        "nine": np.array(nine),
    }


def read_topics(path: Path) -> dict[int, set[str]]:
    """Topic codes of every document."""
    if not path.is_file():
        raise ConversionError(f"{path} is missing.")
    topics: dict[int, set[str]] = defaultdict(set)
    try:
        with gzip.open(path, "rt", encoding="ascii") as lines:
            for line in lines:
                topic, document, _ = line.split()
                topics[int(document)].add(topic)
    except (ValueError, EOFError, gzip.BadGzipFile) as error:
        raise ConversionError(f"{path.name} is not the list of topics: {error}.") from error
    return topics


def choose(
    topics: Mapping[int, set[str]], sizes: Mapping[str, int], n_negatives: int, seed: int = 0
) -> dict[int, str]:
    """Documents and their code, "" for negatives."""
    candidates: dict[str, list[int]] = {code: [] for code in (*sizes, "")}
    for document in sorted(topics):
        codes = topics[document] & set(sizes)
        if len(codes) == 1:
            candidates[codes.pop()].append(document)
        elif not codes and "CCAT" not in topics[document]:
            candidates[""].append(document)
    generator = np.random.default_rng(seed)
    chosen: dict[int, str] = {}
    for code, size in {**sizes, "": n_negatives}.items():
        if len(candidates[code]) < size:
            raise ConversionError(
                f"{TOPICS}: {len(candidates[code])} documents of {code or 'no CCAT code'}, "
                f"{size} are needed."
            )
        drawn = generator.choice(len(candidates[code]), size, replace=False)
        chosen |= {candidates[code][place]: code for place in drawn}
    return chosen


def _read_vectors(path: Path, n_terms: int) -> tuple[sp.csr_array, np.ndarray]:
    from sklearn.datasets import load_svmlight_file

    try:
        X, document = load_svmlight_file(
            str(path), n_features=n_terms, zero_based=False, dtype=np.float32
        )[:2]
    except (ValueError, EOFError, gzip.BadGzipFile) as error:
        raise ConversionError(f"{path.name} is not a file of RCV1 vectors: {error}.") from error
    return sp.csr_array(X), document.astype(np.int64)
