"""Loaders of the canonical files; use ``load(name)``.

The files are ``.npz`` archives without pickle. Sparse matrices are stored as the three parts of a
CSR matrix and their shape; each loader below names the arrays that it reads.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.sparse as sp

from wideangle.checks import check_choice, check_count
from wideangle.datasets import block_images, mixture_data
from wideangle_lab.datasets.dataset import Dataset, split_of
from wideangle_lab.datasets.files import read
from wideangle_lab.datasets.manifest import EXPERTS, MANIFEST

Arrays = dict[str, np.ndarray]
RCV1_SAMPLES = ("s1", "s2", "s3", "s5")


def load(name: str, *, verify: bool = True, **options: Any) -> Dataset:
    """Load a data set by name, such as ``load("adult9")`` or ``load("rcv1_subsets.s2")``.

    Parameters
    ----------
    name
        One of :data:`NAMES`; ``rcv1_subsets`` takes the sample after a dot (by default s1).
    verify
        Compare the file's sha256 with the manifest.
    **options
        ``building``: ``percent=False`` keeps counts; ``yale``: ``rows="all"``; ``rcv1``:
        ``n_terms``; ``caltech101``: ``background=False``; text: ``weights="counts"``; generated
        data: the arguments of its generator.
    """
    base, _, sample = name.partition(".")
    check_choice("name", base, NAMES)
    if sample:
        options["sample"] = sample
    if base in GENERATED:
        return GENERATED[base](**options)
    return LOADERS[base](read(MANIFEST[base], verify=verify), **options)


def _adult9(z: Arrays) -> Dataset:
    """``train_*`` and ``test_*`` (CSR parts), ``y_train``, ``y_test``: 1 is income over 50K."""
    train, test = _csr(z, "train_"), _csr(z, "test_")
    is_train = np.arange(train.shape[0] + test.shape[0]) < train.shape[0]
    return Dataset(
        "adult9",
        sp.csr_array(sp.vstack([train, test], format="csr")),
        np.concatenate([z["y_train"], z["y_test"]]).astype(np.int64),
        MANIFEST["adult9"],
        class_names=("at most 50K", "over 50K"),
        fixed_split=split_of(is_train),
    )


def _building(z: Arrays, percent: bool = True) -> Dataset:
    """CSR parts of all images, ``rows`` of the task, ``y`` (1 is building), ``train``.

    Images have different numbers of words; ``percent`` makes each row sum to 100.
    """
    X = _csr(z)[z["rows"]]
    if percent:
        total = np.maximum(np.asarray(X.sum(axis=1)).ravel(), 1.0)
        X = sp.csr_array(sp.diags_array((100.0 / total).astype(np.float32)) @ X)
    return Dataset(
        "building",
        X,
        z["y"].astype(np.int64),
        MANIFEST["building"],
        class_names=("other", "building"),
        fixed_split=split_of(z["train"]),
        groups={
            str(label): z["labels"][z["rows"]] == place
            for place, label in enumerate(z["label_names"])
        },
    )


def _rcv1_subsets(z: Arrays, sample: str = "s1") -> Dataset:
    """``sS_*`` (CSR parts and packed topic codes ``sS_Y``), ``topics``, ``nine``."""
    check_choice("sample", sample, RCV1_SAMPLES)
    topics = [str(topic) for topic in z["topics"]]
    codes = np.unpackbits(z[f"{sample}_Y"], axis=1)[:, : len(topics)].astype(bool)
    nine = codes[:, [topics.index(str(code)) for code in z["nine"]]]
    positive = np.asarray(nine.any(axis=1))
    kept = np.flatnonzero(positive | ~codes[:, topics.index("CCAT")])
    return Dataset(
        f"rcv1_subsets.{sample}",
        _csr(z, f"{sample}_")[kept],
        positive[kept].astype(np.int64),
        MANIFEST["rcv1_subsets"],
        class_names=("not CCAT", "one of nine"),
        groups={str(code): nine[kept, place] for place, code in enumerate(z["nine"])},
    )


def _rcv1(z: Arrays, n_terms: int | None = None) -> Dataset:
    """CSR parts, ``codes`` (place in ``nine``, -1 for negatives), ``document``, ``nine``.

    ``n_terms`` keeps the terms that are found in most documents.
    """
    X = _csr(z)
    if n_terms is not None:
        check_count("n_terms", n_terms, 1)
        found_in = np.bincount(X.indices, minlength=X.shape[1])
        X = X[:, np.sort(np.argsort(-found_in, kind="stable")[:n_terms])]
    return Dataset(
        "rcv1",
        sp.csr_array(X),
        (z["codes"] >= 0).astype(np.int64),
        MANIFEST["rcv1"],
        class_names=("not CCAT", "one of nine"),
        groups={str(code): z["codes"] == place for place, code in enumerate(z["nine"])},
        extras={"document": z["document"]},
    )


def _yale(z: Arrays, rows: str = "paper") -> Dataset:
    """``X`` (uint8 pixels), ``subject``, ``azimuth``, ``elevation``, ``paper_rows``."""
    check_choice("rows", rows, ("paper", "all"))
    chosen = z["paper_rows"] if rows == "paper" else np.arange(len(z["X"]))
    names = ("subject", "azimuth", "elevation", "light_angle")
    extras = {name: z[name][chosen] for name in names}
    return _unlabelled("yale", z["X"][chosen], extras)


def _ar(z: Arrays) -> Dataset:
    """``X`` (uint8 pixels), ``subject``, and the images with accessories apart."""
    return _unlabelled("ar", z["X"], {name: a for name, a in z.items() if name != "X"})


def _eeg(z: Arrays) -> Dataset:
    """``X`` (microvolts), ``rows`` of it in ``X_all``, ``channels``, ``rate_hz``."""
    extras = {name: z[name] for name in ("rows", "X_all", "rate_hz")}
    return _unlabelled("eeg", z["X"], extras, tuple(map(str, z["channels"])))


def _piano(z: Arrays) -> Dataset:
    """``X``: magnitudes of 161 frequencies, 50 Hz apart."""
    names = tuple(f"{50 * place} Hz" for place in range(z["X"].shape[1]))
    return _unlabelled("piano", z["X"], {}, names)


def _unlabelled(
    name: str, X: np.ndarray, extras: Arrays, feature_names: tuple[str, ...] = ()
) -> Dataset:
    rows = np.asarray(X, np.float32)
    return Dataset(name, rows, None, MANIFEST[name], feature_names=feature_names, extras=extras)


def _text(name: str) -> Callable[..., Dataset]:
    def loader(z: Arrays, weights: str = "tfidf") -> Dataset:
        """``counts`` and ``tfidf`` on one CSR pattern, ``labels``, maybe ``vocab``."""
        check_choice("weights", weights, ("tfidf", "counts"))
        inside = {"counts", "tfidf", "indices", "indptr", "shape", "labels", "label_names", "vocab"}
        return Dataset(
            name,
            _csr(z, data=weights),
            z["labels"].astype(np.int64),
            MANIFEST[name],
            class_names=_class_names(z),
            feature_names=tuple(map(str, z.get("vocab", ()))),
            extras={key: value for key, value in z.items() if key not in inside},
        )

    return loader


def _scenes15(z: Arrays) -> Dataset:
    """CSR parts of counts, ``labels``, ``label_names``, ``lazebnik_train``."""
    return Dataset(
        "scenes15",
        _csr(z),
        z["labels"].astype(np.int64),
        MANIFEST["scenes15"],
        class_names=_class_names(z),
        extras={"lazebnik_train": z["lazebnik_train"]},
    )


def _caltech101(z: Arrays, background: bool = True) -> Dataset:
    """CSR parts of counts, ``labels`` (0 is the background class), ``label_names``."""
    kept = np.flatnonzero(z["labels"] >= (0 if background else 1))
    first = 0 if background else 1
    return Dataset(
        "caltech101",
        _csr(z)[kept],
        z["labels"][kept].astype(np.int64) - first,
        MANIFEST["caltech101"],
        class_names=_class_names(z)[first:],
    )


def _block_images(seed: int = 0, **options: Any) -> Dataset:
    made = block_images(seed, **options)
    extras = {"signal": made.signal, "features": made.features, "assignments": made.assignments}
    return _unlabelled("block_images", made.X, extras)


def _experts(seed: int = 0, **options: Any) -> Dataset:
    made = mixture_data(seed, **options)
    extras = {"expert": made.expert}
    return Dataset("experts", made.X, made.y, EXPERTS, class_names=("0", "1"), extras=extras)


def _class_names(z: Arrays) -> tuple[str, ...]:
    if "label_names" in z:
        return tuple(map(str, z["label_names"]))
    return tuple(str(label) for label in range(int(z["labels"].max()) + 1))


def _csr(z: Arrays, prefix: str = "", data: str = "data") -> Any:
    parts = (z[f"{prefix}{part}"] for part in (data, "indices", "indptr"))
    values, indices, indptr = parts
    return sp.csr_array(
        # int16 indices save space in the file, but SciPy wants int32.
        (values.astype(np.float32), indices.astype(np.int32), indptr.astype(np.int32)),
        shape=tuple(map(int, z[f"{prefix}shape"])),
    )


LOADERS: dict[str, Callable[..., Dataset]] = {
    "adult9": _adult9,
    "building": _building,
    "rcv1_subsets": _rcv1_subsets,
    "rcv1": _rcv1,
    "yale": _yale,
    "ar": _ar,
    "eeg": _eeg,
    "piano": _piano,
    "reuters": _text("reuters"),
    "tdt": _text("tdt"),
    "news20": _text("news20"),
    "scenes15": _scenes15,
    "caltech101": _caltech101,
}
GENERATED: dict[str, Callable[..., Dataset]] = {
    "block_images": _block_images,
    "experts": _experts,
}
NAMES = (*LOADERS, *GENERATED)
"""Names of all data sets."""
