"""Python blocks of the README and the pages run, commands exist, links lead somewhere."""

import inspect
import re
from functools import cache
from pathlib import Path

import pytest

import wideangle
import wideangle.datasets
import wideangle.infer
import wideangle.plots
import wideangle.storage
from pages import PAGES, ROOT, blocks, run_blocks


def run_page(path):
    """Run the Python blocks of a page; a text block after one is its output.

    Tutorials show the fits of one machine: on others numbers differ, and words that follow from
    them, but not how many lines there are.
    """
    for shown, line, printed in run_blocks(path):
        same = printed == shown
        if path.name.startswith("tutorial-"):
            same = len(printed.splitlines()) == len(shown.splitlines())
        assert same, f"{path.name}:{line} shows another output than its block prints:\n{printed}"


LONG = {
    "README.md",
    "how-to-deploy.md",
    "how-to-rows-on-disk.md",
    "how-to-strength.md",
    "latent-features.md",
    "mixture-of-experts.md",
    "plots.md",
    "quick-start.md",
    "regression.md",
    "tutorial-classification.md",
    "tutorial-clusters.md",
    "tutorial-features.md",
    "tutorial-regression.md",
    "your-own-model.md",
}
WITH_PYTHON = [page for page in PAGES if "```python" in page.read_text(encoding="utf-8")]


@pytest.mark.parametrize(
    "path",
    [
        pytest.param(page, id=page.name, marks=pytest.mark.slow if page.name in LONG else ())
        for page in WITH_PYTHON
    ],
)
def test_python_blocks_run(path, tmp_path, monkeypatch, compile_quickly):
    monkeypatch.chdir(tmp_path)
    run_page(path)


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_links_within_the_project_lead_somewhere(path):
    targets = re.findall(r"\]\((?!https?:|#)([^)#]+)", path.read_text(encoding="utf-8"))
    assert [target for target in targets if not (path.parent / target).exists()] == []


def anchors_of(path):
    """Names that GitHub and the site give to the headings of a page."""
    headings = re.findall(r"^#+ (.*)$", path.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_links_to_headings_lead_to_one(path):
    links = re.findall(r"\]\((?!https?:)([^)#]*)#([^)]+)\)", path.read_text(encoding="utf-8"))
    dead = [f"{target}#{name}" for target, name in links
            if name not in anchors_of(path.parent / target if target else path)]  # fmt: skip
    assert dead == []


def test_every_page_is_reachable_from_the_readme():
    seen, queue = set(), [ROOT / "README.md"]
    while queue:
        page = queue.pop()
        if page not in seen:
            seen.add(page)
            links = re.findall(r"\]\(([^)#]+\.md)\)", page.read_text(encoding="utf-8"))
            queue += [
                (page.parent / link).resolve() for link in links if not link.startswith("http")
            ]
    assert set(PAGES) <= seen


def test_every_cite_key_has_its_reference():
    known = set(re.findall(r"^- \*\*(\w+)\*\*", (ROOT / "docs/references.md").read_text(), re.M))
    used = {
        key.strip()
        for path in (ROOT / "src").rglob("*.py")
        for keys in re.findall(r":cite:`([^`]+)`", path.read_text(encoding="utf-8"))
        for key in keys.split(",")
    }
    assert used - known == set()


def test_a_wrong_block_is_found(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("# A page\n\n```python\nx = 1\n```\n\n```python\nassert x == 2\n```\n")
    with pytest.raises(AssertionError):
        run_page(page)
    page.write_text("```python\nprint(1)\n```\n\n```text\n2\n```\n")
    with pytest.raises(AssertionError, match="another output"):
        run_page(page)


@pytest.mark.parametrize("path", [*PAGES, ROOT / "CONTRIBUTING.md"], ids=lambda p: p.name)
def test_every_block_is_one_that_is_checked(path):
    text = path.read_text(encoding="utf-8")
    assert text.count("```") == 2 * len(list(blocks(text)))
    assert {language for language, *_ in blocks(text)} <= {"python", "text", "sh", "console"}


def test_every_page_has_its_place_in_the_site():
    site = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    assert [page.name for page in PAGES[1:] if f": {page.name}\n" not in site] == []


def test_every_public_name_is_on_a_page_of_the_api():
    pages = (ROOT / "docs").glob("api-*.md")
    text = "\n".join(page.read_text(encoding="utf-8") for page in pages)
    names = set(wideangle.__all__) - {"__version__"}
    assert {name for name in names if text.count(f"::: wideangle.{name}\n") != 1} == set()
    # A function with the name of its file is hidden by it and needs a line of its own.
    for module in MODULES[1:]:
        hidden = {n for n in module.__all__ if (Path(module.__file__).parent / f"{n}.py").exists()}
        wanted = {f"::: {module.__name__}.{name}.{name}\n" for name in hidden}
        assert f"::: {module.__name__}\n" in text
        assert {line for line in wanted if line not in text} == set()


@pytest.mark.parametrize(
    "name",
    [
        "comparison.Comparison",
        "diagnostics.Summary",
        "mixture_of_experts.estimator.Uncertainty",
        "posterior.Draws",
        "sharding.LostProcessError",
        "streaming.NpyRows",
        "streaming.ParquetRows",
    ],
)
def test_what_users_get_back_is_on_a_page_of_the_api(name):
    pages = (ROOT / "docs").glob("api-*.md")
    assert any(f"::: wideangle.{name}\n" in page.read_text("utf-8") for page in pages)


MODELS = [
    wideangle.LatentFeatureModel,
    wideangle.MixtureOfExpertsClassifier,
    wideangle.MixtureOfExpertsRegressor,
    wideangle.SphericalMixture,
    wideangle.TableEncoder,
]


def fitted_attributes(model):
    """Names that a fit sets, in the class and those of ours that it is made from."""
    ours = [cls for cls in model.__mro__ if cls.__module__.startswith("wideangle")]
    sources = "".join(inspect.getsource(cls) for cls in ours)
    names = re.findall(r"self\.([a-z]\w*_)\b(?=[^=\n()]*=[^=])", sources)
    return {*names, *(n for n, _ in inspect.getmembers(model, inspect.isdatadescriptor))}


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.__name__)
def test_fitted_attributes_are_described(model):
    described = re.findall(r"^(\w[\w, ]*_)(?: : .*)?$", inspect.getdoc(model), re.M)
    known = {name for line in described for name in line.split(", ")}
    found = {name for name in fitted_attributes(model) if re.fullmatch(r"[a-z]\w*[a-z]_", name)}
    assert len(found) >= 2
    assert found - known == set()


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.__name__)
def test_types_of_results_are_on_a_page_of_the_api(model):
    methods = [m for n, m in inspect.getmembers(model, callable) if not n.startswith("_")]
    returned = " ".join(str(inspect.signature(m).return_annotation) for m in methods)
    described = " ".join(re.findall(r"^\w[\w, ]*_ : (.*)$", inspect.getdoc(model), re.M))
    words = set(re.findall(r"\b[A-Z]\w+", f"{returned} {described}"))
    ours = words - {"Any", "DataFrame", "Iterator", "None", "Self"}
    pages = "".join(page.read_text("utf-8") for page in (ROOT / "docs").glob("api-*.md"))
    assert ours
    assert {
        t for t in ours if not re.search(rf"^::: wideangle\.([\w.]+\.)?{t}$", pages, re.M)
    } == set()


