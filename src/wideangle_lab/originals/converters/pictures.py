"""Caltech-101, 15-Scenes and the building stand-in: folders of images to visual words.

The words are computed on this machine, on training images only, so they are of the same kind as
those of the canonical files but not the same.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from wideangle_lab.originals.converters import Arrays, ConversionError, only, opened
from wideangle_lab.originals.images import Grid, VisualWords, bag_of_words, find_images

SCENES_TRAIN, N_WORDS = 100, 1000
PREFIXES = ("MIT", "CAL", "PAR")
"""Collections that the folders of 15-Scenes are named after, as in MITcoast or PARoffice."""
INTEL = ("buildings", "forest", "glacier", "mountain", "sea", "street")
OTHERS_PER_BUILDING = 7 / 6
"""The paper has about 6K images of buildings and 7K others."""


def caltech101(folder: Path, n_words: int = N_WORDS) -> Arrays:
    """``101_ObjectCategories``, a tar inside a zip; the background class comes first."""
    with opened(folder, "caltech-101.zip") as outer:
        inner = sorted(outer.rglob("101_ObjectCategories.tar.gz"))
        with opened(inner[0].parent if inner else outer, "101_ObjectCategories.tar.gz") as contents:
            # Capitals before small letters: BACKGROUND_Google is class 0.
            place = only(contents, "Faces_easy", "Caltech-101").parent
            return _without_vocabulary(bag_of_words(place, n_words))


def scenes15(folder: Path, n_words: int = N_WORDS) -> Arrays:
    """``scene_categories.zip``; 100 images of each class, drawn at random, are for training."""
    with opened(folder, "scene_categories.zip") as contents:
        place = only(contents, "*bedroom*", "15-Scenes").parent
        classes = {_plain(name): images for name, images in find_images(place).items()}
        classes = dict(sorted(classes.items()))
        train = _some_of_each([len(images) for images in classes.values()], SCENES_TRAIN)
        made = bag_of_words(classes, n_words, train=train)
    return {**_without_vocabulary(made), "lazebnik_train": train}


def building(folder: Path, n_words: int = N_WORDS) -> Arrays:
    """``seg_train`` and ``seg_test`` of the Intel scene images, and the task made of them.

    ``rows`` are all buildings and 7/6 as many others, drawn at random; ``y`` is 1 for buildings;
    ``train`` is 70 % of them.
    """
    classes = {
        name: sorted(file for place in folder.rglob(name) for file in place.glob("*.jpg"))
        for name in INTEL
    }
    if missing := [name for name, images in classes.items() if not images]:
        raise ConversionError(f"{folder} has no images of {', '.join(missing)}.")
    labels = np.repeat(np.arange(len(INTEL)), [len(images) for images in classes.values()])
    generator = np.random.default_rng(0)
    buildings, others = np.flatnonzero(labels == 0), np.flatnonzero(labels != 0)
    n_others = min(round(OTHERS_PER_BUILDING * len(buildings)), len(others))
    rows = np.sort(np.concatenate([buildings, generator.choice(others, n_others, replace=False)]))
    train = np.zeros(len(rows), bool)
    train[generator.permutation(len(rows))[: round(0.7 * len(rows))]] = True
    in_training = np.isin(np.arange(len(labels)), rows[train])
    made = bag_of_words(classes, n_words, train=in_training, grid=Grid(step=6))
    return {
        **_without_vocabulary(made),
        "rows": rows.astype(np.int32),
        "y": (labels[rows] == 0).astype(np.int8),
        "train": train,
    }


def _plain(name: str) -> str:
    """``MITcoast`` is coast, ``CALsuburb`` is suburb."""
    return next((name[len(p) :] for p in PREFIXES if name.startswith(p)), name).lower()


def _some_of_each(sizes: list[int], n_each: int, seed: int = 0) -> np.ndarray:
    generator = np.random.default_rng(seed)
    return np.concatenate([generator.permutation(size) < n_each for size in sizes])


def _without_vocabulary(made: VisualWords) -> Arrays:
    return {name: array for name, array in made.arrays().items() if name != "vocabulary"}
