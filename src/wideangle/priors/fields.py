"""The fields of a distribution, in one order in every process."""

from __future__ import annotations

from numpyro.distributions import Distribution


class SortedFields(Distribution):
    """A NumPyro distribution whose leaves come in order of their names.

    NumPyro gathers the names through a set, whose order changes from process to process. What is
    saved leaf by leaf would be read back in another order, kappa in the place of a rate.
    """

    @classmethod
    def gather_pytree_data_fields(cls) -> tuple[str, ...]:
        """Names of the fields that are leaves."""
        return tuple(sorted(super().gather_pytree_data_fields()))

    @classmethod
    def gather_pytree_aux_fields(cls) -> tuple[str, ...]:
        """Names of the fields that are part of the structure."""
        return tuple(sorted(super().gather_pytree_aux_fields()))
