"""Excess losses of the defaults on other draws of users, as JSON: a process of :mod:`benchmarks.sensitivity`."""

import json
import sys

from benchmarks.defaults import default_losses
from benchmarks.robustness.sample import draw

EPSILONS, SAMPLES, FITS = (0.3, 1.0, 3.0), 2, 4
# Other draws than those of the robustness suite.
FIRST_SAMPLE = 100


def main() -> None:
    table, task, users = sys.argv[1], sys.argv[2], int(sys.argv[3])
    found: dict[float, list[float]] = {epsilon: [] for epsilon in EPSILONS}
    for number in range(SAMPLES):
        sample = draw(table, task, users, FIRST_SAMPLE + number)
        train, test, n_numbers = sample.train.rows, sample.test.rows, sample.train.numbers.shape[1]
        reference, seeds = sample.reference_loss(), range(FITS * number, FITS * (number + 1))
        for epsilon in EPSILONS:
            losses = default_losses(task, train, test, n_numbers, epsilon, seeds)
            found[epsilon] += [loss - reference for loss in losses]
    print(json.dumps(found))


if __name__ == "__main__":
    main()
