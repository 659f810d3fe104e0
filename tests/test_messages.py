import re
import tomllib
import types
import warnings
from pathlib import Path

import pytest

from wideangle.checks import EXTRAS, not_installed, warn

ROOT = Path(__file__).parents[1]
DISTRIBUTIONS = {"cv2": "opencv-python-headless"}


def test_a_warning_points_at_the_line_that_led_to_it():
    # A function of the library that is called through scikit-learn, as a pipeline's step is.
    inner = types.FunctionType(deep.__code__, {"__name__": "wideangle.somewhere", "warn": warn})
    outer = types.FunctionType(
        through.__code__, {"__name__": "sklearn.pipeline", "__builtins__": __builtins__}
    )
    with pytest.warns(RuntimeWarning, match="look here") as caught:
        outer(inner)
    assert caught[0].filename == __file__
    assert "outer(inner)" in Path(__file__).read_text().splitlines()[caught[0].lineno - 1]


def deep():
    warn("look here", RuntimeWarning)


def through(function):
    function()


def test_a_warning_without_a_caller_is_given_all_the_same():
    code = compile("warn('from nowhere')", "<program>", "exec")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        exec(code, {"__name__": "wideangle.__main__", "warn": warn})
    assert [str(one.message) for one in caught] == ["from nowhere"]


def test_every_extra_that_is_named_brings_the_package():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = {
        extra: {re.split(r"[><=\[]", one)[0] for one in wanted}
        for extra, wanted in project["optional-dependencies"].items()
    }
    wrong = [
        (package, extra)
        for package, extra in EXTRAS.items()
        if DISTRIBUTIONS.get(package, package) not in extras[extra]
    ]
    assert not wrong
    assert '".[report]"' in not_installed("plotly")


def test_nothing_tells_to_install_the_name_from_an_index():
    pages = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("src/**/*.py")]
    wrong = [p.name for p in pages if re.search(r"install\s+[\"']?wideangle", p.read_text("utf-8"))]
    assert wrong == []
