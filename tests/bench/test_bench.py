"""The harness, the record and the page; a quick run of every area."""

import json
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from wideangle import bench
from wideangle.bench import harness, page, sampling
from wideangle.bench.record import OURS, Case, Series, from_json, to_json
from wideangle.sphere import vmf

ROOT = Path(__file__).parents[2]
RECORD = ROOT / "results" / "bench" / "full.json"


def make_case(**options):
    entries = {OURS: Series((1.0, 2.0, 4.0)), "slow": Series((10.0, 10.0, 10.0))}
    return Case("a case", "s", entries, **options)


def test_factors_are_formed_repeat_by_repeat():
    assert make_case().factors()["slow"].values == (10.0, 5.0, 2.5)
    assert make_case(higher_is_better=True).factors()["slow"].values == (0.1, 0.2, 0.4)


def test_series_has_median_and_quartiles():
    series = Series((4.0, 1.0, 2.0, 3.0, 5.0))
    assert series.median == 3.0
    assert series.quartiles == (2.0, 4.0)


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


def test_both_samplers_target_the_same_law():
    many = sampling.repelling_components(0)
    draws = jax.vmap(many.initial)(jax.random.split(jax.random.key(1), 5))["directions"]
    ours = jnp.stack([many.log_density({"directions": one}) for one in draws])
    from numpyro.infer.util import log_density

    theirs = jnp.stack([log_density(many.model, (), {}, {"directions": d})[0] for d in draws])
    assert np.allclose(np.diff(ours), np.diff(theirs))


@pytest.mark.parametrize("sampler", [sampling.geodesic, sampling.numpyro_nuts])
def test_each_call_of_a_sampler_goes_on(sampler):
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


def test_run_prints_and_keeps_a_record(tmp_path, monkeypatch, capsys):
    class Area:
        @staticmethod
        def measure(settings):
            return [make_case(targets={"slow": 100.0}, note=f"seed {settings.seed}")]

    monkeypatch.setattr(harness, "AREAS", {"one": "somewhere"})
    monkeypatch.setattr(harness, "import_module", lambda _: Area)
    output = tmp_path / "deep" / "record.json"
    bench.run(output, quick=True, seed=3)
    record = json.loads(output.read_text())
    assert record["settings"] == {"quick": True, "seed": 3, "repeats": 3}
    assert record["areas"]["one"][0]["factors"]["slow"]["median"] == 5.0
    assert record["machine"]["cores"] >= 1
    assert {"python", "jax", "numpyro"} <= record["versions"].keys()
    shown = capsys.readouterr().out
    assert "100 missed" in shown
    text = page.render(record)
    assert "| a case | s | 2 | slow | 10 | 5 (3.75 to 7.5) | ≥ 100 |" in text
    assert "seed 3" in text


def test_a_case_without_rivals_has_a_row():
    case = Case("alone", "s", {OURS: Series((2.0,))})
    assert harness.make_table({"one": [case]}).row_count == 1
    assert list(page._rows(case)) == ["| alone | s | 2 | | | | |"]


def test_only_what_is_between_the_marks_changes():
    begin, end = page.MARKS
    assert page.put_between_marks(f"a\n{begin}\nold\n{end}\nb", "new") == (
        f"a\n{begin}\nnew\n{end}\nb"
    )
    with pytest.raises(ValueError, match="once each"):
        page.put_between_marks("no marks", "new")


def test_the_page_and_the_readme_are_those_of_the_record():
    record = json.loads(RECORD.read_text(encoding="utf-8"))
    assert (ROOT / "docs" / "performance.md").read_text(encoding="utf-8") == page.render(record)
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert readme == page.put_between_marks(readme, page.render_summary(record))


def test_the_record_is_a_full_run_that_meets_its_targets():
    record = json.loads(RECORD.read_text(encoding="utf-8"))
    assert not record["settings"]["quick"]
    cases = [from_json(case) for cases in record["areas"].values() for case in cases]
    assert [(case.name, case.missed()) for case in cases if case.missed()] == []


@pytest.mark.slow
def test_a_quick_run_measures_every_area(tmp_path):
    record = bench.run(tmp_path / "quick.json", quick=True, seed=0)
    assert list(record["areas"]) == list(harness.AREAS)
    for cases in record["areas"].values():
        for case in cases:
            for entry in case["entries"].values():
                assert np.all(np.isfinite(entry["values"]))
                assert np.all(np.asarray(entry["values"]) > 0)
