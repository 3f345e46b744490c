"""What is minimised, and where: convex losses of one item, their randomized smoothing, and domains.

A `Loss` gives the value and a subgradient of ``theta -> l(theta; item)``, and its `Constants` under
declared bounds. A `GLM` is a scalar function of ``<x, theta>``; any other convex function written in JAX
becomes a loss through `JaxLoss`, and `Regularized` makes any of them strongly convex. `SmoothedGLM` is a GLM
smoothed over a ball without sampling; `SampledGLM` and `SampledSmoothing` draw instead. A `Domain` is a
closed convex set with its projection. All of it is pure JAX, follows the floating type of ``theta``, and
knows nothing of privacy.
"""

from userdp.problems.ball import BallMarginal, sample_ball
from userdp.problems.classification import Hinge, Logistic, SquaredHinge
from userdp.problems.domains import AffineSubspace, Box, Domain, L1Ball, L2Ball, Simplex, WholeSpace
from userdp.problems.glm import GLM, LinearPredictorLoss
from userdp.problems.loss import Constants, Item, JaxLoss, Loss, Regularized
from userdp.problems.multinomial import Multinomial
from userdp.problems.poisson import Poisson
from userdp.problems.regression import Absolute, Huber, Pinball, Squared
from userdp.problems.smoothing import SampledGLM, SampledSmoothing, SmoothedGLM, smoothed_constants
from userdp.problems.vectors import Distance, Linear, SquaredDistance

__all__ = [
    "GLM",
    "Absolute",
    "AffineSubspace",
    "BallMarginal",
    "Box",
    "Constants",
    "Distance",
    "Domain",
    "Hinge",
    "Huber",
    "Item",
    "JaxLoss",
    "L1Ball",
    "L2Ball",
    "Linear",
    "LinearPredictorLoss",
    "Logistic",
    "Loss",
    "Multinomial",
    "Pinball",
    "Poisson",
    "Regularized",
    "SampledGLM",
    "SampledSmoothing",
    "Simplex",
    "SmoothedGLM",
    "Squared",
    "SquaredDistance",
    "SquaredHinge",
    "WholeSpace",
    "sample_ball",
    "smoothed_constants",
]
