"""The cases of the bench: names, files, the page; each case in small (slow)."""

import json
from importlib import import_module
from pathlib import Path

import jax
import numpy as np
import pytest
from scipy.stats import norm

from known_faults import FAULTS
from statistical import measured
from wideangle.latent_features import columns
from wideangle.mixture_of_experts import sampling as moe_mcmc
from wideangle.mixture_of_experts.quantities import GaussianExperts
from wideangle_lab.calibration import cases, experts, features, page, variational
from wideangle_lab.calibration.__main__ import main
from wideangle_lab.calibration.verdicts import RARE
from wideangle_lab.marks import fill

ROOT = Path(__file__).parents[3]
RECORDS = ROOT / "results" / "calibration"


@pytest.fixture
def single_precision():
    jax.config.update("jax_enable_x64", False)
    yield
    jax.config.update("jax_enable_x64", True)


def test_every_sampler_of_every_prior_is_a_case(capsys):
    main(["list"])
    names = capsys.readouterr().out.split("\n")[:-1]
    assert names == list(cases.CASES)
    for prior in experts.PRIORS:
        assert {f"experts/{prior}/{sampler}" for sampler in moe_mcmc.SAMPLERS} <= set(names)
    paths = {cases.path_of(name, RECORDS) for name in names}
    assert len(paths) == len(names)
    assert not any(" " in path.name or "," in path.name for path in paths)


def test_the_page_is_that_of_the_records():
    records = cases.read_all(RECORDS)
    assert {record["name"] for record in records} <= set(cases.CASES)  # the page names the rest
    assert not any(record["settings"]["quick"] for record in records)
    faults = json.loads((RECORDS / "faults.json").read_text(encoding="utf-8"))
    text = (ROOT / "docs" / "trust.md").read_text(encoding="utf-8")
    assert text == fill(text, page.blocks(records, faults, ROOT / page.REFERENCES))
    for area in page.TITLES:
        assert (ROOT / "docs" / page.IMAGES / f"{area}.png").stat().st_size > 10_000


def test_every_sampler_has_passed_and_every_fault_was_caught():
    for record in cases.read_all(RECORDS):
        if record["exact"]:
            assert record["ranks"]["passed"], cases.sentence(record)
            assert record["restarts"]["passed"], cases.sentence(record)
        else:
            assert record["ranks"]["notes"]["bound_z"] > -4, cases.sentence(record)
    faults = json.loads((RECORDS / "faults.json").read_text(encoding="utf-8"))["rows"]
    assert [row["test"] for row in faults] == [fault.test for fault in FAULTS]
    assert [row["words"] for row in faults if row["caught"] is False] == []


def test_quantities_do_not_depend_on_the_numbering():
    case = experts.Case("gaussian", "hmc")
    x, targets = experts.simulate(jax.random.key(0), case)
    weights = experts.weights_of(case.priors, x, case.expert)
    turned = jax.tree.map(lambda leaf: leaf[::-1], weights)
    problem = experts.problem_of(case, targets)
    left, right = (experts.quantities({"weights": w}, problem) for w in (weights, turned))
    for name in left:
        np.testing.assert_allclose(left[name], right[name], rtol=1e-5, err_msg=name)


def test_the_evidence_is_that_of_a_model_that_can_be_summed(monkeypatch):
    """Targets of all patterns have evidences that sum to one."""
    monkeypatch.setattr(variational, "N_PRIOR", 4000)
    monkeypatch.setattr(variational, "BLOCK", 2000)
    rows = np.array([[0.3, -1.0, 1.0], [1.2, 0.4, 1.0], [-0.5, 0.8, 1.0]])
    monkeypatch.setattr(experts, "make_rows", lambda *_: rows)
    patterns = np.array(list(np.ndindex(2, 2, 2)))
    case = experts.Case("gaussian", "hmc")
    logs, errors = variational.log_evidence(jax.random.key(0), case, patterns)
    np.testing.assert_allclose(np.exp(logs).sum(), 1.0, rtol=1e-5)
    assert np.all(errors < 0.1)


# Every prior, sampler, process and guide once; all pairs are in the records.
SMALL = [
    "experts/common expert/hmc, automatic length",
    "experts/gaussian/hmc",
    "experts/mutual-angular I/metropolis",
    "experts/mutual-angular II/geodesic",
    "experts/vmf/metropolis",
    "experts/dpp/geodesic",
    "clusters/mutual-angular I/finite",
    "features/gaussian/ibp",
    "features/vmf/pitman-yor",
    "features/mutual-angular, together/ibp",
    "variational/gaussian/coordinate",
    "variational/dpp/diagonal",
    "variational/mutual-angular II/vmf",
]


@pytest.mark.slow
@pytest.mark.usefixtures("single_precision")
@pytest.mark.parametrize("name", SMALL)
def test_a_case_in_small(name, tmp_path):
    main(["run", name, "--quick", "--output", str(tmp_path)])
    record = json.loads(cases.path_of(name, tmp_path).read_text(encoding="utf-8"))
    if record["exact"]:
        assert record["ranks"]["passed"] and record["restarts"]["passed"]
    else:
        assert record["ranks"]["notes"]["bound_z"] > -4


@pytest.mark.slow
@pytest.mark.usefixtures("single_precision")
def test_ranks_of_a_quantity_as_users_fit_it():
    """Whole fits with the default least noise: data sets differ by orders of magnitude."""
    case = experts.Case(experts.COMMON, "hmc", 0, automatic=True)
    assert case.expert == GaussianExperts()
    assert experts.calibrate(case, n_sets=64, seed=0).passed
    assert experts.restart(case, n_starts=1000, seed=1).passed


def surprise(found):
    """Digits before the p-value of a case."""
    digits = -np.log10(max(found.p_value, 1e-300))
    return measured("-log10 p", digits, -np.log10(RARE))


@pytest.mark.slow
@pytest.mark.usefixtures("single_precision")
def test_ranks_see_a_walk_without_its_correction(monkeypatch):
    """The paper's walk without Phi(g/s)/Phi(g'/s): lengths come out too large."""
    walks = import_module("wideangle.infer.metropolis")
    monkeypatch.setattr(walks, "_log_mass", lambda x: 0.0 * x)
    found = experts.calibrate(experts.Case("vmf", "metropolis"), n_sets=512, seed=0)
    assert surprise(found) > -np.log10(RARE)
    means = [
        one.mean
        for name, one in found.quantities.items()
        if name.startswith(("mean length", "shortest"))
    ]
    # The mean of 512 uniform ranks has a known spread; draws that are too large lower it.
    shift = (0.5 - min(means)) * np.sqrt(12 * 512)
    assert shift > norm.isf(RARE / len(found.quantities))


@pytest.mark.slow
@pytest.mark.usefixtures("single_precision")
def test_ranks_see_the_smallest_weight_taken_as_a_constant(monkeypatch):
    monkeypatch.setattr(columns, "_coupled", lambda logit, free, *rest: free)
    case = cases.CASES["features/gaussian/ibp"]
    # Births and deaths, which are right, would bring back nearly all that the fault takes away.
    alone = case._replace(design=case.design.without_births())
    found = features.calibrate(alone, n_sets=320, seed=0)
    assert surprise(found) > -np.log10(RARE)
