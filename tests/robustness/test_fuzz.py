"""Whatever comes in, out comes a clear error or a right answer."""

import pytest
from hypothesis import HealthCheck, Phase, given, settings

from robustness import fuzz, inputs, properties

pytestmark = pytest.mark.usefixtures("compile_quickly")
FEW = settings(max_examples=60, phases=[Phase.generate], suppress_health_check=list(HealthCheck))


@pytest.mark.slow
@FEW
@given(inputs.expert_cases(("map gaussian",), ((1, 2, 12), (3,))))
def test_fits_of_experts(case):
    properties.outcome(lambda: properties.experts_answer(case), case.wrong)


@pytest.mark.slow
@settings(FEW, max_examples=10)
@given(inputs.feature_cases(("gaussian",), ((12,), (3,))))
def test_fits_of_features(case):
    properties.outcome(lambda: properties.features_answer(case), case.wrong)


@pytest.mark.parametrize("part", ["features", "experts"])
def test_altered_files(part, tmp_path):
    cases, judge = fuzz.of_files(part, tmp_path, "map gaussian")
    found = set()

    @FEW
    @given(cases)
    def check(alteration):
        found.add(judge(alteration))

    check()
    assert found >= {"right", "refused"}


def test_a_wrong_answer_and_an_unclear_error_are_noticed():
    """The judge can fail."""
    with pytest.raises(AssertionError, match="accepted"):
        properties.outcome(lambda: None, {"not finite"})
    with pytest.raises(AssertionError, match="raised in"):
        properties.outcome(lambda: int("not a number at all"), set())
    with pytest.raises(ZeroDivisionError):
        properties.outcome(lambda: 1 / 0, set())


# Thousands of each kind are on docs/faults.md; a fit may have to be compiled, a file has not.
MANY = {"experts": 100, "features": 50, "experts-files": 1500, "features-files": 1500}
ONE_SHAPE = (12,), (3,)


@pytest.mark.slow
@pytest.mark.parametrize("part", MANY)
def test_many(part, tmp_path):
    record = fuzz.fuzz(part, MANY[part], 0, tmp_path, ONE_SHAPE)
    assert record["defects"] == {}
    assert sum(record["outcomes"].values()) == MANY[part]
    assert min(record["outcomes"].get(name, 0) for name in ("right", "refused")) > MANY[part] / 25
