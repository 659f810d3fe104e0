import sys

import numpy as np
import pytest

from wideangle_lab import datasets
from wideangle_lab.originals.converters import ConversionError, piano


def tone(frequency, seconds=0.5, rate=44_100):
    return np.sin(2 * np.pi * frequency * np.arange(round(seconds * rate)) / rate)


def test_a_tone_is_found_at_its_frequency_with_the_height_of_the_window():
    X = piano.spectrum(tone(1000.0), 44_100, n_rows=40)
    assert X.shape == (40, 161)
    assert X.dtype == np.float32
    inner = X[5:35]
    assert np.all(inner.argmax(axis=1) == 20)  # 1000 Hz, 50 Hz apart
    # Half of the mean of the window: a sine has two lines, and one is shown.
    assert inner[:, 20] == pytest.approx(np.hanning(320).mean() / 2, rel=1e-2)


def test_a_window_is_the_transform_as_it_is_written():
    sound = np.random.default_rng(0).standard_normal(320 + 112)
    X = piano.spectrum(sound, 16_000, n_rows=2)
    t = np.arange(320)
    for row, start in enumerate((0, 112)):
        for frequency in (0, 7, 160):
            wave = np.exp(-2j * np.pi * frequency * t / 320)
            window = 0.5 - 0.5 * np.cos(2 * np.pi * t / 319)
            expected = abs(np.sum(window * sound[start : start + 320] * wave)) / 320
            assert X[row, frequency] == pytest.approx(expected, rel=1e-4, abs=1e-6)


def test_a_recording_of_two_channels_is_read(tmp_path):
    soundfile = pytest.importorskip("soundfile")
    both = np.stack([tone(500.0), tone(2000.0)], axis=1)
    soundfile.write(tmp_path / piano.FILE, both, 44_100, format="OGG", subtype="VORBIS")
    X = piano.convert(tmp_path, n_rows=40)["X"]
    assert set(np.argsort(X[20])[-2:]) == {10, 40}


def test_what_is_no_recording_is_refused(tmp_path):
    pytest.importorskip("soundfile")
    with pytest.raises(ConversionError, match="is missing"):
        piano.convert(tmp_path)
    (tmp_path / piano.FILE).write_bytes(b"<html>moved</html>" * 50)
    with pytest.raises(ConversionError, match="not a recording"):
        piano.convert(tmp_path)
    with pytest.raises(ConversionError, match="too short for 40 windows"):
        piano.spectrum(tone(500.0, 0.1), 44_100, n_rows=40)


def test_without_the_reader_the_extra_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "soundfile", None)
    with pytest.raises(ImportError, match=r'pip install "\.\[audio\]"'):
        piano.convert(tmp_path)


def test_the_canonical_file_has_the_scale_of_the_formula(real):
    X = datasets.load("piano").X
    assert X.shape == (piano.N_ROWS, piano.WINDOW // 2 + 1)
    # A signal within [-1, 1] gives at most the mean of the window.
    assert 0.0 <= X.min() <= X.max() <= np.hanning(320).mean()
