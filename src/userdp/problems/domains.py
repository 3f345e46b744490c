"""Closed convex sets and the Euclidean projection onto each.

Every ``project`` is a pure function that JAX can trace: ``argmin { |z - theta| : z in the set }``.
"""

import math
from abc import ABC, abstractmethod
from dataclasses import astuple, dataclass
from functools import cached_property
from typing import ClassVar, final

import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.lax import Precision
from numpy.typing import ArrayLike, NDArray

from userdp.errors import InvalidInputError
from userdp.problems._checks import positive, settle

__all__ = ["AffineSubspace", "Box", "Domain", "L1Ball", "L2Ball", "Simplex", "WholeSpace"]


class Domain(ABC):
    """A closed convex set of R^d: where theta may lie. Public knowledge, never read off the data.

    A domain is a static argument of ``jax.jit``: what was compiled for one serves all that are equal to it. Those of
    this library compare by value; one of your own does so by identity, unless it says otherwise.
    """

    @property
    @abstractmethod
    def diameter(self) -> float:
        """``max { |a - b| : a, b in the set }``, infinite where the set is unbounded."""

    @abstractmethod
    def project(self, theta: Array) -> Array:
        """``argmin { |z - theta| : z in the set }``, of the shape and type of ``theta``."""

    @final
    def contains(self, theta: Array, tolerance: float = 1e-5) -> Array:
        """Whether theta lies within ``tolerance * max(1, |theta|)`` of the set."""
        distance = jnp.linalg.norm(theta - self.project(theta))
        within: Array = distance <= tolerance * jnp.maximum(1.0, jnp.linalg.norm(theta))
        return within


