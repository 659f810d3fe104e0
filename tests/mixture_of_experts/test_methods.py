import pytest

from wideangle.mixture_of_experts.methods import METHODS, paper_method


@pytest.mark.parametrize("name", METHODS)
def test_a_method_is_a_pair_of_valid_settings(name):
    model = paper_method(name, 3, cosine=0.4)
    model._validate_params()
    assert (model.n_experts, model.cosine) == (3, 0.4)
    assert {k: getattr(model, k) for k in METHODS[name]} == METHODS[name]


def test_settings_can_be_overridden_and_a_wrong_name_is_answered_with_the_right_ones():
    assert paper_method("MEM-L2", inference="mcmc").inference == "mcmc"
    with pytest.raises(ValueError, match="BMEM-MABN-II"):
        paper_method("BMEM")
