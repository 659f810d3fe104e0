"""Extended Yale B, cropped: ``yaleB01/yaleB01_P00A+005E-10.pgm``, one folder for each subject."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np

from wideangle_lab.originals.converters import Arrays, ConversionError, opened
from wideangle_lab.originals.images import opencv, read_grey

ARCHIVE, SIDE, PAPER_ANGLE = "CroppedYale.zip", 32, 25.0
NAME = re.compile(r"yaleB(\d\d)_P00A([+-]\d{3})E([+-]\d\d)\.pgm")


def convert(folder: Path, side: int = SIDE) -> Arrays:
    """``X`` (uint8, averaged by area), ``subject``, the light's angles, ``paper_rows``.

    Files marked ``.bad`` by the database and those without a light (``Ambient``) are left out.
    ``paper_rows`` are the lights within 25 degrees of the camera's axis.
    """
    cv2 = opencv()
    with opened(folder, ARCHIVE) as contents:
        files = sorted(file for file in contents.rglob("*.pgm") if NAME.fullmatch(file.name))
        if not files:
            raise ConversionError(f"{folder} has no yaleB??_P00A*.pgm: not the cropped Yale B.")
        small = [
            cv2.resize(read_grey(file), (side, side), interpolation=cv2.INTER_AREA).ravel()
            for file in files
        ]
    facts = [[int(part) for part in NAME.findall(file.name)[0]] for file in files]
    subject, azimuth, elevation = np.array(facts).T.astype(np.int16)
    # Between the camera's axis and a light at that azimuth and elevation.
    cosine = np.cos(np.deg2rad(azimuth.astype(float))) * np.cos(np.deg2rad(elevation.astype(float)))
    angle = np.rad2deg(np.arccos(np.clip(cosine, -1.0, 1.0))).astype(np.float32)
    return {
        "X": np.stack(small),
        "subject": subject,
        "azimuth": azimuth,
        "elevation": elevation,
        "light_angle": angle,
        "paper_rows": np.flatnonzero(angle <= PAPER_ANGLE).astype(np.int32),
    }
