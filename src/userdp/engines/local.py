"""Per-user gradients on this machine, compiled by JAX for CPU or GPU.

Each user is computed by the same kernel on that user's own items: a vector is bit for bit a function of its user (and
of theta), whoever else is in the data. The kernels are XLA's (:mod:`userdp.engines.cpu`, :mod:`userdp.engines.gpu`), or
with ``userdp[fast]`` one that is made for the purpose (:mod:`userdp.engines.fused`).
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import DTypeLike

from userdp.arrays import FloatArray
from userdp.data.users import Users
from userdp.engines import cpu, fused
from userdp.engines.cpu import kernel_of
from userdp.engines.groups import grouped, members, n_groups
from userdp.engines.layout import (
    Block,
    LaidOut,
    Layout,
    Packed,
    SideBySide,
    blocks,
    packed,
    small_side_by_side,
    zeros,
)
from userdp.engines.quantized import Quantized, quantized, rounded
from userdp.errors import InvalidInputError
from userdp.problems import (
    GLM,
    Distance,
    JaxLoss,
    Linear,
    LinearPredictorLoss,
    Loss,
    Multinomial,
    Regularized,
    SampledGLM,
    SampledSmoothing,
    SquaredDistance,
)
from userdp.programs import compiled

Objective: TypeAlias = cpu.Objective
UserGradients: TypeAlias = Callable[[Any, Array, Array], Array]


@dataclass(frozen=True)
class GradientOracle:
    """What an optimizer may ask: the users' mean gradients at theta, and the gradient of a public term.

    Attributes
    ----------
    data : pytree of arrays
        The users, an argument of :attr:`user_gradients` so that a compiled loop does not copy them.
    user_gradients : callable
        ``(data, theta, key) -> (n_users, d)``, a NaN row for a null user; traceable by JAX.
    ridge, ridge_centre : float or array, array
        A public (ridge/2)|theta - ridge_centre|^2, whose gradient needs no privacy; the origin by default. An array
        has a ridge for each coordinate.
    n_users, dimension : int
        Shape of an answer.
    """

    data: Any
    user_gradients: UserGradients
    ridge: float | FloatArray
    n_users: int
    dimension: int
    ridge_centre: FloatArray | None = None

    def evaluate(self, theta: FloatArray) -> FloatArray:
        """Return the users' gradients at one point, outside a loop; private."""
        with jax.enable_x64(True):
            gradients = evaluated(self.user_gradients, self.data, jnp.asarray(theta), jax.random.key(0))
            return np.asarray(gradients, dtype=np.float64)

    def ask(self, theta: FloatArray, question: Callable[..., Any], *arguments: Any) -> list[Any]:
        """Ask ``question(gradients, *arguments)`` of the users' gradients at one point, all at once; private."""
        return [question(self.evaluate(theta), *arguments)]


@compiled(0)
def evaluated(user_gradients: UserGradients, data: Any, theta: Array, key: Array) -> Array:
    """Return all users' gradients at one point."""
    return user_gradients(data, theta, key)


def local_oracle(
    loss: Objective,
    users: Users,
    *,
    dimension: int | None = None,
    min_items: int = 1,
    dtype: DTypeLike = np.float32,
    device: str | None = None,
    group_size: int = 1,
    storage: str = "float32",
) -> GradientOracle:
    """Lay out users in memory and return their gradient oracle.

    A ridge penalty (:class:`~userdp.problems.Regularized`) is split off: it does not depend on the data.

    Parameters
    ----------
    dimension : int, optional
        Coordinates of theta, where the loss cannot tell from the number of features.
    device : str, optional
        ``"cpu"`` or ``"gpu"``; what JAX prefers by default.
    group_size : int
        So many users that follow each other stand for one (:mod:`userdp.engines.groups`).
    storage : str
        ``"float16"`` rounds every feature to the nearest float16, ``"int8"`` to a whole multiple of its user's unit of
        that column (:mod:`userdp.engines.quantized`); they are stored so where the compiled kernel serves.
    """
    plain, ridge = without_ridge(loss)
    check_targets(plain, users.has_targets)
    dimension = n_parameters(plain, users.n_features, dimension)
    on_gpu = (device or jax.default_backend()) == "gpu"
    lay_out = layout_for(plain, users.n_features, dtype, on_gpu)
    served = fused.serves(plain, users.n_features, dtype)
    if storage == "int8" and not served:
        users = rounded(users)
    with jax.enable_x64(True):  # else float64 data would be cut to float32
        laid_out: tuple[Any, ...] = lay_out(users, min_items, dtype)
        if storage == "float16":
            laid_out = tuple(_in_halves(part, np.float16 if served else dtype) for part in laid_out)
        elif storage == "int8" and served:
            laid_out = tuple(map(quantized, laid_out))
        # Nobody writes to the layout, so it need not be copied.
        data: Any = jax.device_put(laid_out, device_named(device), may_alias=True)
    user_gradients = gradients_of(plain, users.has_targets, on_gpu)
    if group_size > 1:
        with jax.enable_x64(True):
            data = data, jax.device_put(members(laid_out, group_size), device_named(device))
        user_gradients = grouped(user_gradients)
    return GradientOracle(data, user_gradients, ridge, n_groups(users.n_users, group_size), dimension)


