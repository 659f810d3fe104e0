"""TDT, AR and the EEG stand-in: files that MATLAB wrote."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from wideangle_lab.originals.converters import Arrays, ConversionError
from wideangle_lab.originals.converters.words import N_TERMS, weighted
from wideangle_lab.originals.images import opencv

EEG_ROWS = 4400
AR_SIZE = (47, 34)
"""Height and width: 1598 pixels, as in the paper."""


def tdt(folder: Path, n_terms: int = N_TERMS) -> Arrays:
    """``TDT2.mat``: term counts, the category and the date (month * 100 + day) as last columns."""
    table = sp.csr_array(_matrix(folder / "TDT2.mat", "fea"))
    category, date = table[:, [-2, -1]].toarray().T.astype(np.int16)
    terms = sp.csc_array(table[:, :-2])
    found_in = np.diff(terms.indptr)
    # Stable: of equally frequent terms the first columns are kept.
    kept = np.sort(np.argsort(-found_in, kind="stable")[:n_terms])
    counts = sp.csr_array(terms[:, kept])
    counts.sort_indices()
    return {
        "labels": category - np.int16(1),
        "date": date,
        "term_ids": kept.astype(np.int32),
        **weighted(sp.csr_array(counts.astype(np.int64))),
    }


def eeg(folder: Path, n_rows: int = EEG_ROWS) -> Arrays:
    """``eeglab_data.set`` (settings) and ``.fdt`` (float32 samples of all channels in turn)."""
    settings = _load(folder / "eeglab_data.set", simplify_cells=True)["EEG"]
    n_channels, rate = int(settings["nbchan"]), float(settings["srate"])
    samples = np.fromfile(folder / "eeglab_data.fdt", "<f4")
    if samples.size != n_channels * int(settings["pnts"]):
        raise ConversionError("eeglab_data.fdt has another size than eeglab_data.set says.")
    samples = samples.reshape(-1, n_channels)
    rows = np.linspace(0, len(samples) - 1, n_rows).round().astype(np.int32)
    return {
        "X": samples[rows],
        "X_all": samples,
        "rows": rows,
        "channels": np.array([str(place["labels"]) for place in settings["chanlocs"]]),
        "rate_hz": np.array(rate),
    }


def ar(folder: Path) -> Arrays:
    """``AR.mat`` (50 x 40) and ``warpAR10P.mat`` (60 x 40), both shrunk to 47 x 34 by area."""
    arrays: Arrays = {}
    for name, height, suffix in (("AR.mat", 50, ""), ("warpAR10P.mat", 60, "_accessories")):
        columns, subject = (_matrix(folder / name, part) for part in ("fea", "gnd"))
        arrays[f"X{suffix}"] = np.stack([_shrunk(row, height) for row in columns])
        arrays[f"subject{suffix}"] = subject.ravel().astype(np.int16)
    return arrays


def _shrunk(row: np.ndarray, height: int) -> np.ndarray:
    cv2 = opencv()
    # MATLAB stores column by column.
    image = np.ascontiguousarray(row.astype(np.uint8).reshape(height, -1, order="F"))
    return cv2.resize(image, AR_SIZE[::-1], interpolation=cv2.INTER_AREA).ravel()


def _matrix(path: Path, name: str) -> Any:
    content = _load(path)
    if name not in content:
        raise ConversionError(f"{path.name} has no matrix {name}.")
    return content[name]


def _load(path: Path, **options: Any) -> Any:
    from scipy.io import loadmat

    if not path.is_file():
        raise ConversionError(f"{path} is missing.")
    try:
        with warnings.catch_warnings():
            # SciPy warns about a change of its sparse types; both work here.
            warnings.simplefilter("ignore", DeprecationWarning)
            return loadmat(path, **options)
    except (ValueError, TypeError, NotImplementedError) as error:
        raise ConversionError(f"{path.name} is not a MATLAB file: {error}.") from error
