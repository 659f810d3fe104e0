"""The installed package is the library alone; a checkout and the sdist have the lab too."""

import re
import sys
import tomllib
from pathlib import Path

import pytest

import wideangle
import wideangle_lab

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def project():
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def targets(project):
    return project["tool"]["hatch"]["build"]["targets"]


def test_the_wheel_has_the_library_and_nothing_else(targets):
    assert targets["wheel"] == {"packages": ["src/wideangle"]}


def test_the_sdist_has_both_and_what_their_tests_read(targets):
    included = targets["sdist"]["include"]
    assert "/src" in included
    assert all((ROOT / path.lstrip("/")).exists() for path in included)
    # Pages of the site and links between pages are checked by tests that the sdist has, too.
    assert {"/README.md", "/CONTRIBUTING.md", "/CHANGELOG.md", "/docs", "/tests"} <= set(included)
    assert {"/.github", "/results"} <= set(included)  # the workflow, and records that pages show


def test_links_of_the_readme_lead_somewhere_from_a_package_index(project):
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    before = re.findall(r"\]\((?!https?:|#)([^)]+)\)", readme)
    for one in project["tool"]["hatch"]["metadata"]["hooks"]["fancy-pypi-readme"]["substitutions"]:
        readme = re.sub(one["pattern"], one["replacement"], readme)
    assert re.findall(r"\]\((?!https?:|#)([^)]+)\)", readme) == []
    assert [link for link in before if f"/main/{link})" not in readme] == []
    assert re.search(r"!\[[^\]]+\]\(\S+/raw/main/\S+\.png\)", readme)


def test_every_python_that_is_named_is_tested(project):
    named = [
        one.rpartition(" ")[2]
        for one in project["project"]["classifiers"]
        if one.startswith("Programming Language :: Python :: 3.")
    ]
    workflow = (ROOT / ".github/workflows/ci.yml").read_text(encoding="utf-8")
    (tested,) = re.findall(r"python: \[(.*)\]", workflow)
    assert named == [one.strip(' "') for one in tested.split(",")]


def test_one_version_is_named_everywhere(project):
    version = project["project"]["version"]
    assert f"\nversion: {version}\n" in (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert f"## [{version}] - 20" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


def test_a_checkout_has_both_side_by_side():
    # What an editable install puts on the path is the folder above the packages of the wheel.
    places = [Path(module.__file__).parents[1] for module in (wideangle, wideangle_lab)]
    assert places[0] == places[1]


class WithoutLab:
    """Finds no lab, as where it is not installed."""

    def find_spec(self, name, path=None, target=None):
        if name == "wideangle_lab":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


@pytest.mark.parametrize(
    "arguments",
    [
        ["bench"],
        ["reproduce", "1"],
        ["datasets", "fetch", "adult9"],
        ["datasets", "images", ".", "-o", "words.npz"],
    ],
)
def test_without_the_lab_its_commands_say_where_to_get_it(
    tmp_path, monkeypatch, command, arguments
):
    for name in [name for name in sys.modules if name.partition(".")[0] == "wideangle_lab"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(sys, "meta_path", [WithoutLab(), *sys.meta_path])
    monkeypatch.chdir(tmp_path)
    code, out, err = command(*arguments)
    assert (code, out) == (2, "")
    assert "in a checkout, run `pip install -e .`" in err
    assert list(tmp_path.iterdir()) == []
