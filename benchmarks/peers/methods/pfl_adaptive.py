"""pfl with its adaptive clip: the tuned clip is where it starts, and it follows the median of the users' norms."""

from pfl.privacy.adaptive_clipping import AdaptiveClippingGaussianMechanism
from pfl.privacy.gaussian_mechanism import GaussianMechanism

from benchmarks.peers.methods.interface import Fit, Job, serve
from benchmarks.peers.methods.pfl_peer import fit as fit_with
from benchmarks.peers.methods.pfl_peer import noise_multiplier


def fit(job: Job, seed: int) -> Fit:
    multiplier = noise_multiplier(job.epsilon, job.delta, job.rounds)
    # The recommended noise on the count of clipped users, or as little as the mechanism allows beside the gradients'.
    count_noise = max(0.1 * job.n_users, 1.5 * multiplier)
    mechanism = AdaptiveClippingGaussianMechanism(
        lambda bound: GaussianMechanism(bound, multiplier), job.clip, count_noise, 0.5
    )
    return fit_with(job, seed, mechanism)


if __name__ == "__main__":
    serve(fit)
