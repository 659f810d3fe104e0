import pytest

from wideangle import Variational
from wideangle.mixture_of_experts.paper_methods import METHODS, paper_method
from wideangle.settings import INFERENCES, PRIORS, name_of


@pytest.mark.parametrize("name", METHODS)
def test_a_method_is_a_pair_of_valid_settings(name):
    model = paper_method(name, 3, prior__scale=0.4)
    model._validate_params()
    assert (model.n_experts, model.prior.scale) == (3, 0.4)
    params = model.get_params()
    nested = {k: v for k, v in METHODS[name].items() if "__" in k}
    assert {k: params[k] for k in nested} == nested
    assert name_of(model.prior, PRIORS) == METHODS[name]["prior"]
    assert name_of(model.inference, INFERENCES) == METHODS[name]["inference"]


def test_settings_can_be_overridden_and_a_wrong_name_is_answered_with_the_right_ones():
    assert paper_method("MEM-L2", inference="mcmc").inference == "mcmc"
    model = paper_method("MEM-MAR", inference=Variational(), inference__n_starts=2)
    assert (model.inference.diversity, model.inference.n_starts) == (0.0, 2)
    with pytest.raises(ValueError, match="BMEM-MABN-II"):
        paper_method("BMEM")
