"""Folders of images to counts of visual words: dense SIFT and k-means, by OpenCV.

Needs the extra ``images``: ``pip install ".[images]"`` in a checkout.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from wideangle.checks import check_count, check_range

SUFFIXES = {".jpg", ".jpeg", ".png", ".bmp", ".pgm", ".ppm", ".tif", ".tiff", ".webp"}
FLAT = 2.0
"""Standard deviation of the grey values (0-255) below which a patch counts as empty."""
N_DESCRIPTORS = 150_000


class NoOpenCvError(ImportError, ValueError):
    """OpenCV is not installed. Also a ValueError: the command line shows those as one sentence."""


def opencv() -> Any:
    """The module ``cv2``; if it is missing, an error that says how to install it."""
    try:
        import cv2
    except ImportError as error:
        raise NoOpenCvError(
            f'OpenCV cannot be loaded ({error}); try: pip install ".[images]"'
        ) from error
    return cv2


class Grid(NamedTuple):
    """Where descriptors are taken."""

    longest: int = 256
    """Larger images are shrunk so that their longer side has this many pixels."""
    patch: int = 16
    step: int = 8


class VisualWords(NamedTuple):
    """Images as counts of visual words."""

    counts: Any
    """CSR, (images, words)."""
    labels: np.ndarray
    label_names: tuple[str, ...]
    train: np.ndarray
    """Mask of the images that the vocabulary was learned on."""
    vocabulary: np.ndarray
    files: tuple[str, ...]

    def arrays(self) -> dict[str, np.ndarray]:
        """The arrays of a canonical file of images, with the training mask and the vocabulary."""
        return {
            "data": self.counts.data.astype(np.uint16),
            "indices": self.counts.indices.astype(np.int32),
            "indptr": self.counts.indptr.astype(np.int32),
            "shape": np.array(self.counts.shape),
            "labels": self.labels.astype(np.int16),
            "label_names": np.array(self.label_names),
            "vocabulary_train": self.train,
            "vocabulary": self.vocabulary,
        }


def bag_of_words(
    folder: Path | str | Mapping[str, Sequence[Path]],
    n_words: int = 1000,
    seed: int = 0,
    *,
    train: np.ndarray | None = None,
    train_fraction: float = 0.7,
    grid: Grid = Grid(),  # noqa: B008 - immutable
    n_jobs: int = 1,
) -> VisualWords:
    """Count visual words of ``folder/CLASS/*``, one class in each folder.

    Descriptors are SIFT on a grid, patches without contrast are zero. The vocabulary is made of
    the centres of mini-batch k-means on descriptors of **training images only**, so that nothing
    of a test image is in it; every descriptor then counts for its nearest centre.

    Parameters
    ----------
    folder
        Folders of classes, images in order of names; or the images of each class themselves.
    n_words
        Size of the vocabulary.
    seed
        Fixes the training images, the descriptors and the k-means: same seed, same counts.
    train
        Mask of the training images, in order of ``VisualWords.files``; by default
        ``train_fraction`` of each class, drawn at random.
    train_fraction
        Share of training images where ``train`` is not given.
    grid
        Size of images and patches.
    n_jobs
        Processes that read images.
    """
    check_count("n_words", n_words, 2)
    check_range("train_fraction", train_fraction, 0.0, 1.0, open_low=True, open_high=False)
    classes = folder if isinstance(folder, Mapping) else find_images(Path(folder))
    names, files = tuple(classes), [file for images in classes.values() for file in images]
    labels = np.repeat(np.arange(len(names)), [len(images) for images in classes.values()])
    generator = np.random.default_rng(seed)
    if train is None:
        train = _draw_train(generator, labels, train_fraction)
    elif np.shape(train) != labels.shape:
        raise ValueError(f"train has shape {np.shape(train)}, but there are {len(files)} images.")
    train = np.asarray(train, bool)
    vocabulary = _learn(generator, files, np.flatnonzero(train), n_words, grid, n_jobs)
    counts = _in_parallel(_count, [(file, grid, vocabulary) for file in files], n_jobs)
    return VisualWords(
        sp.csr_array(np.stack(counts)),
        labels,
        names,
        train,
        vocabulary.astype(np.float32),
        tuple(f"{names[label]}/{file.name}" for label, file in zip(labels, files, strict=True)),
    )


def save(made: VisualWords, output: Path) -> None:
    """Write the arrays and the names of the files as ``.npz``, by one rename."""
    unfinished = output.with_name(f".{output.name}.new.npz")  # savez adds .npz to other names
    try:
        np.savez_compressed(
            unfinished, allow_pickle=False, **made.arrays(), files=np.array(made.files)
        )
        os.replace(unfinished, output)
    finally:
        unfinished.unlink(missing_ok=True)


def find_images(folder: Path) -> dict[str, list[Path]]:
    """Images of each class, one folder for each, in order of names."""
    if not folder.is_dir():
        raise FileNotFoundError(f"{folder} is not a folder.")
    classes = {
        place.name: sorted(f for f in place.iterdir() if f.suffix.lower() in SUFFIXES)
        for place in sorted(folder.iterdir())
        if place.is_dir()
    }
    classes = {name: images for name, images in classes.items() if images}
    if not classes:
        raise ValueError(f"{folder} has no folders of images: one folder for each class is needed.")
    return classes


def dense_sift(image: np.ndarray, grid: Grid = Grid()) -> np.ndarray:  # noqa: B008
    """SIFT descriptors of a grey image on a grid, (M, 128), zero where there is no contrast."""
    cv2 = opencv()
    longer = max(image.shape)
    if longer > grid.longest:
        size = [max(round(side * grid.longest / longer), 1) for side in image.shape[::-1]]
        image = cv2.resize(image, size, interpolation=cv2.INTER_AREA)
    half = grid.patch // 2
    rows, columns = (np.arange(half, max(side - half, half) + 1, grid.step) for side in image.shape)
    points = [
        # OpenCV makes each of the 4 x 4 cells of a descriptor 1.5 times as wide as the size.
        cv2.KeyPoint(float(x), float(y), grid.patch / 6.0, 0.0)
        for y in rows
        for x in columns
    ]
    _, found = cv2.SIFT_create().compute(image, points)
    values = image.astype(np.float32)
    mean, square = (cv2.boxFilter(v, -1, (grid.patch, grid.patch)) for v in (values, values**2))
    place = np.ix_(np.minimum(rows, image.shape[0] - 1), np.minimum(columns, image.shape[1] - 1))
    flat = (square - mean**2)[place].ravel() < FLAT**2
    return np.where(flat[:, None], 0.0, found).astype(np.float32)


def read_grey(file: Path) -> np.ndarray:
    """Grey values of an image; the path may have any characters."""
    cv2 = opencv()
    raw = np.fromfile(file, np.uint8)
    image = cv2.imdecode(raw, cv2.IMREAD_GRAYSCALE) if raw.size else None
    if image is None:
        raise ValueError(f"{file} cannot be read as an image.")
    return image


def _draw_train(generator: np.random.Generator, labels: np.ndarray, fraction: float) -> np.ndarray:
    train = np.zeros(len(labels), bool)
    for label in np.unique(labels):
        members = np.flatnonzero(labels == label)
        n_train = max(round(fraction * len(members)), 1)
        train[generator.choice(members, n_train, replace=False)] = True
    return train


def _learn(
    generator: np.random.Generator,
    files: Sequence[Path],
    train: np.ndarray,
    n_words: int,
    grid: Grid,
    n_jobs: int,
) -> np.ndarray:
    """Centres of descriptors of training images, an equal share of each image."""
    from sklearn.cluster import MiniBatchKMeans
    from threadpoolctl import threadpool_limits

    if not len(train):
        raise ValueError("train has no image.")
    share = -(-N_DESCRIPTORS // len(train))
    tasks = [(files[i], grid, share, int(generator.integers(2**31))) for i in train]
    sample = np.concatenate(_in_parallel(_sample, tasks, n_jobs))
    if len(sample) < n_words:
        raise ValueError(f"n_words={n_words}: the training images have {len(sample)} descriptors.")
    model = MiniBatchKMeans(
        n_words,
        batch_size=4096,
        n_init=1,
        init_size=3 * n_words,
        random_state=int(generator.integers(2**31)),
    )
    with threadpool_limits(1):  # another order of sums would change the words
        return np.asarray(model.fit(sample).cluster_centers_)


def _sample(file: Path, grid: Grid, share: int, seed: int) -> np.ndarray:
    found = dense_sift(read_grey(file), grid)
    generator = np.random.default_rng(seed)
    return found[generator.permutation(len(found))[:share]]


def _count(file: Path, grid: Grid, vocabulary: np.ndarray) -> np.ndarray:
    found = dense_sift(read_grey(file), grid)
    # The nearest centre: |d - w|^2 minus |d|^2, which is the same for all words.
    distance = (vocabulary**2).sum(axis=1) - 2.0 * found @ vocabulary.T
    # 16 bits hold the descriptors of any image of this size, and thousands of rows stay small.
    return np.bincount(distance.argmin(axis=1), minlength=len(vocabulary)).astype(np.uint16)


def _in_parallel(function: Any, tasks: list[tuple[Any, ...]], n_jobs: int) -> list[np.ndarray]:
    from joblib import Parallel, delayed

    return list(Parallel(n_jobs=n_jobs)(delayed(function)(*task) for task in tasks))
