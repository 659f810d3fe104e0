"""Exponents: of curves that are known, and of work that is really done at the size asked for."""

import json

import numpy as np
import pytest

from wideangle_lab.bench import growth, page, probe, works
from wideangle_lab.bench.harness import Settings, Size
from wideangle_lab.bench.pictures import draw_growth
from wideangle_lab.bench.probe import Cost, Task
from wideangle_lab.bench.record import EXPONENT, OURS, Curve, Series, from_json, to_json

FULL = Settings(quick=False, seed=0, repeats=2)


def pretend(rule):
    """Costs from a rule of the size, in the place of processes."""

    def costs(tasks, seed, repeats):
        return {
            task: Cost(
                int(1e9 + 2**30 * rule(*task.size)),
                [rule(*task.size) * (1 + r) for r in range(repeats)],
            )
            for task in tasks
        }

    return costs


def test_exponents_are_slopes_of_logarithms():
    values = tuple(Series((2.0 * n**1.5, 7.0 * n**0.5)) for n in (16, 32, 64))
    slopes = Curve("rows", (16, 32, 64), values, "s").slopes()
    np.testing.assert_allclose(slopes.values, [1.5, 0.5])


@pytest.mark.parametrize(
    ("power", "missed"), [(1.0, []), (1.05, []), (1.2, [EXPONENT]), (2.0, [EXPONENT])]
)
def test_more_than_linear_growth_in_the_rows_is_a_missed_target(monkeypatch, power, missed):
    monkeypatch.setattr(growth, "probe", pretend(lambda n, d, k: (n / 1e4) ** power * d**1.5 * k))
    cases = growth.measure(FULL)
    for case in cases:
        assert case.curve is not None
        assert case.missed() == (missed if case.curve.axis == "rows" else [])
        expected = {"rows": power, "columns": 1.5, "components": 1.0}[case.curve.axis]
        assert abs(case.entries[OURS].median - expected) < 0.01
    assert {case.name for case in cases} == {
        *(f"time of {name}" for name in works.WORKS),
        *(f"memory of {name}" for name in works.WORKS if name not in growth.ONLY_TIME),
    }
    assert all(len(case.curve.sizes) >= 4 for case in cases)
    text = "\n".join(page.targets({"growth": cases}) + page.growth(cases))
    assert text.count("**missed**") == 2 * sum(len(case.missed()) for case in cases)


def test_the_picture_is_drawn_from_the_record(monkeypatch, tmp_path):
    monkeypatch.setattr(growth, "probe", pretend(lambda n, d, k: 1e-6 * n * d * k))
    cases = [from_json(json.loads(json.dumps(to_json(case)))) for case in growth.measure(FULL)]
    draw_growth(cases, tmp_path / "deep" / "growth.png")
    assert (tmp_path / "deep" / "growth.png").read_bytes().startswith(b"\x89PNG")


def test_the_peak_is_seen_and_forgotten():
    probe.forget_peak()
    before = probe.peak_bytes()
    block = np.ones(2**23)
    assert probe.peak_bytes() - before > 0.9 * block.nbytes
    del block
    probe.forget_peak()
    if probe.CLEAR.exists():
        assert probe.peak_bytes() - before < 0.5 * 2**26


def test_a_failed_probe_says_why():
    with pytest.raises(RuntimeError, match="no such work"):
        probe.probe([Task("no such work", (8, 4, 2))], 0, 1)


@pytest.mark.slow
def test_a_probe_measures_time_and_memory():
    task = Task("sparse gradient", Size(2000, 12, 3))
    cost = probe.probe([task], 0, 2)[task]
    assert cost.peak > 2**25
    assert len(cost.seconds) == 2 and min(cost.seconds) > 0
