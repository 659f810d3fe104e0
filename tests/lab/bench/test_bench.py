"""The harness, the record and the page; a quick run of every area."""

import json
import re
from pathlib import Path
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from wideangle.sphere import vmf
from wideangle_lab import bench
from wideangle_lab.bench import harness, page, sampling
from wideangle_lab.bench.record import OURS, Case, Series, from_json, show_factor, to_json
from wideangle_lab.marks import fill

ROOT = Path(__file__).parents[3]
RECORD = ROOT / "results" / "bench" / "full.json"


def make_case(**options):
    entries = {OURS: Series((1.0, 2.0, 4.0)), "slow": Series((10.0, 10.0, 10.0))}
    return Case("a case", "s", entries, **options)


def test_a_factor_is_the_ratio_of_the_medians():
    assert make_case().factors() == {"slow": 5.0}
    assert make_case(higher_is_better=True).factors() == {"slow": 0.2}


def test_series_has_median_and_quartiles():
    series = Series((4.0, 1.0, 2.0, 3.0, 5.0))
    assert series.median == 3.0
    assert series.quartiles == (2.0, 4.0)


def test_no_ratio_is_formed_with_a_count_of_nothing():
    entries = {OURS: Series((4.0,)), "blind": Series((0.0,)), "same": Series((4.0,))}
    case = Case("found", "features", entries, higher_is_better=True, targets={"blind": 2.0})
    text = json.dumps(to_json(case), allow_nan=False)
    assert from_json(json.loads(text)).factors() == {"blind": None, "same": 1.0}
    assert case.missed() == []
    nothing = Case("found", "features", {OURS: entries["blind"], "blind": entries["blind"]})
    assert nothing.factors() == {"blind": 1.0}


@pytest.mark.parametrize(
    ("factor", "shown"),
    [(None, "-"), (27.84, "27.8"), (1478.0, "1,478"), (1 / 7.38, "1/7.38"), (1 / 1478, "1/1,478")],
)
def test_factors_are_shown_without_small_numbers(factor, shown):
    assert show_factor(factor) == shown


def test_a_missed_target_is_named():
    assert make_case(targets={"slow": 5.0}).missed() == []
    assert make_case(targets={"slow": 5.1}).missed() == ["slow"]


def test_a_case_survives_the_file():
    case = make_case(targets={"slow": 2.0}, note="why")
    again = from_json(json.loads(json.dumps(to_json(case))))
    assert again == Case(**{**case.__dict__, "entries": dict(case.entries)})


def test_in_turns_alternates_and_leaves_the_first_call_out():
    calls = []
    seconds = harness.in_turns(
        {name: lambda repeat, name=name: calls.append((name, repeat)) for name in "ab"}, 2
    )
    assert calls == [("a", 0), ("b", 0), ("a", 1), ("b", 1), ("a", 2), ("b", 2)]
    assert all(len(series.values) == 2 for series in seconds.values())


def test_both_samplers_have_the_same_target():
    many = sampling.repelling_components(0)
    draws = jax.vmap(many.initial)(jax.random.split(jax.random.key(1), 5))["directions"]
    ours = jnp.stack([many.log_density({"directions": one}) for one in draws])
    from numpyro.infer.util import log_density

    theirs = jnp.stack([log_density(many.model, (), {}, {"directions": d})[0] for d in draws])
    assert np.allclose(np.diff(ours), np.diff(theirs))


SLOW = pytest.param(sampling.blackjax_nuts, marks=pytest.mark.slow)
SAMPLERS = [sampling.geodesic, sampling.numpyro_nuts, SLOW]


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_each_call_of_a_sampler_goes_on(sampler):
    if sampler is sampling.blackjax_nuts:
        pytest.importorskip("blackjax")
    advance = sampler(jax.random.key(0), sampling.single_direction(), 40, 40)
    first, second = advance(), advance()
    assert np.all(np.isfinite([*first, *second]))
    assert first.per_gradient != second.per_gradient


def test_quantities_do_not_depend_on_labels():
    target = sampling.repelling_components(0)
    draws = np.asarray(vmf.sample(jax.random.key(0), jnp.zeros((5, 20)), (2, 3)))
    angles = target.quantities(draws)[..., :-1]
    assert np.allclose(angles, target.quantities(draws[..., ::-1, :])[..., :-1])


def test_an_area_is_a_module_with_measure():
    from importlib import import_module

    for module in harness.AREAS.values():
        assert callable(import_module(module).measure)


@pytest.fixture
def pretend(monkeypatch):
    """Areas that cost nothing: ``one`` and ``two``, and a list of those that were measured."""
    measured = []

    def area(name):
        def measure(settings):
            measured.append(name)
            return [make_case(targets={"slow": 100.0}, note=f"{name}, seed {settings.seed}")]

        return SimpleNamespace(measure=measure)

    monkeypatch.setattr(harness, "AREAS", {"one": "one", "two": "two"})
    monkeypatch.setattr(harness, "import_module", area)
    return measured


def test_run_prints_and_keeps_a_record(tmp_path, pretend, capsys):
    output = tmp_path / "deep" / "record.json"
    bench.run(output, quick=True, seed=3)
    assert pretend == ["one", "two"]
    record = json.loads(output.read_text())
    assert record["settings"] == {"quick": True, "seed": 3, "repeats": 3}
    area = record["areas"]["one"]
    assert area["cases"][0]["factors"]["slow"] == 5.0
    assert area["stamp"]["machine"]["cores"] >= 1
    assert area["stamp"]["finished"].endswith(" UTC")
    assert {"python", "jax", "numpyro", "scikit-learn"} <= area["stamp"]["versions"].keys()
    assert "100 missed" in capsys.readouterr().out
    text = page.render(record)
    row = "| a case | slow | 5 | 2 (1.5 to 3) | 10 | s | 3 | 100, **missed** |"
    assert row in text
    assert "| one | a case | slow | 5 | 100 | **missed** |" in text
    assert "one, seed 3" in text


