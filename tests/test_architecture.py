"""Who may import whom: the picture of the package, as a test."""

import ast
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

from picture import PACKAGE, draw, drawn_on, graph, imported, reduced

FOUNDATION = (
    "types checks settings storage sphere priors posterior diagnostics convergence "
    "stacking arviz_adapter infer streaming sharding base presentation machine_code progress"
)
MATHS = f"{FOUNDATION} datasets latent_features mixture_of_experts spherical_mixture"
LAYERS = {
    "types": "",
    "checks": "",
    # A bar on the terminal.
    "progress": "",
    # Numba, where it is used.
    "machine_code": "sharding",
    # Devices, processes and threads: for samplers and predictions alike.
    "sharding": "",
    # Joblib on Dask: knows no model.
    "cluster": "",
    "compiled": "",
    # The same model with and without repulsion: knows settings, and no model.
    "comparison": "settings",
    "settings": "",
    # What a family gives to those who show it, and where families are listed.
    "presentation": "types checks diagnostics convergence posterior frames",
    "base": "types checks settings sphere presentation",
    "registry": "",
    "storage": "types checks settings",
    "sphere": "types checks",
    "priors": "types checks sphere",
    # Strangers to priors and models: that is what makes the samplers work for any other model.
    "diagnostics": "types checks",
    "convergence": "types checks diagnostics",
    "stacking": "types checks",
    "arviz_adapter": "types checks",
    "posterior": "types checks arviz_adapter diagnostics convergence",
    "infer": "types checks sphere posterior diagnostics sharding progress",
    "datasets": "",
    # Rows on disk: knows arrays and how minibatches are asked for, and no model.
    "streaming": "types checks infer sharding progress",
    # A family never imports a family.
    "latent_features": FOUNDATION,
    "mixture_of_experts": FOUNDATION,
    "spherical_mixture": FOUNDATION,
    # A user's table and the folder a fit leaves behind; pictures; and the page made of both.
    "frames": "types checks storage",
    # None of them knows a family but by the registry; the demo is a user of both.
    "runs": f"{FOUNDATION} registry frames",
    "plots": FOUNDATION,
    "report": f"{FOUNDATION} frames runs plots",
    "demo": f"{MATHS} frames runs plots report",
    "cli": f"{FOUNDATION} compiled registry frames runs report demo __init__",
    "__main__": "cli",
    # Public names: re-exports what is below the command line.
    "__init__": f"{MATHS} compiled comparison frames",
}


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
            for line, name in imported(ast.parse(path.read_text(encoding="utf-8")), set(LAYERS))
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


MOVES = set("state assignments births columns directions hyper pool sweep weights".split())


def test_the_moves_of_features_know_neither_search_nor_files_nor_estimator():
    for name in MOVES:
        tree = ast.parse((PACKAGE / "latent_features" / f"{name}.py").read_text(encoding="utf-8"))
        of_family = [
            node
            for node in ast.walk(tree)
            if isinstance(node, ast.ImportFrom)
            and (node.module or "").startswith("wideangle.latent_features")
        ]
        for node in of_family:
            _, _, *inside = (node.module or "").split(".")
            assert set(inside or [one.name for one in node.names]) <= MOVES, (name, node.lineno)


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
    assert named == ["cli/__init__.py"]


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


def test_the_page_shows_the_imports_as_they_are():
    assert drawn_on() == draw(graph()), "python tests/picture.py draws it again"


def test_an_import_that_others_imply_is_not_drawn():
    below = {"top": {"middle", "bottom"}, "middle": {"bottom"}, "bottom": set(), "apart": set()}
    assert reduced(below) == below | {"top": {"middle"}}
    lines = draw(below).splitlines()
    assert lines == ["top    -> middle", "", "middle -> bottom", "", "apart", "bottom"]
