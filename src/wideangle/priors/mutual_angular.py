r"""The mutual-angular prior: a chain of von Mises-Fisher distributions that repel each other.

Component i is drawn around the direction *opposite* to the sum of the earlier ones,

.. math:: \tilde a_i \mid \tilde a_{<i} \sim \mathrm{vMF}(\eta_i), \qquad
          S_{i-1} = \sum_{j<i}\tilde a_j,

and the kinds of the family differ only in the link from resultant to natural parameter:

==============  ===========================  ==============================================
kind            :math:`\eta_i`               reading
==============  ===========================  ==============================================
``"I"``         :math:`-\kappa S/|S|`        the paper's type I (and its infinite IMA prior)
``"II"``        :math:`-\kappa S`            the paper's type II, tractable for a vMF guide
``"independent"`` :math:`\kappa\mu_0`        no interaction: independent vMF components
==============  ===========================  ==============================================

Each conditional is normalised, so the joint density of K components is the marginal of that of
K + 1: drawing one more (:meth:`MutualAngular.draw_next`) *is* the infinite prior.

**The chain.** With :math:`S_{k-1} = \sum_{j<k} a_j` the log density of type I, relative to uniform
directions, is

.. math:: \sum_{k>1} \bigl(\kappa p_k - G_D(\kappa)\bigr), \qquad
          p_k = -\frac{S_{k-1}\cdot a_k}{|S_{k-1}|},

with :math:`p_k` the *pull* on direction k and G the log normaliser; the first direction is uniform.
It depends on the directions through the sums :math:`S_{k-1}\cdot a_k` and :math:`|S_{k-1}|^2` only,
which are computed here from the rows (:func:`prefix_products`), or from their cosines if these are
known (:func:`sums_before`).
"""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax, random
from numpyro.distributions import constraints

from wideangle.checks import check_choice, check_count, check_range, check_shape, check_unit
from wideangle.priors.components import SortedFields
from wideangle.priors.support import unit_vectors
from wideangle.priors.von_mises_fisher import VonMisesFisher
from wideangle.sphere import vmf
from wideangle.sphere.geometry import normalise, safe_norm
from wideangle.sphere.vmf import inverse_mean_resultant, log_area, log_mean_exp
from wideangle.types import Array, Key, Scalar, as_floating

KINDS = ("I", "II", "independent")
# Below this squared length a resultant of unit vectors is rounding error, and has no direction.
VANISHING = 1e-12


