r"""Variational bound of the mixture of experts with the choice summed out.

.. math:: L = \sum_n E_q\Bigl[\log\sum_k e^{h_{nk} + \ell_{nk}} - \log\sum_k e^{h_{nk}}\Bigr]
          - \tau\,\mathrm{KL}(q\,\|\,p), \qquad h_{nk} = \eta_k\cdot x_n,\;
          \ell_{nk} = \log p_k(y_n\mid\beta_k\cdot x_n)

A row depends on q only through its projections on the K gate and K O expert vectors, so noise is
drawn per projection and not per weight: K (O + 1) numbers per row in any dimension, and a gradient
with little variance. No bound on the softmax and no factor for the choice is needed.

Paper: Section 3.3 and Appendix A. Differs from the paper: it keeps a factor for the choice and
bounds the gate by Bouchard's inequality, which costs hundreds of nats.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax, random
from jax.sharding import Mesh, PartitionSpec

from wideangle.mixture_of_experts.coordinates import Priors
from wideangle.mixture_of_experts.data import Data
from wideangle.mixture_of_experts.guides import Guides, HierarchicalGuide
from wideangle.mixture_of_experts.likelihood import ExpertLikelihood, Pair, summed_out
from wideangle.mixture_of_experts.task import Regulariser
from wideangle.sharding import AXIS, summed
from wideangle.types import Array, Key, Scalar


class Terms(NamedTuple):
    """The terms of the objective that do not depend on the data."""

    priors: Priors
    temperature: Array
    r"""Weight :math:`\tau` of the divergence; below 1 the objective is no longer a bound."""
    regulariser: Regulariser | None = None


@dataclass(frozen=True)
class Objective:
    """The objective of several starts at once, on noise from a table."""

    expert: ExpertLikelihood
    mesh: Mesh | None = None
    """Devices over which the rows of a batch are spread."""

    def __call__(self, key: Key, guides: Guides, batch: Any, constants: Any) -> Array:
        """Values of all starts; ``constants`` are the table and the terms."""
        table, terms = constants
        key_place, key_prior = random.split(key)
        n_starts, n_components, _ = guides.gate.centres.shape
        shape = n_starts, n_noise(self.expert, guides), n_components, batch[0].shape[0]
        size = int(np.prod(shape))
        place = random.randint(key_place, (), 0, table.shape[0] - size + 1)
        noise = lax.dynamic_slice(table, (place,), (size,)).reshape(shape)
        axes = Terms(None, 0, None)  # pyright: ignore[reportArgumentType]
        beside = jax.vmap(_beside_the_data, in_axes=(0, 0, axes))
        keys = random.split(key_prior, n_starts)
        return self._of_data(guides, noise, Data(*batch)) + beside(keys, guides, terms)

    def _of_data(self, guides: Guides, noise: Array, data: Data) -> Array:
        if self.mesh is None:
            return _of_starts(self.expert, guides, noise, data)
        return _over_devices(self, guides, noise, data)


def _of_starts(expert: ExpertLikelihood, guides: Guides, noise: Array, data: Data) -> Array:
    return jax.vmap(partial(_of_data, expert), in_axes=(0, 0, None))(guides, noise, data)


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def _over_devices(found: Objective, guides: Guides, noise: Array, data: Data) -> Array:
    return _over_devices_forward(found, guides, noise, data)[0]


def _over_devices_forward(found: Objective, guides: Guides, noise: Array, data: Data):
    # Written out: the compiler would send the rows themselves from device to device.
    def of_own_rows(guides: Guides, noise: Array, data: Data) -> tuple[Array, Guides]:
        of_guides = partial(_of_starts, found.expert, noise=noise, data=data)
        values, pull = jax.vjp(of_guides, guides)
        return summed((values, *pull(jnp.ones_like(values))))

    assert found.mesh is not None
    return jax.shard_map(
        of_own_rows,
        mesh=found.mesh,
        in_specs=(PartitionSpec(), PartitionSpec(None, None, None, AXIS), PartitionSpec(AXIS)),
        out_specs=PartitionSpec(),
        check_vma=False,
    )(guides, noise, data)


def _over_devices_backward(_: Objective, slope: Guides, change: Array):
    def of_start(part: Guides, by: Array) -> Guides:
        return jax.tree.map(lambda leaf: by * leaf, part)

    return jax.vmap(of_start)(slope, change), None, None


_over_devices.defvjp(_over_devices_forward, _over_devices_backward)


def objective(
    expert: ExpertLikelihood, key: Key, guides: Guides, noise: Array, data: Data, terms: Terms
) -> Scalar:
    r"""Estimate, in nats, of the tempered bound plus :math:`\lambda_1\Omega_B + \lambda_2\Omega_H`.

    ``noise`` (n_noise, K, N) is used twice, with both signs, which removes every odd term of the
    error. Weights of the data are already multiplied by (all rows) / (rows of the data).

    Paper: Eq. (regularised bound) in Section 3.4 for the terms in Omega (BMEM-PR).
    """
    return _of_data(expert, guides, noise, data) + _beside_the_data(key, guides, terms)


def _of_data(expert: ExpertLikelihood, guides: Guides, noise: Array, data: Data) -> Scalar:
    """The part of :func:`objective` that depends on the data."""
    # vmap instead of two calls: what does not depend on the noise is traced and compiled once.
    both = jax.vmap(lambda z: expected_log_lik(expert, guides, z, data))(jnp.stack([noise, -noise]))
    return jnp.mean(both)


def _beside_the_data(key: Key, guides: Guides, terms: Terms) -> Scalar:
    """The part of :func:`objective` that does not depend on the data."""
    value = terms.temperature * negative_kl(key, guides, terms.priors)
    for guide, prior in zip(guides, terms.priors, strict=True):
        if isinstance(guide, HierarchicalGuide):
            value += guide.log_hyperprior(prior)
    if terms.regulariser is None:
        return value
    return value + terms.regulariser.value(Pair(guides.gate.centres, guides.experts.centres))


def negative_kl(key: Key, guides: Guides, priors: Priors) -> Scalar:
    """Minus the divergence from the priors."""
    key_gate, key_experts = random.split(key)
    gate = guides.gate.negative_kl(key_gate, priors.gate)
    return gate + guides.experts.negative_kl(key_experts, priors.experts)


def n_noise(expert: ExpertLikelihood, guides: Guides) -> int:
    """Standard normals per row and component, gate and experts together."""
    return guides.gate.n_noise(1) + guides.experts.n_noise(expert.n_outputs)


def expected_log_lik(expert: ExpertLikelihood, guides: Guides, noise: Array, data: Data) -> Scalar:
    """Log-likelihood of the data at one draw of its projections."""
    split = guides.gate.n_noise(1)
    gate = guides.gate.scores(data.rows, noise[:split])[:, 0]
    scores = guides.experts.scores(data.rows, noise[split:])
    return _summed_out(expert, gate, scores, data)


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def _summed_out(expert: ExpertLikelihood, gate: Array, scores: Array, data: Data) -> Scalar:
    return _summed_out_forward(expert, gate, scores, data)[0]


def _summed_out_forward(expert: ExpertLikelihood, gate: Array, scores: Array, data: Data):
    # Responsibilities are the gradient: autodiff would pass through two log-sum-exps again.
    value, *slopes = summed_out(expert, gate, scores, data)
    return value, tuple(slopes)


def _summed_out_backward(expert: ExpertLikelihood, slopes: tuple[Array, Array], change: Scalar):
    return change * slopes[0], change * slopes[1], None


_summed_out.defvjp(_summed_out_forward, _summed_out_backward)