MODULES = [
    wideangle,
    wideangle.plots,
    wideangle.datasets,
    wideangle.infer,
    wideangle.storage,
]


def undescribed(name, value):
    """What a public name does not say: that it is anything, or parameters of a function."""
    if not callable(value) or getattr(value, "__module__", "").split(".")[0] != "wideangle":
        return []
    text = value.__doc__ or ""
    takes = [] if isinstance(value, type) else inspect.signature(value).parameters
    silent = [p for p in takes if not re.search(rf"(?<!\w){p}(?!\w)", text)]
    return [f"{name}({p})" for p in silent] if text else [name]


@pytest.mark.parametrize("module", MODULES, ids=lambda m: m.__name__)
def test_public_names_say_what_they_are_and_take(module):
    assert [u for name in module.__all__ for u in undescribed(name, getattr(module, name))] == []


def test_a_silent_name_is_found():
    def silent(key): ...

    def half(key, steps):
        """Only ``steps``; keys are not it."""

    for function in (silent, half):
        function.__module__ = "wideangle.somewhere"
    assert undescribed("silent", silent) == ["silent"]
    assert undescribed("half", half) == ["half(key)"]


def test_every_warning_has_its_section():
    page = " ".join((ROOT / "docs/diagnostics.md").read_text(encoding="utf-8").split())
    sources = [p.read_text(encoding="utf-8") for p in (ROOT / "src/wideangle").rglob("*.py")]
    classes = {c for text in sources for c in re.findall(r"^class (\w+Warning)\(", text, re.M)}
    assert classes
    assert {c for c in classes if f"`{c}`" not in page} == set()


@pytest.mark.parametrize(
    "words",
    [
        "Predictions rest on too few independent draws",
        "Predictions differ between chains",
        "of the draws a trajectory diverged",
        "are too short to tell whether predictions agree",
        "the run continues without a new checkpoint",
        "In cross-validation the most probable weights predict worse than",
        "replaced missing entries by the median in columns without any at the fit",
        "interrupted",
    ],
)
def test_sections_are_headed_by_the_words_of_the_warning(words):
    headings = re.findall(r"^### (.*)$", (ROOT / "docs/diagnostics.md").read_text("utf-8"), re.M)
    assert any(words in heading for heading in headings)
    assert any(words in source for source in sources_with_strings_joined())


@cache
def sources_with_strings_joined():
    """Strings that Python joins are one string here, too."""
    joined = re.compile(r'"\s*\n\s*f?"')
    files = (ROOT / "src/wideangle").rglob("*.py")
    return [joined.sub("", path.read_text("utf-8")) for path in files]
