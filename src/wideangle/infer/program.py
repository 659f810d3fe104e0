"""From a recipe to a compiled chunk of rounds.

On a CPU the chains form two groups, each with its own thread and step sizes, since a program of
small operations keeps only one core busy. On a device all chains are one group. Chains of several
data sets are more groups, each with its own data: on a CPU for the same threads, on a device
vmapped.

The user's functions are traced once, for one chain. The arrays they close over (the data) become
arguments of the compiled program: otherwise they would be constants in it, which for a large data
set costs minutes of compilation and a second copy.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import wraps
from typing import Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import ClosedJaxpr, jaxpr_as_fun

from wideangle.infer.kernel import DualAveraging, Info, Update, choose
from wideangle.sharding import current_mesh, n_threads
from wideangle.types import Array, Latents, Scalar

Recipe: TypeAlias = Callable[..., Update]
"""From step sizes to an update: tuning stays outside the kernels. All chains share the steps, and
``steps["iteration"]`` counts iterations, so that trajectories of chains that run in parallel can
have one length. With ``data`` given to the run, a recipe takes it as its second argument, and one
compiled program serves every data set of a shape."""

QUICKLY: dict[str, Any] = {
    "xla_backend_optimization_level": 1,
    "xla_llvm_disable_expensive_passes": True,
}
"""XLA options that cut compile time on a CPU by a third; programs are no slower, because matrix
products take most of the time."""
if jax.__version_info__ < (0, 11):  # newer versions lack the option
    QUICKLY["xla_cpu_use_fusion_emitters"] = False
N_GROUPS = 2
"""Groups of chains on a CPU."""
MAX_ROUNDS = 64
"""Most rounds of one compiled chunk."""
MAX_BYTES = 2**26
"""Most memory for the draws of one chunk."""
KEY_KIND = "threefry2x32"
"""Fixed, so that a saved state has the same meaning under every default of JAX."""


class RunState(NamedTuple):
    """Everything needed to continue, as a plain pytree of arrays."""

    latents: Latents
    """Leading axis: chain, those of one data set after those of another."""
    tuning: dict[str, DualAveraging]
    """Leading axis: group of chains, likewise."""
    iteration: Array
    """Iterations done, warm-up included."""
    keys: Array
    """Raw chain keys, unsigned integers of shape ``(n_chains, 2)``."""


class Program:
    """The rounds of one group of chains, or of those of many data sets at once, compiled."""

    def __init__(
        self,
        recipe: Recipe,
        state: RunState,
        targets: Mapping[str, float],
        collect: Callable[..., Any],
        sets: Sequence[Any],
    ) -> None:
        given = () if sets[0] is None else (sets[0],)
        self._vmapped = len(sets) > 1 and not on_cpu()
        one = jax.tree.map(
            lambda leaf: jax.ShapeDtypeStruct(leaf.shape[1:], leaf.dtype), state.latents
        )
        steps = {name: jax.ShapeDtypeStruct((), jnp.result_type(float)) for name in state.tuning}
        counter, key = jax.ShapeDtypeStruct((), jnp.int32), jax.ShapeDtypeStruct((2,), jnp.uint32)
        iterate = _Traced(_iteration(recipe), one, steps, key, counter, *given)
        gather = _Traced(collect, one, *given)
        self.shapes = shapes = gather.shapes, iterate.shapes[1]
        """Shapes of the values and infos of one draw of one chain."""
        if missing := targets.keys() - shapes[1].keys():
            raise ValueError(
                f"targets for {sorted(missing)}, but the blocks are {sorted(shapes[1])}"
            )
        n_chains = state.keys.shape[0] // _n_groups(state, len(sets))
        at_once = state.keys.shape[0] // (1 if self._vmapped else len(sets))
        size = at_once * sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(shapes))
        self.n_rounds = n_rounds = max(1, min(MAX_ROUNDS, MAX_BYTES // max(size, 1)))
        """Rounds that fit into one call."""

        def zeros(*leading: int) -> Any:
            return jax.tree.map(lambda s: jnp.zeros((*leading, *s.shape), s.dtype), shapes)

        @jax.jit
        def rounds(
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

        self._rounds = _over_sets(rounds, len(sets)) if self._vmapped else rounds
        self._constants = iterate.constants, gather.constants
        self._executable: Callable[..., Any] | None = None

    @property
    def is_compiled(self) -> bool:
        """Whether it was called before."""
        return self._executable is not None

    def place(self, sets: Sequence[Any]) -> list[Any]:
        """The data sets as :meth:`advance` takes them: one pytree on a device."""
        return (
            [jax.tree.map(lambda *leaves: jnp.stack(leaves), *sets)] if self._vmapped else [*sets]
        )

    def advance(
        self, placed: list[Any], state: RunState, limit: int, n_warmup: int, thin: int
    ) -> tuple[RunState, Any]:
        """``limit`` rounds: the state after them, and their values and infos.

        A round is one iteration of warm-up, or the ``thin`` iterations of one draw.
        """
        counts = [jnp.int32(n) for n in (limit, n_warmup, thin)]
        given = [() if one is None else (one,) for one in placed]
        if self._vmapped:
            self._executable = self._rounds
            return self._rounds(self._constants, given[0], state, *counts)
        n_groups = _n_groups(state, len(placed))
        parts = [_group(state, i, n_groups) for i in range(n_groups)]
        rounds = self._executable or self._rounds
        if self._executable is None and on_cpu():
            # Here and not in a thread, which has other JAX settings.
            lowered = self._rounds.lower(self._constants, given[0], parts[0], *counts)
            rounds = lowered.compile(QUICKLY)
        self._executable = rounds

        def work(i: int) -> Any:
            own = given[i * len(given) // n_groups]
            return jax.block_until_ready(rounds(self._constants, own, parts[i], *counts))

        n = min(n_threads(), n_groups)
        if n == 1:
            return _together([*map(work, range(n_groups))])
        with ThreadPoolExecutor(n) as pool:
            return _together([*pool.map(work, range(n_groups))])


_PROGRAMS: weakref.WeakKeyDictionary[Recipe, dict[Any, Program]] = weakref.WeakKeyDictionary()


def compiled(
    recipe: Recipe,
    state: RunState,
    targets: Mapping[str, float],
    collect: Callable[..., Any],
    sets: Sequence[Any] = (None,),
) -> Program:
    """The program of a recipe; made once for every recipe and shape of its state and data."""
    cpu = on_cpu()
    # On a CPU each group runs by itself, so that the number of data sets does not matter.
    first = _group(state, 0, _n_groups(state, len(sets))) if cpu else state
    leaves, structure = jax.tree.flatten((first, sets[0]))
    shapes = tuple((jnp.shape(leaf), jnp.result_type(leaf)) for leaf in leaves)
    where = (cpu, 1 if cpu else len(sets))
    signature = (collect, tuple(sorted(targets.items())), shapes, structure, where)
    programs = _PROGRAMS.setdefault(recipe, {})
    if signature not in programs:
        programs[signature] = Program(recipe, state, targets, collect, sets)
    return programs[signature]


def _over_sets(rounds: Callable[..., Any], n_sets: int) -> Callable[..., Any]:
    """The rounds of many data sets, one group each, as one program."""

    def cut(leaf: Array) -> Array:
        return leaf.reshape(n_sets, -1, *leaf.shape[1:])

    def joined(leaf: Array) -> Array:
        return leaf.reshape(-1, *leaf.shape[2:])

    @jax.jit
    def many(constants: Any, given: Any, state: RunState, *counts: Array) -> tuple[RunState, Any]:
        axes: Any = RunState(0, 0, None, 0)
        over = jax.vmap(rounds, (None, 0, axes, *(None,) * len(counts)), (axes, 1))
        latents, keys = jax.tree.map(cut, (state.latents, state.keys))
        state, values = over(constants, given, state._replace(latents=latents, keys=keys), *counts)
        latents, keys = jax.tree.map(joined, (state.latents, state.keys))
        values = jax.tree.map(jax.vmap(joined), values)
        return state._replace(latents=latents, keys=keys), values

    return many


def _n_groups(state: RunState, n_sets: int) -> int:
    """Groups of all data sets; without a step size, all chains of one are a group."""
    tuned = jax.tree.leaves(state.tuning)
    return tuned[0].shape[0] if tuned else n_sets


def groups_for(n_chains: int) -> int:
    """Number of parallel groups of chains; the number of cores does not change the draws."""
    return N_GROUPS if on_cpu() and n_chains >= 2 * N_GROUPS and n_chains % N_GROUPS == 0 else 1


def on_cpu() -> bool:
    """Whether programs run on the CPU alone."""
    device = jax.config.jax_default_device  # pyright: ignore[reportAttributeAccessIssue]
    platform = jax.default_backend() if device is None else getattr(device, "platform", device)
    return platform == "cpu" and current_mesh() is None


def jit_quickly(function: Callable[..., Any], **options: Any) -> Callable[..., Any]:
    """:func:`jax.jit` for a program that is compiled in most fits; on a CPU :data:`QUICKLY`."""
    usual, quick = (jax.jit(function, compiler_options=o, **options) for o in (None, QUICKLY))

    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        return (quick if on_cpu() else usual)(*args, **kwargs)

    return call


def together(states: Sequence[RunState]) -> RunState:
    """States of several data sets, after as many iterations, as one."""
    if len(states) == 1:
        return states[0]
    return RunState(
        _joined([state.latents for state in states]),
        _joined([state.tuning for state in states]),
        states[0].iteration,
        _joined([state.keys for state in states]),
    )


def divided(state: RunState, n_sets: int) -> list[RunState]:
    """The reverse of :func:`together`."""
    if n_sets == 1:
        return [state]

    leading = state._replace(iteration=())
    parts = jax.tree.map(lambda leaf: np.split(np.asarray(leaf), n_sets), leading)
    is_list = lambda node: isinstance(node, list)  # noqa: E731
    return [
        jax.tree.map(lambda cut, i=i: cut[i], parts, is_leaf=is_list)._replace(
            iteration=state.iteration
        )
        for i in range(n_sets)
    ]


def _group(state: RunState, i: int, n_groups: int) -> RunState:
    """The state of one group, with its own step sizes."""
    tuning = jax.tree.map(lambda leaf: np.asarray(leaf)[i], state.tuning)
    if n_groups == 1:
        return state._replace(tuning=tuning)
    size = state.keys.shape[0] // n_groups
    own = slice(i * size, (i + 1) * size)
    # By NumPy on the CPU, without compilation.
    cut = (state.latents, state.keys)
    latents, keys = jax.tree.map(lambda leaf: np.asarray(leaf)[own], cut)
    return RunState(latents, tuning, state.iteration, keys)


def _together(parts: list[tuple[RunState, Any]]) -> tuple[RunState, Any]:
    """The groups as one state, and their values and infos, axes (round, chain, ...)."""
    states, values = zip(*parts, strict=True)
    merged = RunState(
        _joined([state.latents for state in states]),
        jax.tree.map(lambda *leaves: np.stack(leaves), *(state.tuning for state in states)),
        states[0].iteration,
        _joined([state.keys for state in states]),
    )
    return merged, _joined([*values], axis=1)


def _joined(parts: list[Any], axis: int = 0) -> Any:
    if len(parts) == 1:
        return parts[0]
    return jax.tree.map(lambda *leaves: np.concatenate(leaves, axis), *parts)


def _iteration(recipe: Recipe) -> Callable[..., Any]:
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
    """Check that an update returns the types it was given, as a compiled loop requires."""
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
    """A function traced once, with the arrays it closes over extracted as ``constants``."""

    def __init__(self, function: Callable[..., Any], *args: Any) -> None:
        closed, self.shapes = jax.make_jaxpr(function, return_shape=True)(*args)
        self.constants = closed.consts
        self._jaxpr = closed.jaxpr
        self._structure = jax.tree.structure(self.shapes)

    def bind(self, constants: list[Array]) -> Callable[..., Any]:
        """The function again, with ``constants`` in place of the arrays it closed over."""
        flat = jaxpr_as_fun(ClosedJaxpr(self._jaxpr, constants))

        def function(*args: Any) -> Any:
            return jax.tree.unflatten(self._structure, flat(*jax.tree.leaves(args)))

        return function