class MutualAngular(SortedFields):
    r"""K unit vectors that push each other apart (paper: MABN type I and II, IMA).

    Parameters
    ----------
    n_components : int
        K, at least 1.
    dim : int
        p, at least 2.
    concentration : array
        :math:`\kappa \ge 0`, the strength of the repulsion; 0 is the uniform baseline. A fixed
        value has less effect as p grows (the expected cosine is about :math:`\kappa/p`):
        :meth:`from_cosine` sets the strength independently of the dimension.
    kind : {"I", "II", "independent"}
        How the resultant of the earlier components acts; see the module's table. Type I is
        discontinuous where the resultant vanishes; type II is smooth, and its pull grows with the
        length of the resultant.
    first : array, shape (..., p), optional
        Mean direction :math:`\mu_0` of the first component. Without it the first component is
        uniform.

    Notes
    -----
    The density depends on the *order* of the components: the first has no predecessors that repel
    it. ``log_prob`` costs O(Kp).

    Examples
    --------
    >>> import jax
    >>> from wideangle import MutualAngular
    >>> prior = MutualAngular.from_cosine(4, 50, 0.5)
    >>> directions = prior.sample(jax.random.key(0))
    >>> directions.shape
    (4, 50)
    >>> prior.draw_next(jax.random.key(1), directions).shape
    (50,)
    """

    arg_constraints = {"concentration": constraints.nonnegative, "first": constraints.dependent}
    pytree_aux_fields = ("n_components", "dim", "kind")
    support = unit_vectors  # pyright: ignore[reportAssignmentType]

    def __init__(
        self,
        n_components: int,
        dim: int,
        concentration: Any,
        kind: str = "I",
        first: Any = None,
        *,
        validate_args: bool | None = None,
    ) -> None:
        self.n_components = check_count("n_components", n_components, 1)
        self.dim = check_count("dim", dim, 2)
        self.kind = check_choice("kind", kind, KINDS)
        check_range("concentration", concentration, 0.0)
        self.concentration = as_floating(concentration)
        batch = self.concentration.shape
        self.first = None
        if first is not None:
            self.first = as_floating(first)
            check_shape("first", self.first.shape, (self.dim,))
            check_unit("first", self.first)
            batch = lax.broadcast_shapes(batch, self.first.shape[:-1])
        super().__init__(batch, (self.n_components, self.dim), validate_args=validate_args)

    @classmethod
    def from_cosine(
        cls, n_components: int, dim: int, cosine: Any, kind: str = "I", first: Any = None
    ) -> MutualAngular:
        r"""Set the strength as an expected cosine, the same in every dimension.

        ``cosine`` in [0, 1) is the expected cosine between a new component and the direction
        opposite to the resultant of the earlier ones: :math:`A_p(\kappa)`. For type I this holds
        at every step; for type II at a resultant of length one, i.e. for the second component.
        """
        check_range("cosine", cosine, 0.0, 1.0)
        dim = check_count("dim", dim, 2)
        concentration = inverse_mean_resultant(as_floating(cosine), dim)
        return cls(n_components, dim, concentration, kind, first)

    def log_prob(self, value: Any, intermediates: Any = None) -> Array:
        """Log density of a set of directions with respect to surface measure."""
        value = self._checked(value)
        n_live = jnp.sum(jnp.any(value != 0, axis=-1), axis=-1)
        return self._log_ratio(value) - n_live * log_area(self.dim)

    def log_ratio_to_uniform(self, directions: Any) -> Array:
        """Log density relative to K independent uniform directions: safe in float32.

        Rows of zeros are padding, allowed at the end, and add nothing; so an array of fixed shape
        can hold a growing number of components.
        """
        return self._log_ratio(self._checked(directions))

    @jax.jit
    def _log_ratio(self, directions: Array) -> Array:
        square, cross, live = prefix_products(directions)
        kappa = self.concentration[..., None]
        if self.kind == "independent":
            pull = self._pull_of_first(directions)
            strength = kappa if self.first is not None else jnp.zeros_like(kappa)
        elif self.kind == "I":
            known = square > VANISHING
            length = jnp.sqrt(jnp.where(known, square, 1.0))
            pull = jnp.where(known, -kappa * cross / length, 0.0)
            strength = jnp.where(known, kappa, 0.0)
        else:
            known = square > 0
            pull = -kappa * cross
            strength = kappa * jnp.where(known, jnp.sqrt(jnp.where(known, square, 1.0)), 0.0)
        if self.first is not None and self.kind != "independent":
            # where() instead of .at[0].set(): the parameters may have more axes than the value.
            is_first = jnp.arange(square.shape[-1]) == 0
            pull = jnp.where(is_first, self._pull_of_first(directions[..., :1, :]), pull)
            strength = jnp.where(is_first, kappa, strength)
        terms = pull - log_mean_exp(strength, self.dim)
        return jnp.sum(jnp.where(live, terms, 0.0), axis=-1)

    def _pull_of_first(self, directions: Array) -> Array:
        if self.first is None:
            return jnp.zeros(directions.shape[:-1], directions.dtype)
        towards = self.concentration[..., None] * self.first
        return jnp.sum(towards[..., None, :] * directions, axis=-1)

    def _natural(self, resultant: Array, is_first: Array | bool) -> Array:
        """Natural parameter of the next component, given the sum of the earlier ones."""
        kappa = self.concentration[..., None]
        start = jnp.zeros_like(resultant)
        if self.first is not None:
            start = start + kappa * self.first
        if self.kind == "independent":
            return start
        towards = resultant
        if self.kind == "I":
            towards = direction_of(resultant)
        return jnp.where(is_first, start, -kappa * towards)

    def next_component(self, directions: Any) -> VonMisesFisher:
        """Distribution of the next component given the others (..., K', p); zeros are padding."""
        directions = as_floating(directions)
        check_shape("directions", directions.shape, ("K", self.dim))
        check_unit("directions", directions, allow_zero=True)
        empty = ~jnp.any(directions != 0, axis=(-2, -1))
        natural = self._natural(jnp.sum(directions, axis=-2), empty[..., None])
        concentration = safe_norm(natural)
        pole = jnp.zeros(self.dim, natural.dtype).at[0].set(1.0)
        mean = jnp.where(concentration[..., None] > 0, normalise(natural), pole)
        return VonMisesFisher(mean, concentration)

    def draw_next(self, key: Key, directions: Any) -> Array:
        """Draw one more component given the existing ones: one step of the infinite prior (IMA)."""
        return self.next_component(directions).sample(key)

    def sample(self, key: Key | None, sample_shape: tuple[int, ...] = ()) -> Array:
        """Draw sets of components one after the other, all sets at once."""
        assert key is not None
        return self._draw(key, tuple(sample_shape))

    # Compiled here: called outside jit, the loop inside would be compiled again at every call.
    @partial(jax.jit, static_argnums=2)
    def _draw(self, key: Key, sample_shape: tuple[int, ...]) -> Array:
        dtype = jnp.promote_types(self.concentration.dtype, jnp.float32)
        batch = (*sample_shape, *jnp.broadcast_shapes(*self._parameter_shapes()), self.dim)

        def draw(resultant: Array, turn: tuple[Array, Array]) -> tuple[Array, Array]:
            index, subkey = turn
            natural = self._natural(resultant, index == 0).astype(dtype)
            new = vmf.sample(subkey, jnp.broadcast_to(natural, batch))
            return resultant + new, new

        turns = (jnp.arange(self.n_components), random.split(key, self.n_components))
        _, directions = lax.scan(draw, jnp.zeros(batch, dtype), turns)
        return jnp.moveaxis(directions, 0, -2)

    def _parameter_shapes(self) -> tuple[tuple[int, ...], ...]:
        # From the parameters, not batch_shape: under vmap the latter still has the outer axis.
        first = () if self.first is None else self.first.shape[:-1]
        return self.concentration.shape, first

    def _checked(self, value: Any) -> Array:
        value = as_floating(value)
        check_shape("directions", value.shape, ("K", self.dim))
        check_unit("directions", value, allow_zero=True)
        return value


