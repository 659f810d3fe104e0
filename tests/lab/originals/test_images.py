import numpy as np
import pytest

from wideangle_lab.originals import images
from wideangle_lab.originals.images import (
    Grid,
    bag_of_words,
    dense_sift,
    find_images,
    read_grey,
    save,
)

cv2 = pytest.importorskip("cv2")
N_WORDS = 12


def texture(kind, generator, side=72):
    """Waves of a fixed slant, or blobs; contrast, phase and noise differ from image to image."""
    y, x = np.mgrid[:side, :side]
    if kind == "waves":
        plain = np.sin((x + 0.5 * y) / 2.5 + generator.uniform(0, 6))
    else:
        plain = np.sin(x / 2.5 + generator.uniform(0, 6)) * np.sin(
            y / 2.5 + generator.uniform(0, 6)
        )
    noisy = 128 + generator.uniform(40, 90) * plain + 6 * generator.standard_normal(plain.shape)
    return np.clip(noisy, 0, 255).astype(np.uint8)


def write_images(folder, n_each=12, seed=0):
    generator = np.random.default_rng(seed)
    for kind in ("waves", "blobs"):
        (folder / kind).mkdir(parents=True, exist_ok=True)
        for i in range(n_each):
            cv2.imwrite(str(folder / kind / f"{i:02}.png"), texture(kind, generator))
    return folder


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_images(tmp_path_factory.mktemp("images"))


@pytest.fixture(scope="module")
def made(folder):
    return bag_of_words(folder, N_WORDS, seed=3)


def test_two_textures_are_told_apart_on_images_not_trained_on(made):
    from sklearn.linear_model import LogisticRegression

    X, y, train = made.counts.toarray(), made.labels, made.train
    assert made.label_names == ("blobs", "waves")
    assert train.sum() == 16
    assert LogisticRegression(max_iter=500).fit(X[train], y[train]).score(X[~train], y[~train]) == 1


@pytest.mark.slow
def test_the_same_seed_gives_the_same_counts_with_more_processes_too(folder, made):
    again = bag_of_words(folder, N_WORDS, seed=3, n_jobs=2)
    assert np.array_equal(again.counts.toarray(), made.counts.toarray())
    assert np.array_equal(again.vocabulary, made.vocabulary)


def test_another_seed_draws_other_training_images(folder, made):
    other = bag_of_words(folder, N_WORDS, seed=4)
    assert not np.array_equal(other.train, made.train)


def test_the_vocabulary_sees_training_images_only(tmp_path, made):
    write_images(tmp_path)
    for file, train in zip(made.files, made.train, strict=True):
        if not train:
            noise = np.random.default_rng(1).integers(0, 255, (72, 72)).astype(np.uint8)
            cv2.imwrite(str(tmp_path / file), noise)
    changed = bag_of_words(tmp_path, N_WORDS, seed=3)
    assert np.array_equal(changed.vocabulary, made.vocabulary)
    assert not np.array_equal(changed.counts.toarray(), made.counts.toarray())
    # And it does see those: with one training image replaced, it is another.
    cv2.imwrite(str(tmp_path / made.files[int(np.flatnonzero(made.train)[0])]), noise)
    assert not np.array_equal(bag_of_words(tmp_path, N_WORDS, seed=3).vocabulary, made.vocabulary)


def test_every_descriptor_counts_for_its_nearest_word(folder, made):
    for row in (5, 20):
        found = dense_sift(read_grey(folder / made.files[row]))
        for length in (1.0, 0.5):  # words of other lengths too: nearest is not most aligned
            words = made.vocabulary * np.linspace(length, 1.0, N_WORDS)[:, None]
            distance = np.linalg.norm(found[:, None] - words[None], axis=2)
            expected = np.bincount(distance.argmin(axis=1), minlength=N_WORDS)
            counted = images._count(folder / made.files[row], Grid(), words)
            assert np.array_equal(counted, expected)
            assert length < 1.0 or np.array_equal(made.counts.toarray()[row], expected)


