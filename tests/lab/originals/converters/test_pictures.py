"""Caltech-101, 15-Scenes, building and Yale from a few small images, packed as published."""

import io
import tarfile
import zipfile

import numpy as np
import pytest

from wideangle_lab.originals.converters import ConversionError, pictures, yale

cv2 = pytest.importorskip("cv2")


def picture(seed, suffix=".jpg", shape=(40, 48)):
    image = np.random.default_rng(seed).integers(0, 255, shape).astype(np.uint8)
    return cv2.imencode(suffix, image)[1].tobytes()


def test_caltech_is_a_tar_within_a_zip(tmp_path):
    inner = io.BytesIO()
    with tarfile.open(fileobj=inner, mode="w:gz") as tar:
        for seed in range(9):
            name = ("Faces_easy", "BACKGROUND_Google", "accordion")[seed % 3]
            content = picture(seed)
            info = tarfile.TarInfo(f"101_ObjectCategories/{name}/image_{seed:04}.jpg")
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
        stray = tarfile.TarInfo("101_ObjectCategories/BACKGROUND_Google/tmp")
        tar.addfile(stray)
    with zipfile.ZipFile(tmp_path / "caltech-101.zip", "w") as made:
        made.writestr("caltech-101/101_ObjectCategories.tar.gz", inner.getvalue())
        made.writestr("__MACOSX/caltech-101/._x", b"junk")
    arrays = pictures.caltech101(tmp_path, n_words=5)
    assert arrays["label_names"].tolist() == ["BACKGROUND_Google", "Faces_easy", "accordion"]
    assert arrays["labels"].tolist() == [0, 0, 0, 1, 1, 1, 2, 2, 2]
    assert arrays["shape"].tolist() == [9, 5]
    assert [path.name for path in tmp_path.iterdir()] == ["caltech-101.zip"]


def test_scenes_have_plain_names_and_a_hundred_training_images(tmp_path, monkeypatch):
    monkeypatch.setattr(pictures, "SCENES_TRAIN", 2)
    with zipfile.ZipFile(tmp_path / "scene_categories.zip", "w") as made:
        for seed in range(9):
            name = ("bedroom", "MITcoast", "CALsuburb")[seed % 3]
            made.writestr(f"scene_categories/{name}/image_{seed:04}.jpg", picture(seed))
    arrays = pictures.scenes15(tmp_path, n_words=5)
    assert arrays["label_names"].tolist() == ["bedroom", "coast", "suburb"]
    train = arrays["lazebnik_train"]
    assert np.bincount(arrays["labels"][train]).tolist() == [2, 2, 2]
    assert np.array_equal(train, arrays["vocabulary_train"])


def test_building_is_a_task_of_buildings_against_others(tmp_path):
    for seed in range(48):
        name = pictures.INTEL[seed % 6]
        part = ("seg_train/seg_train", "seg_test/seg_test")[seed % 4 == 0]
        place = tmp_path / part / name
        place.mkdir(parents=True, exist_ok=True)
        (place / f"{seed}.jpg").write_bytes(picture(seed, shape=(30, 30)))
    arrays = pictures.building(tmp_path, n_words=5)
    rows, y, train = arrays["rows"], arrays["y"], arrays["train"]
    assert (y == 1).sum() == 8
    assert (y == 0).sum() == round(8 * 7 / 6)
    assert np.array_equal(arrays["labels"][rows] == 0, y == 1)
    assert train.sum() == round(0.7 * len(rows))
    assert set(np.flatnonzero(arrays["vocabulary_train"])) == set(rows[train])
    (tmp_path / "seg_train/seg_train/sea").rename(tmp_path / "seg_train/seg_train/lake")
    (tmp_path / "seg_test/seg_test/sea").rename(tmp_path / "seg_test/seg_test/lake")
    with pytest.raises(ConversionError, match="no images of sea"):
        pictures.building(tmp_path, n_words=5)


def test_yale_reads_subject_and_light_from_the_names(tmp_path):
    names = {
        "yaleB02/yaleB02_P00A+000E+00.pgm": 0.0,
        "yaleB02/yaleB02_P00A+020E-40.pgm": 43.96,
        "yaleB01/yaleB01_P00A-005E+10.pgm": 11.17,
        "yaleB01/yaleB01_P00_Ambient.pgm": None,
        "yaleB01/yaleB01_P00A+010E+00.pgm.bad": None,
    }
    image = np.repeat(np.repeat(np.arange(4, dtype=np.uint8).reshape(2, 2) * 50, 48, 0), 42, 1)
    with zipfile.ZipFile(tmp_path / "CroppedYale.zip", "w") as made:
        for name in names:
            made.writestr(f"CroppedYale/{name}", cv2.imencode(".pgm", image)[1].tobytes())
    arrays = yale.convert(tmp_path, side=2)
    assert arrays["X"].tolist() == [[0, 50, 100, 150]] * 3
    assert arrays["subject"].tolist() == [1, 2, 2]
    assert arrays["azimuth"].tolist() == [-5, 0, 20]
    assert arrays["elevation"].tolist() == [10, 0, -40]
    assert arrays["light_angle"] == pytest.approx([11.17, 0.0, 43.96], abs=0.01)
    assert arrays["paper_rows"].tolist() == [0, 1]


@pytest.mark.parametrize(
    "convert", [pictures.caltech101, pictures.scenes15, pictures.building, yale.convert]
)
def test_an_empty_folder_is_refused(tmp_path, convert):
    with pytest.raises(ConversionError):
        convert(tmp_path)
