"""opacus with its adaptive clip: the tuned clip is where it starts, and it follows the median of the users' norms.

The step shrinks where the radius outgrows the tuned clip, as in ``pfl_adaptive``. The users are put into one batch
once, not by the data loader in every round, which would take most of the time; what is computed is the same.
"""

from benchmarks.peers.methods.interface import Fit, Job, serve
from benchmarks.peers.methods.opacus_peer import descend, noise_multiplier, private


def fit(job: Job, seed: int) -> Fit:
    # The recommended noise on the count of unclipped users, or what leaves the gradients nine tenths of mu^2.
    multiplier = 2 * noise_multiplier(job.epsilon, job.delta, job.rounds)
    count_noise = max(job.n_users / 20, 10**0.5 * multiplier / 2)
    model, optimizer, loader = private(
        job,
        seed,
        clipping="adaptive",
        target_unclipped_quantile=0.5,
        # A rate of 0.2 would follow the noise of the counts where it is large.
        clipbound_learning_rate=0.2 / (1 + (count_noise / job.n_users) ** 2),
        max_clipbound=1e6,
        min_clipbound=1e-6,
        unclipped_num_std=count_noise,
    )

    def change_step() -> None:
        for group in optimizer.param_groups:
            group["lr"] = job.step * min(1.0, job.clip / float(optimizer.max_grad_norm))

    return descend(job, model, optimizer, list(loader), change_step)


if __name__ == "__main__":
    serve(fit)
