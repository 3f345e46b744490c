"""Private means of users' vectors inside a ball, and what is made of them.

Proofs: ``docs/proofs/clipped_mean.md``, ``docs/proofs/stages.md``.
"""

from collections.abc import Callable
from dataclasses import dataclass

from userdp.arrays import FloatArray, IntArray
from userdp.estimators.per_user import Vectors, total
from userdp.means.clipped import clip_to_lattice_ball
from userdp.means.lattice import Lattice
from userdp.mechanisms.noise import NoiseSource
from userdp.privacy.accounting import GaussianEvent, gaussian_scale


@dataclass(frozen=True)
class BallMean:
    """A private mean inside a ball, its noise per coordinate, and its cost."""

    value: FloatArray
    noise_std: float
    event: GaussianEvent


def private_mean_in_ball(
    vectors: Vectors, centre: FloatArray, radius: float, mu: float, name: str, noise: NoiseSource
) -> BallMean:
    """Average the users' vectors clipped into a ball; a null user counts as its centre.

    **Guarantee**: the event's; sensitivity 2 radius/n (``docs/proofs/clipped_mean.md``).
    """

    def clipped_sum(lattice: Lattice) -> IntArray:
        return total(lambda some: clip_to_lattice_ball(some, centre, lattice).sum(axis=0), vectors)

    return ball_mean(clipped_sum, centre, radius, vectors.shape[0], mu, name, noise)


def ball_mean(
    clipped_sum: Callable[[Lattice], IntArray],
    centre: FloatArray,
    radius: float,
    n_users: int,
    mu: float,
    name: str,
    noise: NoiseSource,
) -> BallMean:
    """Add noise to the sum of users' offsets from the centre of a ball, whoever computes it; return their mean.

    **Guarantee**: the event's, if every user adds an offset of norm at most ``radius`` on the lattice.
    """
    lattice = Lattice.fine_enough(radius, n_users, len(centre))
    event = ball_event(lattice, mu, name)
    noisy = clipped_sum(lattice) + noise.discrete_gaussian(event.scale, len(centre))
    step = lattice.step / n_users
    return BallMean(centre + noisy * step, event.scale * step, event)


def ball_event(lattice: Lattice, mu: float, name: str) -> GaussianEvent:
    """Return what a mean inside a ball costs: in units of the lattice, so the same for every radius."""
    sensitivity = 2.0 * lattice.radius_units
    return GaussianEvent(name, sensitivity, gaussian_scale(sensitivity, mu), lattice.dimension)


def weighted(guess: FloatArray, variance: FloatArray, found: BallMean) -> FloatArray:
    """Weigh a guess of known variance against a noisy mean."""
    trust = variance / (variance + found.noise_std**2)
    between: FloatArray = guess + trust * (found.value - guess)
    return between


def shrunk(found: BallMean, least: float) -> FloatArray:
    """Shrink a noisy vector towards its average coordinate, which is ``least`` or more."""
    typical = max(float(found.value.mean()), least)
    signal = max(float(found.value.var()) - found.noise_std**2, 0.0) if len(found.value) > 1 else 1.0
    between: FloatArray = typical + (found.value - typical) * signal / (signal + found.noise_std**2)
    return between
