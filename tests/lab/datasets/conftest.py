"""Small files in the layout of the canonical ones, and the real ones where there are some."""

import os

import numpy as np
import pytest
import scipy.sparse as sp


def csr(matrix, prefix="", **names):
    matrix = sp.csr_matrix(matrix)
    data = names or {"data": matrix.data}
    return {
        **{f"{prefix}{name}": values for name, values in data.items()},
        f"{prefix}indices": matrix.indices.astype(np.int32),
        f"{prefix}indptr": matrix.indptr.astype(np.int32),
        f"{prefix}shape": np.array(matrix.shape),
    }


def counts(generator, n, p):
    return generator.poisson(0.4, (n, p)).astype(np.uint16)


def text(generator, n=12, p=9, classes=3, **extras):
    matrix = sp.csr_matrix(counts(generator, n, p))
    both = {"counts": matrix.data, "tfidf": (matrix.data / 2).astype(np.float32)}
    labels = (np.arange(n) % classes).astype(np.int16)
    return {**csr(matrix, **both), "labels": labels, **extras}


def rcv1(generator):
    topics = np.array(["C16", "C17", "CCAT", "ECAT", *(f"G{i}" for i in range(6))])
    parts = {"nine": np.array(["C17", "C16"]), "topics": topics}
    for sample in ("s1", "s2", "s3", "s5"):
        codes = np.zeros((8, 10), np.uint8)
        codes[0, [0, 2]] = codes[1, [1, 2]] = codes[2, [0, 1, 2]] = 1
        codes[3, 2] = 1  # under CCAT, but none of the nine: neither class
        codes[4:, 3] = 1
        parts[f"{sample}_Y"] = np.packbits(codes, axis=1)
        parts |= csr(np.eye(8, 6, dtype=np.uint8), f"{sample}_")
    return parts


def small_files(generator):
    words = np.array([f"word{i}" for i in range(9)])
    names = np.array(["a", "b", "c"])
    n = 12
    images = {
        **csr(counts(generator, n, 6)),
        "labels": (np.arange(n) % 3).astype(np.int16),
        "label_names": names,
    }
    binary = (generator.random((7, 5)) < 0.4).astype(np.uint8)
    return {
        "adult9": {
            **csr(binary[:4], "train_"),
            **csr(binary[4:], "test_"),
            "y_train": np.array([0, 1, 0, 1], np.int8),
            "y_test": np.array([1, 0, 1], np.int8),
        },
        "building": {
            **images,
            "rows": np.array([0, 1, 3, 5], np.int32),
            "y": np.array([1, 0, 1, 0], np.int8),
            "train": np.array([True, False, True, True]),
        },
        "rcv1_subsets": rcv1(generator),
        "rcv1": {
            **csr(np.eye(6, 5, dtype=np.float32) + (np.arange(5) == 3)),
            "codes": np.array([-1, 0, 1, -1, 0, -1], np.int8),
            "document": np.arange(6, dtype=np.int32),
            "nine": np.array(["C18", "C17"]),
        },
        "yale": {
            "X": generator.integers(0, 255, (6, 4)).astype(np.uint8),
            **{k: np.arange(6) for k in ("subject", "azimuth", "elevation", "light_angle")},
            "paper_rows": np.array([0, 2, 5], np.int32),
        },
        "ar": {
            "X": generator.integers(0, 255, (5, 4)).astype(np.uint8),
            "subject": np.arange(5),
            "X_accessories": np.zeros((2, 4), np.uint8),
            "subject_accessories": np.arange(2),
        },
        "eeg": {
            "X": np.ones((3, 2), np.float32),
            "X_all": np.ones((6, 2), np.float32),
            "rows": np.arange(0, 6, 2),
            "channels": np.array(["Fz", "Cz"]),
            "rate_hz": np.array(128.0),
        },
        "piano": {"X": generator.random((5, 3)).astype(np.float32)},
        "reuters": text(generator, label_names=names, vocab=words, modapte_train=np.arange(n) < 8),
        "tdt": text(generator, date=np.arange(n)),
        "news20": text(generator, label_names=names, vocab=words, bydate_train=np.arange(n) < 8),
        "scenes15": {**images, "lazebnik_train": np.arange(n) < 6},
        "caltech101": images,
    }


@pytest.fixture
def small(tmp_path, monkeypatch):
    """A folder of small files, the only one that is searched."""
    for name, arrays in small_files(np.random.default_rng(0)).items():
        np.savez_compressed(tmp_path / f"{name}.npz", **arrays)
    monkeypatch.setenv("WIDEANGLE_DATA", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("LOCALAPPDATA", str(tmp_path / "cache"))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    return tmp_path


@pytest.fixture
def real():
    """Skips where the canonical files are not at hand."""
    if not os.environ.get("WIDEANGLE_DATA"):
        pytest.skip("WIDEANGLE_DATA is not set")
