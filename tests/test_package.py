"""What importing the package costs and changes; each probe is a fresh process."""

import json
import subprocess
import sys
import tomllib
from importlib.metadata import requires, version
from pathlib import Path

import pytest

import wideangle

EXTRAS = ["arviz", "blackjax", "dask", "distributed", "jinja2", "matplotlib", "pandas", "xarray"]
OPTIONAL_LAYERS = ["report", "bench", "demo"]  # may ask for an extra as soon as they are imported
IMPORT_SECONDS = 2.0

COST = """
import json, sys, time
start = time.process_time()
import wideangle
seconds = time.process_time() - start
bridge = sys.modules.get("jax._src.xla_bridge")
print(json.dumps({
    "seconds": seconds,
    "modules": sorted(sys.modules),
    "backend": bridge is not None and bridge.backends_are_initialized(),
}))
"""

SETTINGS = """
import json, jax
NAMES = ["jax_enable_x64", "jax_platforms", "jax_default_prng_impl", "jax_debug_nans"]
before = {name: getattr(jax.config, name) for name in NAMES}
import wideangle
after = {name: getattr(jax.config, name) for name in NAMES}
print(json.dumps([before, after]))
"""

WITHOUT_EXTRAS = """
import importlib, json, pkgutil, sys

extras, optional, core = json.loads(sys.argv[1])

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in extras:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Missing())
for name in core:
    importlib.import_module(name)

import wideangle
for module in pkgutil.walk_packages(wideangle.__path__, "wideangle."):
    if module.name.split(".")[1] not in {*optional, "__main__"}:
        importlib.import_module(module.name)
print(json.dumps(sorted(set(extras) & set(sys.modules))))
"""


def probe(script: str, *arguments: str, cwd: Path):
    done = subprocess.run(
        [sys.executable, "-c", script, *arguments],
        cwd=cwd,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def costs(tmp_path_factory):
    place = tmp_path_factory.mktemp("probe")
    return [probe(COST, cwd=place) for _ in range(2)]


def test_import_is_quick(costs):
    # Time of the processor, the better of two: the first may compile bytecode.
    assert min(cost["seconds"] for cost in costs) < IMPORT_SECONDS


def test_import_brings_no_extra(costs):
    assert not set(EXTRAS) & set(costs[0]["modules"])


def test_import_starts_no_jax_backend(costs):
    assert not costs[0]["backend"]


def test_import_leaves_jax_settings_alone(tmp_path):
    before, after = probe(SETTINGS, cwd=tmp_path)
    assert before == after


def test_core_works_without_extras(tmp_path):
    modules = {"scikit-learn": "sklearn"}
    core = [
        modules.get(name, name)
        for name in (
            requirement.partition(">")[0]
            for requirement in requires("wideangle") or []
            if "extra ==" not in requirement
        )
    ]
    assert {"jax", "numpyro", "sklearn"} <= set(core)
    found = probe(WITHOUT_EXTRAS, json.dumps([EXTRAS, OPTIONAL_LAYERS, core]), cwd=tmp_path)
    assert not found


def test_version_is_that_of_the_project_file():
    project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())["project"]
    assert wideangle.__version__ == version("wideangle") == project["version"]


def test_every_public_name_is_listed_before_it_is_loaded(tmp_path):
    listed = probe("import json, wideangle; print(json.dumps(dir(wideangle)))", cwd=tmp_path)
    assert set(wideangle.__all__) <= set(listed)


def test_package_says_that_it_is_typed():
    assert (Path(wideangle.__file__).parent / "py.typed").exists()
