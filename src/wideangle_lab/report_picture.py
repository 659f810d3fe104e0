"""The picture of the README: a screenshot of a report.

With ``tumours.csv`` of the quick start::

    wideangle train moe tumours.csv --target diagnosis -o run
    wideangle report run
    python -m wideangle_lab.report_picture run/report.html docs/images/report.png

Needs a Chromium and the package playwright of the extra ``dev``.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

WIDTH, HEIGHT = 1200, 860


def photograph(page: Path, output: Path) -> None:
    """The top of the page, as a PNG."""
    from playwright.sync_api import sync_playwright

    names = ("chromium", "chromium-browser", "google-chrome")
    browser = next(filter(None, map(shutil.which, names)), None)
    with sync_playwright() as tools:
        # The sandbox of Chromium does not start for root, as in most containers.
        program = tools.chromium.launch(executable_path=browser, args=["--no-sandbox"])
        shown = program.new_page(viewport={"width": WIDTH, "height": HEIGHT})
        shown.goto(page.resolve().as_uri())
        shown.wait_for_selector("html[data-ready]")
        shown.screenshot(path=output)
        program.close()


if __name__ == "__main__":
    photograph(*map(Path, sys.argv[1:]))
