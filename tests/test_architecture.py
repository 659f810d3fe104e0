"""Who may import whom: the picture of the package, as a test."""

import ast
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "src" / "wideangle"

FOUNDATION = (
    "types checks settings storage sphere priors posterior diagnostics arviz_adapter infer "
    "streaming sharding base"
)
MATHS = f"{FOUNDATION} datasets latent_features mixture_of_experts"
LAYERS = {
    "types": "",
    "checks": "",
    "sharding": "",
    # Joblib on Dask: knows no model.
    "cluster": "",
    "settings": "",
    "base": "types checks settings diagnostics posterior arviz_adapter",
    "storage": "types checks settings",
    "sphere": "types checks",
    "priors": "types checks sphere",
    # Strangers to priors and models: that is what makes the samplers work for any other model.
    "diagnostics": "types checks",
    "arviz_adapter": "types checks",
    "posterior": "types checks arviz_adapter diagnostics",
    "infer": "types checks sphere posterior diagnostics sharding",
    "datasets": "types checks",
    # Rows on disk: knows arrays and how minibatches are asked for, and no model.
    "streaming": "types checks infer",
    # A family never imports a family.
    "latent_features": FOUNDATION,
    "mixture_of_experts": FOUNDATION,
    # A user's table and the folder a fit leaves behind; pictures; and the page made of both.
    "frames": "types checks storage",
    "runs": f"{MATHS} frames",
    "plots": MATHS,
    "report": f"{MATHS} frames runs plots",
    "demo": f"{MATHS} frames runs plots report",
    "cli": f"{MATHS} frames runs plots report demo __init__",
    "__main__": "cli",
    # Public names: re-exports what is below the command line.
    "__init__": MATHS,
}


def imported(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Line and top-level module of each import of the package; ``__init__`` is the package."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.level:
            yield node.lineno, "by a relative path"
            continue
        elif isinstance(node, ast.ImportFrom) and node.module == "wideangle":
            # The name may be a module or a public name, which lives in __init__.
            names = [
                f"wideangle.{alias.name}" if alias.name in LAYERS else "wideangle"
                for alias in node.names
            ]
        elif isinstance(node, ast.ImportFrom):
            names = [node.module or ""]
        else:
            continue
        for name in names:
            root, _, rest = name.partition(".")
            if root == "wideangle":
                yield node.lineno, rest.split(".")[0] or "__init__"


def wrong_imports(package: Path) -> list[str]:
    wrong = []
    for path in sorted(package.rglob("*.py")):
        place = path.relative_to(package)
        here = place.parts[0].removesuffix(".py")
        if here not in LAYERS:
            wrong.append(f"{place} has no line in LAYERS")
            continue
        allowed = {here, *LAYERS[here].split()}
        wrong += [
            f"{place}:{line} imports {name}"
            for line, name in imported(ast.parse(path.read_text(encoding="utf-8")))
            if name not in allowed
        ]
    return wrong


def test_imports_point_down():
    wrong = wrong_imports(PACKAGE)
    assert not wrong, "\n".join(wrong)


def test_layers_have_no_cycle():
    graph = {layer: below.split() for layer, below in LAYERS.items()}
    graph["cli"].remove("__init__")  # for the version only, and cli is not imported from there
    assert set(TopologicalSorter(graph).static_order()) == set(LAYERS)


@pytest.mark.parametrize(
    ("source", "report"),
    [
        ("import wideangle.priors.dpp", "sphere/vmf.py:1 imports priors"),
        ("import numpy, wideangle.infer as infer", "sphere/vmf.py:1 imports infer"),
        ("from wideangle.priors.dpp import Dpp", "sphere/vmf.py:1 imports priors"),
        ("from wideangle import types, priors", "sphere/vmf.py:1 imports priors"),
        ("from wideangle import Components", "sphere/vmf.py:1 imports __init__"),
        ("import wideangle", "sphere/vmf.py:1 imports __init__"),
        ("from ..priors import dpp", "sphere/vmf.py:1 imports by a relative path"),
        ("def f():\n    from wideangle import cli", "sphere/vmf.py:2 imports cli"),
    ],
)
def test_an_import_that_points_up_is_reported(tmp_path, source, report):
    (tmp_path / "sphere").mkdir()
    (tmp_path / "sphere" / "vmf.py").write_text(source)
    assert wrong_imports(tmp_path) == [report]


def lab_imports(package: Path) -> list[str]:
    """Where the library imports the lab."""
    wrong = []
    for path in naming_the_lab(package):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                names = [node.module or ""]
            else:
                continue
            if any(name.partition(".")[0] == "wideangle_lab" for name in names):
                wrong.append(f"{path.relative_to(package)}:{node.lineno} imports the lab")
    return wrong


def naming_the_lab(package: Path) -> list[Path]:
    return [path for path in package.rglob("*.py") if b"wideangle_lab" in path.read_bytes()]


def test_the_library_never_imports_the_lab():
    assert lab_imports(PACKAGE) == []
    # The commands of the lab find it by one function, when they are called.
    named = [path.relative_to(PACKAGE).as_posix() for path in naming_the_lab(PACKAGE)]
    assert named == ["cli/lab.py"]


@pytest.mark.parametrize(
    "source",
    [
        "import wideangle_lab.bench",
        "from wideangle_lab import paper",
        "def f():\n    from wideangle_lab.paper.run import run",
    ],
)
def test_an_import_of_the_lab_is_reported(tmp_path, source):
    (tmp_path / "base.py").write_text(source)
    assert lab_imports(tmp_path) == [f"base.py:{len(source.splitlines())} imports the lab"]


def test_imports_within_a_layer_downward_and_from_elsewhere_are_fine(tmp_path):
    (tmp_path / "priors").mkdir()
    (tmp_path / "priors" / "dpp.py").write_text(
        "import wideanglelike\n"
        "from numpyro import infer\n"
        "from wideangle import sphere\n"
        "from wideangle.priors.factors import moments\n"
        "from wideangle.types import Array\n"
    )
    assert wrong_imports(tmp_path) == []


def test_a_module_without_a_layer_is_reported(tmp_path):
    (tmp_path / "misc.py").write_text("")
    assert wrong_imports(tmp_path) == ["misc.py has no line in LAYERS"]
