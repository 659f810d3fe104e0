r"""Variational bound of the mixture of experts with the choice summed out.

.. math:: L = \sum_n E_q\Bigl[\log\sum_k e^{h_{nk} + \ell_{nk}} - \log\sum_k e^{h_{nk}}\Bigr]
          - \tau\,\mathrm{KL}(q\,\|\,p), \qquad h_{nk} = \eta_k\cdot x_n,\;
          \ell_{nk} = \log p_k(y_n\mid\beta_k\cdot x_n)

A row sees q only through its projections on the K gate and K O expert vectors, so noise is drawn
per projection and never per weight: K (O + 1) numbers a row whatever the dimension, and a gradient
with little variance. No bound on the softmax and no factor for the choice is needed.

Paper: Section 3.3 and Appendix A. Differs from the paper: it keeps a factor for the choice and
bounds the gate by Bouchard's inequality, which costs hundreds of nats.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import random

from wideangle.mixture_of_experts.experts import ExpertLikelihood
from wideangle.mixture_of_experts.guides import Guide
from wideangle.mixture_of_experts.likelihood import Batch, Weights, summed_out
from wideangle.priors.components import ComponentPrior
from wideangle.sphere.diversity import angular_spread
from wideangle.types import Array, Key, Scalar


class Guides(NamedTuple):
    """q of the gate (K, p) and of the experts, flattened to (K, O p)."""

    gate: Guide
    experts: Guide


class Terms(NamedTuple):
    """What is maximised beside the data."""

    gate_prior: ComponentPrior
    expert_prior: ComponentPrior
    temperature: Array
    r"""Weight :math:`\tau` of the divergence; below 1 the objective is not a bound any more."""
    strengths: Array | None = None
    r""":math:`\lambda_1` (experts), :math:`\lambda_2` (gate) of the angular regulariser."""
    gamma: Array | float = 1.0


def objective(
    expert: ExpertLikelihood, key: Key, guides: Guides, noise: Array, batch: Batch, terms: Terms
) -> Scalar:
    r"""Estimate, in nats, of the tempered bound plus :math:`\lambda_1\Omega_B + \lambda_2\Omega_H`.

    ``noise`` (n_noise, K, N) is used twice, with both signs, which removes every odd term of the
    error. Weights of the batch are already multiplied by (all rows) / (rows of the batch).

    Paper: Eq. (regularised bound) in Section 3.4 for the terms in Omega (BMEM-PR).
    """
    # vmap and not two calls: what does not depend on the noise is traced and compiled once.
    both = jax.vmap(lambda z: expected_log_lik(expert, guides, z, batch))(
        jnp.stack([noise, -noise])
    )
    return jnp.mean(both) + regulariser(key, guides, terms)


def regulariser(key: Key, guides: Guides, terms: Terms) -> Scalar:
    """The part of :func:`objective` that does not see the data."""
    key_gate, key_experts = random.split(key)
    kl = guides.gate.negative_kl(key_gate, terms.gate_prior)
    kl += guides.experts.negative_kl(key_experts, terms.expert_prior)
    if terms.strengths is None:
        return terms.temperature * kl
    spread = terms.strengths[0] * angular_spread(guides.experts.centres, terms.gamma)
    spread += terms.strengths[1] * angular_spread(guides.gate.centres, terms.gamma)
    return terms.temperature * kl + spread


def n_noise(expert: ExpertLikelihood, guides: Guides) -> int:
    """Standard normals per row and component, gate and experts together."""
    return guides.gate.n_noise(1) + guides.experts.n_noise(expert.n_outputs)


def expected_log_lik(
    expert: ExpertLikelihood, guides: Guides, noise: Array, batch: Batch
) -> Scalar:
    """Log-likelihood of a batch at one draw of its projections."""
    split = guides.gate.n_noise(1)
    gate = guides.gate.scores(batch.rows, noise[:split])[:, 0]
    scores = guides.experts.scores(batch.rows, noise[split:])
    return _summed_out(expert, gate, scores, batch)


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def _summed_out(expert: ExpertLikelihood, gate: Array, scores: Array, batch: Batch) -> Scalar:
    return _summed_out_forward(expert, gate, scores, batch)[0]


def _summed_out_forward(expert: ExpertLikelihood, gate: Array, scores: Array, batch: Batch):
    # Responsibilities are the gradient: autodiff would pass through two log-sum-exps again.
    value, *slopes = summed_out(expert, gate, scores, batch)
    return value, tuple(slopes)


def _summed_out_backward(expert: ExpertLikelihood, slopes: tuple[Array, Array], change: Scalar):
    return change * slopes[0], change * slopes[1], None


_summed_out.defvjp(_summed_out_forward, _summed_out_backward)


def as_weights(gate: Array, experts: Array, n_outputs: int) -> Weights:
    """Weights from flattened vectors, (..., K, p) and (..., K, O p)."""
    return Weights(gate, experts.reshape(*experts.shape[:-1], n_outputs, gate.shape[-1]))
