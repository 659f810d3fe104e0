"""Names of code and tests in docs/paper-map.md exist."""

import ast
import re
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
TEXT = (ROOT / "docs" / "paper-map.md").read_text(encoding="utf-8")
CODE = sorted(set(re.findall(r"`(wideangle(?:_lab)?(?:\.\w+)+)`", TEXT)))
TESTS = sorted(set(re.findall(r"`(tests/[\w/]+\.py::\w+)`", TEXT)))
FILES = sorted(set(re.findall(r"`(tests/[\w/]+\.py)`", TEXT)))


def resolve(name):
    """Object of a dotted name: the longest module, then attributes."""
    parts = name.split(".")
    for cut in range(len(parts), 0, -1):
        try:
            found = import_module(".".join(parts[:cut]))
        except ModuleNotFoundError:
            continue
        for attribute in parts[cut:]:
            found = getattr(found, attribute)
        return found
    raise AttributeError(name)


def test_the_map_names_code_and_tests():
    assert len(CODE) > 20
    assert len(TESTS) > 20


@pytest.mark.parametrize("name", CODE)
def test_code_exists(name):
    assert resolve(name) is not None


@pytest.mark.parametrize("name", TESTS)
def test_test_exists(name):
    path, _, function = name.partition("::")
    tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    assert function in {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}


@pytest.mark.parametrize("name", FILES)
def test_file_exists(name):
    assert (ROOT / name).is_file()


def test_a_name_that_is_not_there_is_found():
    with pytest.raises(AttributeError):
        resolve("wideangle.sphere.vmf.nothing")


def test_every_algorithm_and_numbered_equation_has_a_place():
    assert "Algorithm 1" in TEXT
    mentioned = set()
    for first, last in re.findall(r"\((\d+)\)(?: to \((\d+)\))?", TEXT):
        mentioned |= set(range(int(first), int(last or first) + 1))
    for numbers in re.findall(r"Eq\. (\d+(?:, \d+)*)\)", TEXT):
        mentioned |= {int(number) for number in numbers.split(", ")}
    assert set(range(1, 19)) <= mentioned
