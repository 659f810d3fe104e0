"""Addresses and checksums of the originals.

A checksum is written here only where it was computed from the file itself or is published by a
project that checks every download against it; otherwise the first download is remembered, and the
arrays made from it are compared with those of the canonical file (``content``).
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from wideangle_lab.originals.converters import (
    Arrays,
    libsvm,
    matfiles,
    newsgroups,
    piano,
    pictures,
    rcv1,
    reuters,
    yale,
)

DERIVED = ("tfidf", "light_angle")
"""Arrays whose last bit may depend on the machine's logarithm: not part of the content."""


@dataclass(frozen=True)
class Place:
    """One address of an original."""

    address: str
    sha256: str = ""
    """Empty if it is not published."""


@dataclass(frozen=True)
class Original:
    """One file to download, from the first address that has it."""

    file: str
    places: tuple[Place, ...]
    most_bytes: int = 1 << 30


@dataclass(frozen=True)
class Recipe:
    """How the canonical file is made from its originals."""

    convert: Callable[[Path], Arrays]
    originals: tuple[Original, ...] = ()
    """Empty if a download needs an account."""
    content: str = ""
    """Digest of the arrays of the canonical file; empty if features are computed again."""


def digest(arrays: Mapping[str, np.ndarray]) -> str:
    """Names, types, shapes and bytes of all arrays but the :data:`DERIVED` ones."""
    total = hashlib.sha256()
    for name in sorted(set(arrays) - set(DERIVED)):
        array = np.ascontiguousarray(arrays[name])
        # Letters are four bytes each in the machine's order; numbers are little-endian here.
        array = array.astype(array.dtype.newbyteorder("<"))
        total.update(f"{name} {array.dtype.str} {np.shape(arrays[name])}\n".encode())
        total.update(array.tobytes())
    return total.hexdigest()


def _pinned(repository: str, commit: str, path: str, sha256: str) -> Place:
    """A file of a public repository at a commit: its bytes can never change."""
    return Place(f"https://raw.githubusercontent.com/{repository}/{commit}/{path}", sha256)


LIBSVM = "https://www.csie.ntu.edu.tw/~cjlin/libsvmtools/datasets/binary"
A9A = ("Astraeus-Q/SVM-Classifier", "01842c60893d86dc714fba10b7b483b7f3a61129")
EEGLAB = ("sccn/eeglab", "94b8557aa27484c4e2cb4775315802d420b93f32")
NEWS20_SHA = "8f1b2514ca22a5ade8fbb9cfa5727df95fa587f4c87b786e15c759fa66d95610"
"""As scikit-learn checks it in ``fetch_20newsgroups``."""
CALTECH_SHA = "331234750fc7f77520e50d9565e8b6907b03565e30320da1401130db08c61f91"
"""As TensorFlow Datasets checks it in ``caltech101``."""
RCV1_FILES = {
    "lyrl2004_vectors_test_pt0.dat.gz": (
        5976069, "ed40f7e418d10484091b059703eeb95ae3199fe042891dcec4be6696b9968374"),
    "lyrl2004_vectors_test_pt1.dat.gz": (
        5976066, "87700668ae45d45d5ca1ef6ae9bd81ab0f5ec88cc95dcef9ae7838f727a13aa6"),
    "lyrl2004_vectors_test_pt2.dat.gz": (
        5976063, "48143ac703cbe33299f7ae9f4995db49a258690f60e5debbff8995c34841c7f5"),
    "lyrl2004_vectors_test_pt3.dat.gz": (
        5976060, "dfcb0d658311481523c6e6ca0c3f5a3e1d3d12cde5d7a8ce629a9006ec7dbb39"),
    "lyrl2004_vectors_train.dat.gz": (
        5976057, "5468f656d0ba7a83afc7ad44841cf9a53048a5c083eedc005dcdb5cc768924ae"),
    "rcv1v2.topics.qrels.gz": (
        5976048, "2a98e5e5d8b770bded93afc8930d88299474317fe14181aee1466cc754d0d1c1"),
}  # fmt: skip
"""Numbers at figshare and checksums, as scikit-learn has them in ``fetch_rcv1``."""

