"""The piano stand-in: a recording to magnitudes of its short-time Fourier transform."""

from __future__ import annotations

from math import gcd
from pathlib import Path

import numpy as np

from wideangle_lab.originals.converters import Arrays, ConversionError

FILE = "442789__lena-orsa__happy-music-pistachio-ice-cream-ragtime.hq.ogg"
RATE, WINDOW, HOP, N_ROWS = 16_000, 320, 112, 10_000
"""20 ms windows, 7 ms apart, at 16 kHz: 161 frequencies, 50 Hz apart."""


class NoSoundFileError(ImportError, ValueError):
    """The audio reader is missing; also a ValueError, which the command line shows."""


def convert(folder: Path, n_rows: int = N_ROWS) -> Arrays:
    """``X``: magnitudes of the DFT of Hann windows, divided by their length."""
    sound, rate = _read(folder / FILE)
    return {"X": spectrum(sound, rate, n_rows)}


def spectrum(sound: np.ndarray, rate: int, n_rows: int = N_ROWS) -> np.ndarray:
    """Magnitudes |sum_t w_t x_t exp(-2 pi i f t / 320)| / 320 of windows, (n_rows, 161)."""
    from scipy.signal import resample_poly

    common = gcd(RATE, rate)
    sound = resample_poly(sound, RATE // common, rate // common)
    if len(sound) < WINDOW + HOP * (n_rows - 1):
        raise ConversionError(f"the recording is too short for {n_rows:,} windows.")
    windows = np.lib.stride_tricks.sliding_window_view(sound, WINDOW)[::HOP][:n_rows]
    # The symmetric window, which is zero at both ends.
    return (np.abs(np.fft.rfft(windows * np.hanning(WINDOW))) / WINDOW).astype(np.float32)


def _read(path: Path) -> tuple[np.ndarray, int]:
    """The mean of the channels, and the sampling rate."""
    try:
        import soundfile
    except (ImportError, OSError) as error:  # OSError: its shared library is missing
        raise NoSoundFileError(
            f'recordings cannot be read ({error}); try: pip install ".[audio]"'
        ) from error
    if not path.is_file():
        raise ConversionError(f"{path} is missing.")
    try:
        sound, rate = soundfile.read(path, always_2d=True)
    except soundfile.LibsndfileError as error:
        raise ConversionError(f"{path.name} is not a recording: {error}.") from error
    return sound.mean(axis=1), rate
