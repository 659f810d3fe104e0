"""The site's own code: formulas and names of docstrings, and no load from elsewhere."""

import importlib
import importlib.util
import inspect
import re
from pathlib import Path
from types import SimpleNamespace

import pytest

pytest.importorskip("mkdocs", reason="the extra `docs` is not installed")
pytest.importorskip("latex2mathml", reason="the extra `docs` is not installed")
SITE = Path(__file__).parents[1] / "docs" / "site"


def module(name):
    spec = importlib.util.spec_from_file_location(f"site_{name}", SITE / f"{name}.py")
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    return loaded


hooks = module("hooks")


def rendered(text):
    from markdown import Markdown

    config = SimpleNamespace(markdown_extensions=["fenced_code"])
    return Markdown(extensions=hooks.on_config(config).markdown_extensions).convert(text)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("page.html", '<script async src="https://cdn.example/x.js"></script>'),
        ("page.html", "<script src=//cdn.example/x.js></script>"),
        ("page.html", '<img alt="a" src="http://example.org/a.png">'),
        ("page.html", '<link rel="stylesheet" href="https://fonts.example/css">'),
        ("page.html", "<style>@import 'https://fonts.example/css';</style>"),
        ("deep/style.css", "a { background: url(https://example.org/a.png) }"),
    ],
)
def test_a_load_from_elsewhere_is_refused(tmp_path, name, content):
    page = tmp_path / name
    page.parent.mkdir(exist_ok=True)
    page.write_text(content)
    with pytest.raises(hooks.PluginError, match=r"loads (https?:)?//"):
        hooks.on_post_build(config=SimpleNamespace(site_dir=str(tmp_path)))


def test_links_and_files_of_the_site_are_fine(tmp_path):
    (tmp_path / "page.html").write_text(
        '<a href="https://example.org">x</a><img src="../a.png"><script src="x.js"></script>'
        '<link rel="canonical" href="https://example.org"><link rel="icon" href="a.svg">'
    )
    hooks.on_post_build(config=SimpleNamespace(site_dir=str(tmp_path)))


def test_formulas_become_mathml_and_markdown_leaves_them_alone():
    html = rendered("With :math:`a_i * b_i * c`,\n\n.. math:: \\sum_k\n          x_k^2\n\nend.")
    assert html.count("<math") == 2 and 'display="block"' in html
    assert "<em>" not in html and ":math:" not in html
    assert "<msub><mi>a</mi><mi>i</mi></msub>" in html
    assert "<p>end.</p>" in html


def test_formulas_of_pages_become_mathml_and_prices_do_not():
    html = rendered("With $a_k$:\n\n$$\\sum_k\n a_k$$\n\nCosts $5 or $6; `$HOME`, $ x $ stay.")
    assert html.count("<math") == 2 and 'display="block"' in html
    assert "$5 or $6" in html and "$HOME" in html and "$ x $" in html


def test_a_bar_is_as_long_as_what_is_under_it():
    assert '<mo stretchy="true">&#x000AF;</mo></mover>' in hooks.mathml(r"\overline{a + b}")
    assert "&#x02015;" not in hooks.mathml(r"\overline{a + b}")


def test_names_become_links_that_may_be_missing():
    html = rendered("See :func:`~wideangle.diversity` and :cite:`roy2007`.")
    assert '<autoref identifier="wideangle.diversity" optional><code>diversity</code>' in html
    assert '<a href="../references/">roy2007</a>' in html


def test_code_stays_code():
    assert ":math:`x`" in rendered("```\n:math:`x`\n```")


def test_defaults_are_those_of_the_code():
    griffe = pytest.importorskip("griffe", reason="the extra `docs` is not installed")
    groups = module("groups")
    assert groups.CONSTANTS["LEARN"] == '"learn"'
    text = 'kind : {"I", "II"}, optional\n    It.\n'
    assert groups.CHOICE.sub(groups.either, text) == 'kind : "I" or "II", optional\n    It.\n'
    code = "def f(alpha=LEARN, beta=2): ...\n"
    extensions = griffe.load_extensions(groups.Groups)
    with griffe.temporary_visited_module(code, extensions=extensions) as visited:
        shown = [str(one.default) for one in visited["f"].parameters]
    assert shown == ['"learn"', "2"]


def shown_functions(shown):
    """Functions that a page describes for one of its lines: methods and members included."""
    if shown.is_function:
        yield shown
    elif shown.is_class:
        for name, member in shown.all_members.items():
            if member.is_function and (name == "__init__" or not name.startswith("_")):
                yield member
    else:
        for member in shown.members.values():
            if member.is_public and (member.is_class or member.is_function):
                yield from shown_functions(member)


def test_defaults_on_the_pages_are_those_of_python():
    griffe = pytest.importorskip("griffe", reason="the extra `docs` is not installed")
    pages = "".join(page.read_text("utf-8") for page in (SITE.parent).glob("api-*.md"))
    extensions = griffe.load_extensions(module("groups").Groups)
    source = str(SITE.parents[1] / "src")
    tree = griffe.load("wideangle", search_paths=[source], extensions=extensions)
    n_compared = 0
    for line in re.findall(r"^::: wideangle\.(\S+)", pages, re.MULTILINE):
        for shown in shown_functions(tree[line]):
            found = importlib.import_module(shown.module.canonical_path)
            for name in shown.canonical_path[len(shown.module.canonical_path) + 1 :].split("."):
                found = getattr(found, name)
            real = inspect.signature(found).parameters
            for parameter in shown.parameters:
                kind = getattr(parameter.kind, "value", "")
                text = str(parameter.default)
                if parameter.default is None or kind.startswith("variadic") or "()" in text:
                    continue
                n_compared += 1
                expected = real[parameter.name].default
                assert eval(text, {}) == expected, (shown.canonical_path, parameter.name)
    assert n_compared > 150


def test_grouped_parameters_are_parted():
    pytest.importorskip("griffe", reason="the extra `docs` is not installed")
    groups = module("groups")
    text = (
        "A line, with a comma\n\na, b_2 : int\n    What it is,\n    in two lines.\n"
        "c : str\n    It.\n"
    )
    assert groups.GROUP.sub(groups.apart, text) == (
        "A line, with a comma\n\na : int\n    What it is,\n    in two lines.\n"
        "b_2 : int\n    What it is,\n    in two lines.\nc : str\n    It.\n"
    )