RECIPES: dict[str, Recipe] = {
    "adult9": Recipe(
        libsvm.convert,
        (
            Original("a9a", (
                Place(f"{LIBSVM}/a9a"),
                _pinned(*A9A, "a9a.txt",
                        "f5d5ffd8d865ff41328e7ee043e4b020816914ff6843ff15b98905ddbedce906"),
            ), 10 << 20),
            Original("a9a.t", (
                Place(f"{LIBSVM}/a9a.t"),
                _pinned(*A9A, "a9a.t",
                        "1f7bae8e9729ad2bf9d18f66e5fa622e503e615114f92c37b274dfd24f2e5725"),
            ), 10 << 20),
        ),
        "9630ead042675c306fd01465f5ae794c96a49196fd21ae5e0bbda3dbaea4901e",
    ),
    "rcv1": Recipe(
        rcv1.convert,
        tuple(
            Original(file, (Place(f"https://ndownloader.figshare.com/files/{number}", sha256),))
            for file, (number, sha256) in RCV1_FILES.items()
        ),
    ),
    "yale": Recipe(
        yale.convert,
        (Original("CroppedYale.zip", (
            Place("http://vision.ucsd.edu/extyaleb/CroppedYaleBZip/CroppedYale.zip"),
        )),),
        "cc809a85bd90925982518a5ab6aafdcc6c053c30cceff185bcb9e24c09b01860",
    ),
    "ar": Recipe(
        matfiles.ar,
        (
            Original("AR.mat", (_pinned(
                "XiaoZhu-05/RGD-NMF", "23567eeef0121240b38b914ebb234a9e30fa37a9", "AR.mat",
                "2d1065a2570084bedab117296f271346ac7ab5e2eb3d0b339a6061e86c1aeac0"),), 10 << 20),
            Original("warpAR10P.mat", (_pinned(
                "ouharu/datasets", "9498b2dd5abbed49584704fa67136f3da7c9347f", "warpAR10P.mat",
                "bade921154129bc629f0c4bf1839b9bc9c86ae7a81d4c375f39114d8fbe053bc"),), 10 << 20),
        ),
        "d53769bb6229b1537a2108c2f4db2a456a57bd8173e4db7b49d993a82a5ab2f5",
    ),
    "eeg": Recipe(
        matfiles.eeg,
        (
            Original("eeglab_data.set", (_pinned(*EEGLAB, "sample_data/eeglab_data.set",
                "27594dc378685d25d5f5f762f4f8332e7a3d988b6d5d41832bb2252d93988718"),), 10 << 20),
            Original("eeglab_data.fdt", (_pinned(*EEGLAB, "sample_data/eeglab_data.fdt",
                "3ec388b9a080c723c00cd380403d64cc754929d828375bbd53bd83b468136759"),), 10 << 20),
        ),
        "14756007dbba986ff96afadc790ab6caf7548ab844dd7e7f2a22deeaf907a1bd",
    ),
    "piano": Recipe(
        piano.convert,
        (Original(piano.FILE, (_pinned(
            "librosa/data", "450cdd8a002c98e7bdbfebb309fc1ed024001f77", f"audio/{piano.FILE}",
            "1cc83b775e640a8dd409da9e29f5b5e0124bc5ec9bb4fda975919d31d1d893b8"),), 10 << 20),),
    ),
    "reuters": Recipe(
        reuters.convert,
        (Original(reuters.ARCHIVE, (
            Place("https://archive.ics.uci.edu/ml/machine-learning-databases/reuters21578-mld/"
                  "reuters21578.tar.gz"),
            Place("https://kdd.ics.uci.edu/databases/reuters21578/reuters21578.tar.gz"),
            Place("http://www.daviddlewis.com/resources/testcollections/reuters21578/"
                  "reuters21578.tar.gz"),
        ), 100 << 20),),
        "4131f7e634ab6bf6722f6f37c281de82a0dd37585e90132af6cf93ad1b89348b",
    ),
    "tdt": Recipe(
        matfiles.tdt,
        (Original("TDT2.mat", (_pinned(
            "jiangelle/Mat-data-time", "1125d509f310a11cdcc690e4d2c669ed453bb568", "TDT2.mat",
            "077a9f839f7a56efe797c54de7a351f2a46e69161387aef76526aafe7d872576"),), 10 << 20),),
        "78b08370a341c6fc3df9024d191765d9dbf50a69aadcb0a3eed26fa1ebc3f73c",
    ),
    "news20": Recipe(
        newsgroups.convert,
        (Original(newsgroups.ARCHIVE, (
            Place("https://ndownloader.figshare.com/files/5975967", NEWS20_SHA),
            Place("http://qwone.com/~jason/20Newsgroups/20news-bydate.tar.gz", NEWS20_SHA),
        ), 100 << 20),),
        "99d65664bc781a78dd324ee77da3f02c9a25b4e32df95971f34d9d44cc03c467",
    ),
    "scenes15": Recipe(
        pictures.scenes15,
        (Original("scene_categories.zip", (
            Place("http://www-cvr.ai.uiuc.edu/ponce_grp/data/scene_categories/"
                  "scene_categories.zip"),
        )),),
    ),
    "caltech101": Recipe(
        pictures.caltech101,
        (Original("caltech-101.zip", (
            Place("https://data.caltech.edu/records/mzrjq-6wc02/files/caltech-101.zip?download=1",
                  CALTECH_SHA),
        )),),
    ),
    "building": Recipe(pictures.building),
}  # fmt: skip
