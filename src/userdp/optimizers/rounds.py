"""The rounds of DP-SGD: one compiled loop for users on this machine, a loop of questions for users in shards.

Both take the same step (:func:`_advance`), and theta is the same bit for bit: the step stands in a branch by itself,
and its products are rounded before they are added (:func:`_rounded`), whatever else the compiler sees around it. The
numbers of a step, and of steps, are arguments of what is compiled, so other data of the same shape compile nothing
again, nor do other numbers of rounds up to a power of two.

A mean that cannot run inside a loop is asked round by round (:func:`run_session`).
"""

from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from userdp.arrays import FloatArray
from userdp.engines.local import GradientOracle, UserGradients, evaluated
from userdp.engines.shards import ShardedOracle
from userdp.means.in_loop import CompiledMean, InLoopMean, ShardedMean
from userdp.means.interface import Session
from userdp.problems import Domain
from userdp.programs import compiled

# Loops are compiled for so many rounds, or for twice, four times as many.
_FEWEST_ROUNDS = 128


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Descent:
    """The public numbers of a step, an argument of the compiled loops."""

    rounds: int
    first_averaged: int
    step_size: float | FloatArray
    domain: Domain = field(metadata={"static": True})
    ridge: float | FloatArray


class Carry(NamedTuple):
    """What passes from round to round: theta, the sum of the averaged iterates, the mean's state."""

    theta: Any
    total: Any
    state: Any


class Progress(Protocol):
    """Where a long run writes down how far it is; see :class:`userdp.optimizers.Checkpoint`."""

    @property
    def every(self) -> int:
        """After how many rounds."""

    def load(self, like: Carry) -> tuple[int, Carry]:
        """Return the number of rounds done and what they left; none and ``like`` at the start."""

    def save(self, done: int, carry: Carry) -> None:
        """Write down what ``done`` rounds left."""


def run_rounds(
    descent: Descent,
    private: InLoopMean,
    oracle: GradientOracle | ShardedOracle,
    theta_0: Array,
    draws: Any,
    key: Array,
    progress: Progress | None = None,
) -> tuple[FloatArray, Any]:
    """Run all rounds; return the average iterate and the mean's final state."""
    centre = _ridge_centre(oracle, theta_0)
    carry, done = Carry(theta_0, np.zeros(theta_0.shape), private.initial_state()), 0
    if progress is not None:
        done, carry = progress.load(carry)
    while done < descent.rounds:
        last = descent.rounds if progress is None else min(done + progress.every, descent.rounds)
        if isinstance(oracle, ShardedOracle):
            carry = _in_shards(descent, private, oracle, centre, carry, draws, key, done, last)
        else:
            carry = _compiled(descent, private, oracle, centre, carry, draws, key, done, last)
        done = last
        if progress is not None:
            progress.save(done, carry)
    return np.asarray(carry.total) / (descent.rounds - descent.first_averaged), carry.state


def _compiled(
    descent: Descent,
    private: InLoopMean,
    oracle: GradientOracle,
    centre: Array,
    carry: Carry,
    draws: Any,
    key: Array,
    first: int,
    last: int,
) -> Carry:
    few = jax.tree.map(_with_room, draws)
    loop = partial(_loop, oracle.user_gradients, descent, private.compiled, oracle.data, centre)
    return Carry(*loop(carry, first, last, few, key))


def _with_room(draw: Any) -> Any:
    """Append zeros that no round reads, up to a power of two: other numbers of rounds compile nothing again."""
    rounds = len(draw)
    room = max(_FEWEST_ROUNDS, 1 << (rounds - 1).bit_length())
    return np.pad(draw, [(0, room - rounds)] + [(0, 0)] * (np.ndim(draw) - 1))


@compiled(0)
def _loop(
    user_gradients: UserGradients,
    descent: Descent,
    private: CompiledMean,
    data: Any,
    centre: Array,
    carry: Carry,
    first: Array,
    last: Array,
    draws: Any,
    key: Array,
) -> Carry:
    """Run some rounds in one compiled loop."""

    def step(t: Array, carry: Carry) -> Carry:
        draw = jax.tree.map(lambda draws: draws[t], draws)
        vectors = user_gradients(data, carry.theta, jax.random.fold_in(key, t))
        return _advance(descent, private, centre, carry, private.exact(vectors), draw, t)

    left: Carry = jax.lax.fori_loop(first, last, step, carry)
    return left