# ---------------------------------------------------------------- the chain of directions


def direction_of(resultant: Array) -> Array:
    """Direction of a resultant; zero if it has none."""
    known = jnp.sum(resultant**2, axis=-1, keepdims=True) > VANISHING
    return jnp.where(known, normalise(resultant), 0.0)


def pulls(cross: Array, square: Array, live: Array) -> Array:
    """For every live row k the pull on it, from :math:`S_{k-1} a_k` and :math:`|S_{k-1}|^2`."""
    known = live & (square > VANISHING)
    return jnp.where(known, -cross / jnp.sqrt(jnp.where(known, square, 1.0)), 0.0)


def sums_before(cosines: Array, live: Array) -> tuple[Array, Array]:
    r"""For every row k :math:`S_{k-1}\cdot a_k` and :math:`|S_{k-1}|^2`, from all cosines."""
    cross = jnp.sum(jnp.tril(cosines, -1), axis=1)
    square = jnp.cumsum(jnp.where(live, 2 * cross + 1, 0.0))
    return cross, jnp.concatenate([jnp.zeros(1, square.dtype), square[:-1]])


def pull_in_order(cosines: Array, weights: Array) -> Scalar:
    """The sum of all pulls on rows in decreasing order of weight.

    Rows of weight zero are ignored. Nothing is sorted or moved: the order is a (K, K) comparison,
    and both sums over earlier rows are masked sums.
    """
    index = jnp.arange(weights.shape[0])
    mine, other = weights[:, None], weights[None, :]
    first = (other > mine) | ((other == mine) & (index[None, :] < index[:, None]))
    first = first & (other > 0)
    cross = jnp.sum(jnp.where(first, cosines, 0.0), axis=1)
    square = jnp.sum(jnp.where(first, 2 * cross[None, :] + 1, 0.0), axis=1)
    return jnp.sum(pulls(cross, square, weights > 0))


def log_density(directions: Array, live: Array, counted: Array, concentration: Scalar) -> Scalar:
    """Log density of the ``counted`` rows, each given all live ones before it.

    The first row has no mean direction and adds nothing.
    """
    pull = pulls(*sums_before(directions @ directions.T, live), live)
    terms = concentration * pull - log_mean_exp(concentration, directions.shape[1])
    return jnp.sum(jnp.where(counted & (jnp.arange(len(directions)) > 0), terms, 0.0))


def prefix_products(directions: Array) -> tuple[Array, Array, Array]:
    r"""For every row k :math:`|S_{k-1}|^2`, :math:`S_{k-1}\cdot a_k`, and whether the row is live.

    Everything that a density needs from the rows, in one pass. On a CPU a loop that keeps the
    running sum in cache is five times as fast as a cumulative sum; on a GPU the parallel
    cumulative sum wins.
    """
    return lax.platform_dependent(
        directions, cpu=_prefix_products_by_loop, default=_prefix_products_by_sum
    )


def _prefix_products_by_loop(directions: Array) -> tuple[Array, Array, Array]:
    def add(resultant: Array, row: Array) -> tuple[Array, tuple[Array, Array, Array]]:
        square = jnp.sum(resultant * resultant, axis=-1)
        cross = jnp.sum(resultant * row, axis=-1)
        return resultant + row, (square, cross, jnp.any(row != 0, axis=-1))

    rows = jnp.moveaxis(directions, -2, 0)
    _, products = lax.scan(add, jnp.zeros_like(rows[0]), rows)
    return jax.tree.map(lambda p: jnp.moveaxis(p, 0, -1), products)


def _prefix_products_by_sum(directions: Array) -> tuple[Array, Array, Array]:
    before = jnp.cumsum(directions, axis=-2) - directions
    # The first row has no predecessors; subtracting it from itself would leave rounding error.
    before = before.at[..., 0, :].set(0.0)
    square = jnp.sum(before * before, axis=-1)
    return square, jnp.sum(before * directions, axis=-1), jnp.any(directions != 0, axis=-1)
