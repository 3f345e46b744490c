r"""Sessions of several rounds on two inputs: how many rounds are answered, and with what.

A session shows its answers up to the round at which it halts. Given the noise z of its threshold the rounds pass
independently, so Pr[t rounds are answered] = sum_z Pr[z] (1 - pass_t(z)) prod_{s<t} pass_s(z), a finite sum. The
answers of t rounds are Gaussians whose centres differ by (sum_{s<t} |a_s - b_s|^2)^(1/2) in all. That is the law of
:mod:`userdp.audit.laws` with one branch for each t; and the likelihood ratio of what was seen, which no test beats, is

    log(q_t/p_t) + sum_{s<t} <y_s - (a_s + b_s)/2, b_s - a_s> / sigma^2.
"""

from dataclasses import dataclass

import numpy as np
from scipy.special import ndtr

from userdp.arrays import FloatArray, IntArray
from userdp.audit.laws import Friends, Law
from userdp.audit.pairs import Pair
from userdp.errors import InvalidInputError
from userdp.means.certified import CertifiedMean
from userdp.means.friends import friend_counts, weighted_mean
from userdp.means.interface import CalibratedMean
from userdp.means.paper import PaperMean, keep_probabilities
from userdp.mechanisms.noise import laplace_scale
from userdp.privacy.calibration import INDEX_RESOLUTION, DeferredSetting, OneSidedSetting

# Threshold noise is summed up to so many scales: what lies beyond has probability below e^-60.
_REACH = 60
_FLOOR = 1e-300


@dataclass(frozen=True)
class SessionLaw:
    """The law of a session on two inputs.

    Attributes
    ----------
    answered : two arrays of shape (T + 1,)
        Probability that exactly t rounds are answered.
    means : two arrays of shape (T, d)
        The answers without noise.
    noise_std : float
        Standard deviation of each answer's noise.
    """

    answered: tuple[FloatArray, FloatArray]
    means: tuple[FloatArray, FloatArray]
    noise_std: float

    @property
    def law(self) -> Law:
        """As branches: one for each number of answered rounds."""
        one, other = self.answered
        apart = np.linalg.norm(self.means[1] - self.means[0], axis=1) / self.noise_std
        return Law((float(one[0]), float(other[0])), one[1:], other[1:], np.sqrt(np.cumsum(apart**2)))

    def evidence(self, outputs: FloatArray) -> FloatArray:
        """Return the log likelihood ratio of each output, a row of the number of rounds and their answers."""
        answered = outputs[:, 0].astype(int)
        one, other = (np.log(np.maximum(side, _FLOOR)) for side in self.answered)
        rounds, dimension = self.means[0].shape
        answers = outputs[:, 1:].reshape(len(outputs), rounds, dimension)
        middle, apart = (self.means[0] + self.means[1]) / 2, self.means[1] - self.means[0]
        ratios = ((answers - middle) * apart).sum(axis=2) / self.noise_std**2
        shown = np.arange(rounds) < answered[:, None]
        evidence: FloatArray = (other - one)[answered] + np.where(shown, ratios, 0.0).sum(axis=1)
        return evidence


def session_law(mean: CalibratedMean, pair: Pair) -> SessionLaw:
    """Return the law of a session that is asked for the mean of each table of a pair, in turn."""
    tables = tuple(side if side.ndim == 3 else side[None] for side in (pair.one, pair.other))
    match mean:
        case CertifiedMean(setting=DeferredSetting() | OneSidedSetting() as setting):
            friends = [[Friends(mean, x) for x in side] for side in tables]
            means = [np.array([one.mean(setting.index) for one in side]) for side in friends]
            passing = _deferred if isinstance(setting, DeferredSetting) else _one_sided
            answered = [passing(setting, np.array([one.h for one in side])) for side in friends]  # type: ignore[arg-type]
            return SessionLaw((answered[0], answered[1]), (means[0], means[1]), mean.noise_std(setting.index))
        case PaperMean():
            answered = [_paper(mean, side) for side in tables]
            means = [np.array([_kept_mean(mean, x) for x in side]) for side in tables]
            return SessionLaw((answered[0], answered[1]), (means[0], means[1]), mean.noise_std)
    raise InvalidInputError(f"the law of a session of {type(mean).__name__} is not known in closed form")


def _deferred(setting: DeferredSetting, indices: IntArray) -> FloatArray:
    """All rounds are answered or none, by the smallest index."""
    passes = float(ndtr((INDEX_RESOLUTION * indices.min() - setting.threshold + 0.5) / setting.scale))
    return np.array([1 - passes, *[0.0] * (len(indices) - 1), passes])


def _one_sided(setting: OneSidedSetting, indices: IntArray) -> FloatArray:
    """Round t passes iff G_t <= h_t - threshold + G_0, for geometric G_0 of epsilon a and G_t of epsilon b/2."""
    a, b = setting.threshold_epsilon, setting.query_epsilon / 2
    g = np.arange(int(_REACH / a) + 1)
    room = np.maximum(indices[:, None] - setting.threshold + g + 1, 0)
    return _answered(-np.expm1(-a) * np.exp(-a * g), -np.expm1(-b * room))


def _paper(mean: PaperMean, tables: FloatArray) -> FloatArray:
    """Round t passes iff L_t >= threshold - L_0 - score, for discrete Laplace L_0 and L_t, in units of 1/n."""
    n, share = mean.n_users, mean.budget.epsilon / 2
    scores = np.array([friend_counts(x, mean.radius).sum() for x in tables])
    decay, query_decay = (np.exp(-1 / laplace_scale(k * n, share)) for k in (2, 4))
    noise = np.arange(-int(_REACH * 2 * n / share), int(_REACH * 2 * n / share) + 1)
    mass = (1 - decay) / (1 + decay) * decay ** np.abs(noise)
    needed = -(-4 * n * n // 5) - noise - scores[:, None]
    above = query_decay ** np.maximum(needed, 1) / (1 + query_decay)
    below = query_decay ** np.maximum(1 - needed, 1) / (1 + query_decay)
    return _answered(mass, np.where(needed > 0, above, 1 - below))


def _kept_mean(mean: PaperMean, x: FloatArray) -> FloatArray:
    kept = keep_probabilities(friend_counts(x, 2 * mean.radius))
    if not np.isin(kept, (0.0, 1.0)).all():
        raise InvalidInputError("the law of the paper's mean is not known where coins decide who is kept")
    return weighted_mean(x, kept)


def _answered(mass: FloatArray, passes: FloatArray) -> FloatArray:
    """Return Pr[t rounds are answered] from the threshold noise's law and each round's chance to pass given it."""
    still = np.cumprod(np.vstack([np.ones_like(mass), passes]), axis=0)
    halts = np.vstack([1 - passes, np.ones_like(mass)])
    answered: FloatArray = (still * halts) @ mass
    return answered