def _in_shards(
    descent: Descent,
    private: InLoopMean,
    oracle: ShardedOracle,
    centre: Array,
    carry: Carry,
    draws: Any,
    key: Array,
    first: int,
    last: int,
) -> Carry:
    """Run some rounds by asking the shards."""
    assert isinstance(private, ShardedMean)  # DPSGD refuses others
    hint = None
    for t in range(first, last):
        round_key = np.asarray(jax.random.key_data(_fold_in(key, t)))
        theta: FloatArray = np.asarray(carry.theta)
        exact, hint = private.exact_of_shards(oracle.at(theta, round_key), hint)
        draw = jax.tree.map(lambda draw, t=t: draw[t], draws)
        carry = Carry(*_one_step(descent, private.compiled, centre, carry, exact, draw, t))
    return carry


_fold_in = jax.jit(jax.random.fold_in)


@compiled()
def _one_step(
    descent: Descent, private: CompiledMean, centre: Array, carry: Carry, exact: Any, draw: Any, t: Array
) -> Carry:
    return _advance(descent, private, centre, carry, exact, draw, t)


def _advance(
    descent: Descent, private: CompiledMean, centre: Array, carry: Carry, exact: Any, draw: Any, t: Array
) -> Carry:
    """Answer a round with its noise and take the step it says."""

    def step(carry: Carry, exact: Any, draw: Any, centre: Array) -> Carry:
        state, gradient = private.answer(carry.state, exact, draw)
        theta = _moved(descent, carry.theta, gradient, centre, t)
        return Carry(theta, carry.total + jnp.where(t >= descent.first_averaged, theta, 0.0), state)

    # The predicate always holds, and the compiler does not know it.
    taken: Carry = jax.lax.cond(t >= 0, step, lambda carry, *_: carry, carry, exact, draw, centre)
    return taken


def _moved(descent: Descent, theta: Array, gradient: Array, centre: Array, t: Array) -> Array:
    """Return Proj(theta - eta (g + ridge (theta - centre)))."""
    pull = _rounded(jnp.asarray(descent.ridge) * _rounded(theta - centre, t), t)
    move = _rounded(jnp.asarray(descent.step_size) * _rounded(_rounded(gradient, t) + pull, t), t)
    return _rounded(descent.domain.project(_rounded(theta - move, t)), t)


def _rounded(x: Array, t: Array) -> Array:
    """Return x, by way of its bits: a compiler may fuse a product with a sum, or not, but cannot here.

    The bits are combined with ``t >> 63``, which is 0 for every round, and the compiler does not know it.
    """
    bits = jax.lax.bitcast_convert_type(x, jnp.int64)
    same: Array = jax.lax.bitcast_convert_type(bits ^ (jnp.asarray(t, jnp.int64) >> 63), x.dtype)
    return same


def run_session(
    descent: Descent, session: Session, oracle: GradientOracle, theta_0: Array, key: Array
) -> FloatArray:
    """Ask a session round by round; return the average iterate.

    Its answers may leave as they come, so what is computed from them may as well. An interrupted run starts again, with
    the noise that it wrote down.
    """
    theta, total, centre = theta_0, jnp.zeros_like(theta_0), _ridge_centre(oracle, theta_0)
    for t in range(descent.rounds):
        vectors = evaluated(oracle.user_gradients, oracle.data, theta, _fold_in(key, t))
        answer = session.answer(np.asarray(vectors, dtype=np.float64))
        theta = _one_move(descent, theta, jnp.asarray(answer), centre, t)
        total = total + theta if t >= descent.first_averaged else total
    return np.asarray(total) / (descent.rounds - descent.first_averaged)


_one_move = compiled()(_moved)


def _ridge_centre(oracle: GradientOracle | ShardedOracle, theta_0: Array) -> Array:
    return jnp.zeros_like(theta_0) if oracle.ridge_centre is None else jnp.asarray(oracle.ridge_centre)
