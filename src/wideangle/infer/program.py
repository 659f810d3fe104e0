"""From a recipe to a compiled chunk of rounds.

The user's functions are traced once, for one chain. The arrays they have closed over (the data)
become arguments of the compiled program: left inside they would be written into it as
constants, which for a large data set costs minutes of compilation and a second copy.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
from jax.extend.core import ClosedJaxpr, jaxpr_as_fun

from wideangle.infer.kernel import DualAveraging, Info, Update, choose
from wideangle.types import Array, Latents, Scalar

Recipe: TypeAlias = Callable[..., Update]
"""Step sizes in, update out: tuning stays outside the kernels. All chains share the steps, and
``steps["iteration"]`` counts iterations, so that trajectories of chains that move side by side can
have one length. With ``data`` given to the run, a recipe takes it as its second argument, and one
compiled program serves every data set of a shape."""

MAX_ROUNDS = 64
"""Most rounds of one compiled chunk."""
MAX_BYTES = 2**26
"""Most memory for the draws of one chunk."""
KEY_KIND = "threefry2x32"
"""Fixed, so that a saved state means the same under every default of JAX."""


class RunState(NamedTuple):
    """All that is needed to go on, as a plain pytree of arrays."""

    latents: Latents
    """Leading axis: chain."""
    tuning: dict[str, DualAveraging]
    """One for all chains."""
    iteration: Array
    """Iterations done, warm-up included."""
    keys: Array
    """Raw chain keys, unsigned integers of shape ``(n_chains, 2)``."""


class Program(NamedTuple):
    """A compiled recipe."""

    advance: Callable[..., tuple[RunState, Any]]
    """``(data, state, limit, n_warmup, thin) -> (state, (values, infos))``: ``limit`` rounds. A
    round is one iteration of warm-up, or the ``thin`` iterations of one draw."""
    n_rounds: int
    """Rounds that fit into one call."""
    shapes: Any
    """Shapes of the values and infos of one draw of one chain."""


_PROGRAMS: weakref.WeakKeyDictionary[Recipe, dict[Any, Program]] = weakref.WeakKeyDictionary()


def compiled(
    recipe: Recipe,
    state: RunState,
    targets: Mapping[str, float],
    collect: Callable[..., Any],
    data: Any = None,
) -> Program:
    """The program of a recipe; made once for every recipe and shape of its state and data."""
    leaves, structure = jax.tree.flatten((state, data))
    shapes = tuple((jnp.shape(leaf), jnp.result_type(leaf)) for leaf in leaves)
    signature = (collect, tuple(sorted(targets.items())), shapes, structure)
    programs = _PROGRAMS.setdefault(recipe, {})
    if signature not in programs:
        programs[signature] = _build(recipe, state, targets, collect, data)
    return programs[signature]


def _build(
    recipe: Recipe,
    state: RunState,
    targets: Mapping[str, float],
    collect: Callable[..., Any],
    data: Any,
) -> Program:
    given = () if data is None else (data,)
    one = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape[1:], leaf.dtype), state.latents)
    steps = {name: jax.ShapeDtypeStruct((), jnp.result_type(float)) for name in state.tuning}
    counter, key = jax.ShapeDtypeStruct((), jnp.int32), jax.ShapeDtypeStruct((2,), jnp.uint32)
    iterate = _Traced(_iteration(recipe), one, steps, key, counter, *given)
    gather = _Traced(collect, one, *given)
    shapes = gather.shapes, iterate.shapes[1]
    if missing := targets.keys() - shapes[1].keys():
        raise ValueError(f"targets for {sorted(missing)}, but the blocks are {sorted(shapes[1])}")
    n_chains = state.keys.shape[0]
    size = n_chains * sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(shapes))
    n_rounds = max(1, min(MAX_ROUNDS, MAX_BYTES // max(size, 1)))

    def zeros(*leading: int) -> Any:
        return jax.tree.map(lambda s: jnp.zeros((*leading, *s.shape), s.dtype), shapes)

    @jax.jit
    def advance(
        constants: Any, given: Any, state: RunState, limit: Array, n_warmup: Array, thin: Array
    ) -> tuple[RunState, Any]:
        fixed = (None,) * len(given)
        move = jax.vmap(iterate.bind(constants[0]), in_axes=(0, None, 0, None, *fixed))
        keep = jax.vmap(gather.bind(constants[1]), in_axes=(0, *fixed))

        def iteration(_: Array, carry: tuple[RunState, Any]) -> tuple[RunState, Any]:
            state, total = carry
            warm = state.iteration < n_warmup
            steps = {name: one.current(warm) for name, one in state.tuning.items()}
            latents, infos = move(state.latents, steps, state.keys, state.iteration, *given)
            tuning = dict(state.tuning)
            for name, target in targets.items():
                learnt = tuning[name].learn(infos[name].acceptance, target)
                tuning[name] = choose(warm, learnt, tuning[name])
            state = RunState(latents, tuning, state.iteration + 1, state.keys)
            return state, jax.tree.map(jnp.add, total, infos)

        def one_round(index: Array, carry: tuple[RunState, Any]) -> tuple[RunState, Any]:
            state, buffer = carry
            length = jnp.where(state.iteration < n_warmup, 1, thin)
            nothing = zeros(n_chains)[1]
            state, infos = jax.lax.fori_loop(0, length, iteration, (state, nothing))
            infos = _mean_acceptance(infos, length)
            draw = keep(state.latents, *given), infos
            return state, jax.tree.map(lambda old, new: old.at[index].set(new), buffer, draw)

        return jax.lax.fori_loop(0, limit, one_round, (state, zeros(n_rounds, n_chains)))

    constants = iterate.constants, gather.constants

    def call(
        data: Any, state: RunState, limit: int, n_warmup: int, thin: int
    ) -> tuple[RunState, Any]:
        given = () if data is None else (data,)
        counts = (jnp.int32(n) for n in (limit, n_warmup, thin))
        return advance(constants, given, state, *counts)

    return Program(call, n_rounds, shapes)


def _iteration(recipe: Recipe) -> Callable[..., Any]:
    """One iteration of one chain."""

    def iteration(
        latents: Latents, steps: dict[str, Scalar], raw_key: Array, count: Array, *given: Any
    ) -> tuple[Latents, dict[str, Info]]:
        key = jax.random.fold_in(jax.random.wrap_key_data(raw_key, impl=KEY_KIND), count)
        update = recipe({**steps, "iteration": count}, *given)
        moved, infos = update(key, latents)
        infos = {"update": infos} if isinstance(infos, Info) else infos
        return _same_types(moved, latents), infos

    return iteration


def _same_types(moved: Latents, latents: Latents) -> Latents:
    """Check that an update gives back what it was given; a loop can carry nothing else."""
    if jax.tree.structure(moved) != jax.tree.structure(latents):
        raise TypeError(
            f"the update changes the structure of the latents from {jax.tree.structure(latents)} "
            f"to {jax.tree.structure(moved)}"
        )

    def check(path: Any, new: Array, old: Array) -> Array:
        new = jnp.asarray(new)
        if (new.shape, new.dtype) != (old.shape, old.dtype):
            where = jax.tree_util.keystr(path)
            raise TypeError(
                f"the update changes latents{where} from {old.dtype}{list(old.shape)} "
                f"to {new.dtype}{list(new.shape)}"
            )
        return new

    return jax.tree_util.tree_map_with_path(check, moved, latents)


def _mean_acceptance(infos: Any, count: Array) -> Any:
    """Turn sums over the iterations of a draw into the mean acceptance and total counts."""
    return jax.tree.map(
        lambda info: info._replace(acceptance=info.acceptance / count),
        infos,
        is_leaf=lambda node: isinstance(node, Info),
    )


class _Traced:
    """A function traced once, with the arrays it closes over taken out as ``constants``."""

    def __init__(self, function: Callable[..., Any], *args: Any) -> None:
        closed, self.shapes = jax.make_jaxpr(function, return_shape=True)(*args)
        self.constants = closed.consts
        self._jaxpr = closed.jaxpr
        self._structure = jax.tree.structure(self.shapes)

    def bind(self, constants: list[Array]) -> Callable[..., Any]:
        """The function again, with ``constants`` in the place of what it closed over."""
        flat = jaxpr_as_fun(ClosedJaxpr(self._jaxpr, constants))

        def function(*args: Any) -> Any:
            return jax.tree.unflatten(self._structure, flat(*jax.tree.leaves(args)))

        return function
