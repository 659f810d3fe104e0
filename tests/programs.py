"""Where tests keep compiled programs; JAX must not be imported before it is told."""

import os
import tempfile
from pathlib import Path


def programs_of_this_user() -> Path:
    """Where compiled programs are kept; they are code, so nobody else may write to the folder."""
    place = Path(tempfile.gettempdir()) / f"wideangle-test-programs-{os.getuid()}"
    place.mkdir(mode=0o700, exist_ok=True)
    about = place.lstat()
    if about.st_uid == os.getuid() and place.is_dir() and not about.st_mode & 0o022:
        return place
    return Path(__file__).parents[1] / "build" / "test-programs"
