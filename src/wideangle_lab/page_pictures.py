"""Pictures of the tutorials, drawn by the code on their pages.

``python -m wideangle_lab.page_pictures docs/tutorial-clusters.md`` runs the Python blocks of the
page in a new folder, and copies the pictures that they save to ``docs/images/tutorial-clusters``.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
import tempfile
from pathlib import Path

BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def draw(page: Path) -> list[Path]:
    """Run the page and copy its pictures, which its links must name."""
    text = page.read_text(encoding="utf-8")
    code = "\n".join(BLOCK.findall(text))
    folder = page.resolve().parent / "images" / page.stem
    folder.mkdir(parents=True, exist_ok=True)
    home = Path.cwd()
    with tempfile.TemporaryDirectory() as place:
        os.chdir(place)
        try:
            exec(compile(code, str(page), "exec"), {"__name__": page.stem})
            made = sorted(Path().glob("*.png"))
            unused = [one.name for one in made if f"images/{page.stem}/{one.name}" not in text]
            if unused:
                raise ValueError(f"{page} has no link to {', '.join(unused)}.")
            return [Path(shutil.copy(one, folder / one.name)) for one in made]
        finally:
            os.chdir(home)


if __name__ == "__main__":
    for name in sys.argv[1:]:
        for picture in draw(Path(name)):
            print(picture)