def _in_halves(users: Packed | SideBySide | Block, dtype: DTypeLike) -> Packed | SideBySide | Block:
    """Round features to float16; one that is too large for it becomes an infinity, and its user null."""
    halves = zeros(users.features.shape, np.float16)
    with np.errstate(all="ignore"):  # no warning may tell
        np.copyto(halves, users.features, casting="same_kind")
    return replace(users, features=halves.astype(dtype, copy=False))


def device_named(name: str | None) -> jax.Device | None:
    """Return the CPU or the GPU, or None for what JAX prefers."""
    if name is None:
        return None
    try:
        return jax.devices(name)[0]
    except RuntimeError:
        raise InvalidInputError(
            f"there is no {name} that JAX can use; on a machine with an NVIDIA card: pip install 'userdp[cuda]'"
        ) from None


@lru_cache(maxsize=64)
def gradients_of(loss: Objective, has_targets: bool, on_gpu: bool = False) -> UserGradients:
    """Return one function per loss, so that a compiled loop serves all data of one shape."""
    sum_gradients = kernel_of(loss, has_targets)

    def user_gradients(data: LaidOut, theta: Array, key: Array) -> Array:
        return jnp.concatenate([of_some(users, theta.astype(users.targets.dtype), key) for users in data])

    def of_some(users: Packed | SideBySide | Block | Quantized, theta: Array, key: Array) -> Array:
        match users:
            case Block():
                found = gpu.gradients(loss, sum_gradients, users, theta, key)
            case SideBySide():
                assert isinstance(loss, LinearPredictorLoss)  # as layout_for has it
                found = cpu.side_by_side(loss, users, theta)
            case Quantized():
                assert isinstance(loss, GLM)  # whom the kernel serves
                return fused.glm_gradients(loss, users, theta)  # null users have units that make them so
            case Packed() if isinstance(loss, GLM) and fused.serves(loss, len(theta), theta.dtype):
                found = fused.glm_gradients(loss, users, theta)
            case Packed():
                found = cpu.one_by_one(sum_gradients, users, theta, key)
        return jnp.where(users.usable[: users.n_users, None], found, jnp.nan)

    if on_gpu:
        from userdp.engines import gpu
    return user_gradients


def layout_for(loss: Objective, n_features: int, dtype: DTypeLike, on_gpu: bool) -> Layout:
    """How users are laid out for whoever computes the gradients of this loss."""
    if on_gpu:
        return blocks
    if isinstance(loss, LinearPredictorLoss) and not fused.serves(loss, n_features, dtype):
        return small_side_by_side
    return packed


def n_parameters(loss: Objective, n_features: int, given: int | None = None) -> int:
    """How many coordinates theta has for rows of ``n_features`` numbers.

    Raises
    ------
    InvalidInputError
        If another number is ``given``: kernels would read past a row. A :class:`~userdp.problems.JaxLoss` does not
        tell its number, so that any may be given.
    """
    inside = _inside(loss)
    known = inside.n_parameters(n_features) if isinstance(inside, Loss) else n_features
    if given is None:
        return known
    if given != known and not isinstance(inside, JaxLoss):
        raise InvalidInputError(
            f"theta has {known} coordinates for rows of {n_features} features, and start has {given}"
        )
    return given


def _inside(loss: Objective) -> Objective:
    """Return what is regularized or smoothed, if anything is."""
    return _inside(loss.loss) if isinstance(loss, Regularized | SampledSmoothing) else loss


def without_ridge(loss: Objective) -> tuple[Objective, float]:
    """Split a loss into its data-dependent part and the strength of its ridge penalties.

    Smoothing adds a constant to a ridge penalty, so that one comes out of a smoothed loss as well.
    """
    match loss:
        case Regularized():
            plain, ridge = without_ridge(loss.loss)
            return plain, ridge + loss.strength
        case SampledSmoothing(loss=Regularized() as inner):
            plain, ridge = without_ridge(SampledSmoothing(inner.loss, loss.radius))
            return plain, ridge + inner.strength
    return loss, 0.0


def check_targets(loss: Objective, has_targets: bool) -> None:
    """Refuse a loss of labelled items for rows without targets, and one of plain rows for rows with targets."""
    inside = _inside(loss)
    name = type(inside).__name__
    if not has_targets and isinstance(inside, LinearPredictorLoss | SampledGLM | Multinomial):
        raise InvalidInputError(
            f"{name} needs a target for each row; give y to Users.from_rows(X, groups, y)"
        )
    if has_targets and isinstance(inside, Linear | Distance | SquaredDistance):
        raise InvalidInputError(f"{name} is a loss of rows without targets; leave y out of Users.from_rows")