def test_the_grid_covers_the_image_and_large_images_are_shrunk():
    image = np.random.default_rng(0).integers(0, 255, (64, 96)).astype(np.uint8)
    assert dense_sift(image).shape == (7 * 11, 128)
    assert dense_sift(image, Grid(step=16)).shape == (4 * 6, 128)
    large = cv2.resize(image, (960, 640))
    assert dense_sift(large).shape == (len(range(8, 171 - 7, 8)) * 31, 128)


def test_small_images_have_one_descriptor():
    assert dense_sift(np.random.default_rng(0).integers(0, 255, (5, 9)).astype(np.uint8)).shape == (
        1,
        128,
    )


def test_a_descriptor_depends_on_its_patch_and_on_nothing_far_away():
    image = np.random.default_rng(0).integers(0, 255, (96, 96)).astype(np.uint8)
    one = Grid(step=1000, patch=16)  # one descriptor, in the corner: its patch is [0, 16)
    base = dense_sift(image, one)
    far, near = image.copy(), image.copy()
    far[25:] = far[:, 25:] = 0
    near[12:16, 4:12] = 0
    assert np.abs(dense_sift(far, one) - base).max() <= 2  # rounding of the normalisation
    assert np.abs(dense_sift(near, one) - base).max() > 20


def test_patches_without_contrast_are_zero():
    # Grey values that differ by one only: SIFT itself would blow them up to full length.
    image = np.random.default_rng(1).integers(90, 92, (64, 64)).astype(np.uint8)
    image[:, 40:] = np.random.default_rng(0).integers(0, 255, (64, 24))
    found = dense_sift(image).reshape(7, 7, 128)
    assert np.all(found[:, 0] == 0)
    assert np.all(found[:, 6].any(axis=1))


def test_the_file_has_the_layout_of_the_canonical_ones(tmp_path, made):
    save(made, tmp_path / "out.npz")
    with np.load(tmp_path / "out.npz", allow_pickle=False) as z:
        assert z["shape"].tolist() == [24, N_WORDS]
        assert (z["data"].dtype, z["indices"].dtype) == (np.uint16, np.int32)
        assert z["labels"].dtype == np.int16
        assert z["files"][0] == "blobs/00.png"
        assert z["vocabulary_train"].sum() == 16
    assert [path.name for path in tmp_path.iterdir()] == ["out.npz"]


def test_training_images_can_be_named(folder):
    train = np.arange(24) % 2 == 0
    made = bag_of_words(folder, 4, train=train)
    assert np.array_equal(made.train, train)
    with pytest.raises(ValueError, match="24 images"):
        bag_of_words(folder, 4, train=train[:5])
    with pytest.raises(ValueError, match="no image"):
        bag_of_words(folder, 4, train=~train & train)


def test_wrong_folders_and_files_are_named(tmp_path):
    with pytest.raises(FileNotFoundError, match="not a folder"):
        bag_of_words(tmp_path / "absent")
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "notes.txt").write_text("x")
    with pytest.raises(ValueError, match="one folder for each class"):
        find_images(tmp_path)
    (tmp_path / "a" / "x.JPG").write_bytes(b"not an image")
    with pytest.raises(ValueError, match=r"x\.JPG cannot be read"):
        bag_of_words(tmp_path, 2)
    (tmp_path / "a" / "x.JPG").write_bytes(b"")
    with pytest.raises(ValueError, match="cannot be read"):
        bag_of_words(tmp_path, 2)


def test_more_words_than_descriptors_are_refused(tmp_path):
    (tmp_path / "a").mkdir()
    cv2.imwrite(str(tmp_path / "a" / "x.png"), np.eye(16, dtype=np.uint8) * 200)
    with pytest.raises(ValueError, match="n_words=50: the training images have 1 desc"):
        bag_of_words(tmp_path, 50)


def test_without_opencv_the_extra_is_named(folder, monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "cv2", None)
    with pytest.raises(ImportError, match=r'pip install "\.\[images\]"'):
        bag_of_words(folder, 4)