class _ComparesByValue(Domain):
    """A dataclass of numbers and arrays; equal where all of them are, bit for bit."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _ComparesByValue) and self._value == other._value

    def __hash__(self) -> int:
        return hash(self._value)

    @cached_property
    def _value(self) -> tuple[object, ...]:
        arrays = [np.asarray(value, dtype=np.float64) for value in astuple(self)]  # type: ignore[call-overload]
        return type(self), *((array.shape, array.tobytes()) for array in arrays)


@final
@dataclass(frozen=True, eq=False)
class WholeSpace(_ComparesByValue):
    """R^d."""

    diameter: ClassVar[float] = math.inf

    def project(self, theta: Array) -> Array:
        """``theta``."""
        return theta


@final
@dataclass(frozen=True, eq=False)
class L2Ball(_ComparesByValue):
    """``{ z : |z - center| <= radius }``.

    Parameters
    ----------
    radius : float
        Positive.
    center : float or array of shape (d,)
        A number stands for the vector with all coordinates equal to it.
    """

    radius: float
    center: ArrayLike = 0.0

    def __post_init__(self) -> None:
        settle(self, radius=positive("radius", self.radius, "use WholeSpace where theta is not bounded"))
        settle(self, center=_finite_copy("center", self.center))

    @property
    def diameter(self) -> float:
        """``2 radius``."""
        return 2.0 * self.radius

    def project(self, theta: Array) -> Array:
        """``argmin { |z - theta| : |z - center| <= radius }``: scaled towards the centre."""
        center = _like(theta, "center", self.center)
        offset = theta - center
        length = jnp.linalg.norm(offset)
        shrunk = center + offset * (self.radius / jnp.maximum(length, self.radius))
        return jnp.where(length > self.radius, shrunk, theta)


@final
@dataclass(frozen=True, eq=False)
class Box(_ComparesByValue):
    """``{ z : lower <= z <= upper }``, coordinate by coordinate.

    Parameters
    ----------
    lower, upper : array of shape (d,)
        Entries may be infinite; ``lower <= upper``.
    """

    lower: ArrayLike
    upper: ArrayLike

    def __post_init__(self) -> None:
        lower, upper = _frozen_copy(self.lower), _frozen_copy(self.upper)
        settle(self, lower=lower, upper=upper)
        if lower.ndim != 1 or lower.shape != upper.shape:
            raise InvalidInputError(
                f"lower and upper must be vectors of one length, got shapes {lower.shape} and {upper.shape}; "
                "write numpy.full(d, bound) for a cube."
            )
        empty = ~((lower <= upper) & (lower < np.inf) & (upper > -np.inf))
        if empty.any():
            raise InvalidInputError(
                "lower <= upper must hold in every coordinate, with a finite number between them, got "
                f"{int(empty.sum())} coordinates where it does not; swap or widen these bounds."
            )

    @property
    def diameter(self) -> float:
        """``|upper - lower|``."""
        return float(np.linalg.norm(np.asarray(self.upper, float) - np.asarray(self.lower, float)))

    def project(self, theta: Array) -> Array:
        """``argmin { |z - theta| : lower <= z <= upper }``: clipped."""
        return jnp.clip(theta, _like(theta, "lower", self.lower), _like(theta, "upper", self.upper))


@final
@dataclass(frozen=True, eq=False)
class Simplex(_ComparesByValue):
    """``{ z : z >= 0, sum z = total }``: probability vectors for ``total = 1``.

    Parameters
    ----------
    total : float
        Positive.
    """

    total: float = 1.0

    def __post_init__(self) -> None:
        settle(self, total=positive("total", self.total, "use 1 for probability vectors"))

    @property
    def diameter(self) -> float:
        """``sqrt(2) total``, the distance of two corners."""
        return math.sqrt(2) * self.total

    def project(self, theta: Array) -> Array:
        """``argmin { |z - theta| : z >= 0, sum z = total }``: ``max(theta - shift, 0)``."""
        return _onto_simplex(theta, self.total)


@final
@dataclass(frozen=True, eq=False)
class L1Ball(_ComparesByValue):
    """``{ z : sum |z_i| <= radius }``.

    Parameters
    ----------
    radius : float
        Positive.
    """

    radius: float

    def __post_init__(self) -> None:
        settle(self, radius=positive("radius", self.radius, "use WholeSpace where theta is not bounded"))

    @property
    def diameter(self) -> float:
        """``2 radius``, the distance of opposite corners."""
        return 2.0 * self.radius

    def project(self, theta: Array) -> Array:
        """``argmin { |z - theta| : sum |z_i| <= radius }``: the sizes go onto a simplex, signs stay."""
        sizes = jnp.abs(theta)
        return jnp.where(
            jnp.sum(sizes) <= self.radius, theta, jnp.sign(theta) * _onto_simplex(sizes, self.radius)
        )


@final
@dataclass(frozen=True, eq=False)
class AffineSubspace(_ComparesByValue):
    """``{ z : A z = b }``, for a system that has a solution.

    Parameters
    ----------
    matrix : array of shape (k, d)
        A, of any rank.
    offset : array of shape (k,)
        b, in the range of A.
    """

    matrix: ArrayLike
    offset: ArrayLike

    def __post_init__(self) -> None:
        A, b = _finite_copy("matrix", self.matrix), _finite_copy("offset", self.offset)
        settle(self, matrix=A, offset=b)
        if A.ndim != 2 or b.shape != A.shape[:1]:
            raise InvalidInputError(
                f"matrix must have shape (k, d) and offset (k,), got {A.shape} and {b.shape}; "
                "give one offset per row of the matrix."
            )
        residual = np.linalg.norm(A @ self._point - b)
        if residual > 1e-8 * max(1.0, float(np.linalg.norm(b))):
            raise InvalidInputError(
                f"matrix @ z = offset must have a solution, got a best residual of {residual:.3g}; "
                "remove contradictory rows."
            )

    @property
    def diameter(self) -> float:
        """Infinite, or 0 where A has full column rank and the set is one point."""
        rank, d = self._normals.shape
        return 0.0 if rank == d else math.inf

    def project(self, theta: Array) -> Array:
        """``argmin { |z - theta| : A z = b }``: the part of ``theta - z0`` along the rows of A is removed."""
        normals = jnp.asarray(self._normals, theta.dtype)
        offset = theta - _like(theta, "matrix's rows", self._point)
        along = jnp.matmul(normals, offset, precision=Precision.HIGHEST)
        return theta - jnp.matmul(along, normals, precision=Precision.HIGHEST)

    @cached_property
    def _normals(self) -> NDArray[np.float64]:
        """Orthonormal basis of the row space, one vector per row."""
        _, singular, right = np.linalg.svd(np.asarray(self.matrix, dtype=np.float64), full_matrices=False)
        largest = singular.max(initial=0.0)
        return np.asarray(right[singular > 1e-12 * largest])

    @cached_property
    def _point(self) -> NDArray[np.float64]:
        """The solution of A z = b of least norm."""
        A, b = np.asarray(self.matrix, dtype=np.float64), np.asarray(self.offset, dtype=np.float64)
        return np.asarray(np.linalg.pinv(A, rcond=1e-12) @ b)


def _onto_simplex(theta: Array, total: float) -> Array:
    """``max(theta - s, 0)`` with the s that makes it sum to ``total``, found from the sorted values."""
    # Only differences matter, and subtracting the largest keeps the running sums small.
    centred = theta - jnp.max(theta)
    falling = -jnp.sort(-centred)
    counts = jnp.arange(1, theta.shape[0] + 1, dtype=theta.dtype)
    shifts = (jnp.cumsum(falling) - total) / counts
    active = jnp.sum(falling > shifts)
    return jnp.maximum(centred - shifts[active - 1], 0)


def _frozen_copy(value: ArrayLike) -> NDArray[np.float64]:
    array = np.array(value, dtype=np.float64)
    array.setflags(write=False)
    return array


def _finite_copy(name: str, value: ArrayLike) -> NDArray[np.float64]:
    array = _frozen_copy(value)
    if not np.isfinite(array).all():
        raise InvalidInputError(f"{name} must be finite, got NaN or infinity; give a public finite value.")
    return array


def _like(theta: Array, name: str, value: ArrayLike) -> Array:
    array = np.asarray(value, dtype=np.float64)
    if array.shape not in ((), theta.shape):
        raise InvalidInputError(
            f"theta must have the shape of the domain's {name}, {array.shape}, got {theta.shape}; "
            "build the domain with one entry per coordinate of theta."
        )
    return jnp.asarray(array, theta.dtype)
