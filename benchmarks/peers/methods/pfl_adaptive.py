"""pfl with its adaptive clip: the tuned clip is where it starts, and it follows the median of the users' norms.

The step is the tuned one until the radius outgrows the tuned clip; from there on step times radius, and so the reach of
the noise, stays the same. Step and clip were tuned together, and the median may be fifty times the tuned clip.
"""

from pfl.privacy.adaptive_clipping import AdaptiveClippingGaussianMechanism
from pfl.privacy.gaussian_mechanism import GaussianMechanism

from benchmarks.peers.methods.interface import Fit, Job, serve
from benchmarks.peers.methods.pfl_peer import descend, noise_multiplier


def fit(job: Job, seed: int) -> Fit:
    multiplier = noise_multiplier(job.epsilon, job.delta, job.rounds)
    # The recommended noise on the count of clipped users, or what leaves the gradients nine tenths of mu^2.
    count_noise = max(0.1 * job.n_users, 10**0.5 * multiplier)
    # Users say 1 or -1: a share has half the noise. A rate of 0.2 would follow that noise where it is large.
    share_noise = count_noise / (2 * job.n_users)
    mechanism = AdaptiveClippingGaussianMechanism(
        lambda bound: GaussianMechanism(bound, multiplier), job.clip, count_noise, 0.5,
        log_space_step_size=0.2 / (1 + share_noise**2),
    )  # fmt: skip

    def step() -> float:
        return job.step * min(1.0, job.clip / mechanism.mutable_clipping_bound.value())

    return descend(job, seed, mechanism, step)


if __name__ == "__main__":
    serve(fit)