def test_a_named_area_takes_its_place_in_the_record(tmp_path, pretend):
    output = tmp_path / "record.json"
    first = bench.run(output, quick=True, seed=0, areas=["two"])
    assert list(first["areas"]) == ["two"]
    bench.run(output, quick=True, seed=0, areas=["one"])
    both = json.loads(output.read_text())
    assert list(both["areas"]) == ["one", "two"]
    assert both["areas"]["two"]["stamp"] == first["areas"]["two"]["stamp"]
    assert pretend == ["two", "one"]
    with pytest.raises(ValueError, match="name another --output"):
        bench.run(output, quick=True, seed=1, areas=["one"])
    with pytest.raises(ValueError, match="the areas are one, two"):
        bench.run(output, quick=True, seed=0, areas=["three"])
    assert list(bench.run(output, quick=True, seed=1)["areas"]) == ["one", "two"]


def test_what_was_measured_before_a_crash_is_kept(tmp_path, pretend, monkeypatch):
    def crash(name):
        raise KeyboardInterrupt

    good = harness.import_module
    monkeypatch.setattr(harness, "import_module", lambda n: (crash if n == "two" else good)(n))
    with pytest.raises(KeyboardInterrupt):
        bench.run(tmp_path / "record.json", quick=True, seed=0)
    assert list(json.loads((tmp_path / "record.json").read_text())["areas"]) == ["one"]


def test_a_case_without_rivals_has_a_row():
    case = Case("alone", "s", {OURS: Series((2.0,))})
    assert harness.make_table({"one": [case]}).row_count == 1
    assert page.table([case])[2:] == ["| alone | | | 2 | | s | 1 | |"]


def test_only_what_is_between_the_marks_changes():
    begin, end = "<!-- x: begin -->", "<!-- x: end -->"
    text = fill(f"a\n{begin}\nold\n{end}\nb", {"x": "new"})
    assert text == f"a\n{begin}\nnew\n{end}\nb"
    with pytest.raises(ValueError, match="once each"):
        fill("no marks", {"x": "new"})


def test_an_area_of_another_machine_says_so():
    record = json.loads(RECORD.read_text(encoding="utf-8"))
    first, *_, last = record["areas"].values()
    assert " on " not in page.when(last["stamp"], record)
    first["stamp"]["machine"]["cores"] += 1
    assert f" on {last['stamp']['machine']['cores']} cores" in page.when(last["stamp"], record)


def test_the_page_and_the_readme_are_those_of_the_record():
    record = json.loads(RECORD.read_text(encoding="utf-8"))
    text = (ROOT / "docs" / "performance.md").read_text(encoding="utf-8")
    assert text == fill(text, {"record": page.render(record)})
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert readme == fill(readme, {"numbers": page.render_summary(record)})


def test_rows_of_the_readme_are_ratios_of_the_numbers_beside_them():
    units = {"ms": 1e-3, "s": 1.0}
    rows = page.render_summary(json.loads(RECORD.read_text(encoding="utf-8"))).splitlines()
    rows = [row.strip("| ").split(" | ") for row in rows if row.startswith("| ")][1:]
    assert len(rows) == len(page.HIGHLIGHTS)
    for _, ours, theirs, ratio, *_ in rows:
        (a, of_a), (b, of_b) = (one.split(",")[0].split()[:2] for one in (ours, theirs))
        a, b = float(a) * units.get(of_a, 1.0), float(b) * units.get(of_b, 1.0)
        assert float(ratio.split()[0].replace(",", "")) == float(f"{max(a, b) / min(a, b):.2g}")
        higher_is_better = of_a == "ESS"
        assert ratio.endswith("better") == ((a > b) == higher_is_better)


def test_the_record_is_a_full_run_and_the_page_says_what_it_missed():
    record = json.loads(RECORD.read_text(encoding="utf-8"))
    assert not record["settings"]["quick"]
    cases = [from_json(case) for area in record["areas"].values() for case in area["cases"]]
    n_missed = sum(len(case.missed()) for case in cases)
    assert "\n".join(page.targets({"": cases})).count("**missed**") == n_missed
    assert (ROOT / "docs" / "performance.md").read_text().count("**missed**") == 2 * n_missed


CASES = {
    "experts": {"gradient", "MCMC", "VI", "mixture of experts"},
    "sweeps": {"sweep"},
    "features": {"Block-Images", "sparse features"},
}
"""How the names of some cases begin that these areas must have."""


@pytest.mark.slow
@pytest.mark.usefixtures("compile_quickly")
@pytest.mark.parametrize("area", harness.AREAS)
def test_a_quick_run_measures(area, tmp_path):
    """Finite numbers everywhere; what a busy machine makes of them is not tested."""
    record = bench.run(tmp_path / "quick.json", quick=True, seed=0, areas=[area])
    cases = [from_json(case) for case in record["areas"][area]["cases"]]
    assert CASES.get(area, set()) <= {re.split("[,:]", case.name)[0] for case in cases}
    for case in cases:
        assert OURS in case.entries
        values = np.concatenate([series.values for series in case.entries.values()])
        assert np.all(np.isfinite(values))
        # Shares and counts of features found may be 0, exponents below it: short chains, small
        # sizes, rivals that find nothing.
        assert case.unit in ("share", "exponent", "features") or np.all(values > 0)
    assert page.render(record).count("\n## ") == 2
