"""Gates decide whether answers that were scaled to concentrated data may leave.

A gate sees concentration indices (integers of sensitivity 1) and nothing else. The one-sided AboveThreshold
is in :mod:`userdp.mechanisms.above_threshold`; proofs of all three are in ``docs/proofs/gates.md``.
"""

from dataclasses import dataclass, field

from userdp.errors import InvalidInputError
from userdp.mechanisms.noise import NoiseSource


@dataclass
class DeferredGate:
    """Remember the smallest index of all rounds, compare it with a threshold once, at the end.

    Passes iff resolution * min_t h_t + N_Z(0, scale^2) >= threshold.

    **Guarantee**: one GaussianEvent of sensitivity ``resolution`` beside the answers of rounds of sufficient
    index, plus the probability that a round below the index passes.
    **Assumes**: nothing of the rounds leaves before :meth:`passes` said so, and never if it refused;
    its noise is drawn once.
    """

    resolution: int
    scale: float
    threshold: int
    noise: NoiseSource = field(repr=False)
    _smallest: int | None = field(default=None, init=False, repr=False)
    _closed: bool = field(default=False, init=False, repr=False)

    def observe(self, index: int) -> None:
        """Take note of one round's concentration index; not after the decision."""
        if self._closed:
            raise InvalidInputError("the gate has decided; a round after it would leave unchecked")
        self._smallest = index if self._smallest is None else min(self._smallest, index)

    def passes(self) -> bool:
        """Draw the gate's noise and decide; a second call raises."""
        if self._closed:
            raise InvalidInputError("the gate has decided; another decision costs its budget again")
        if self._smallest is None:
            raise InvalidInputError("the gate has seen no round; answer a query first")
        self._closed = True
        noisy = self.resolution * self._smallest + int(self.noise.discrete_gaussian(self.scale, 1)[0])
        return noisy >= self.threshold


@dataclass(frozen=True)
class GaussianGate:
    """Release each round's index with Gaussian noise, in units of 1/resolution.

    **Guarantee**: each call is one GaussianEvent of sensitivity ``resolution``.
    """

    resolution: int
    scale: float
    noise: NoiseSource = field(repr=False)

    def noisy_index(self, index: int) -> int:
        """Return resolution * h + N_Z(0, scale^2)."""
        return self.resolution * index + int(self.noise.discrete_gaussian(self.scale, 1)[0])
