"""How close exact friend counts and a certified release come to one Gram product."""

import numpy as np

from benchmarks.measure import interleaved_seconds, peak_megabytes, write_result
from userdp.means import ConcentratedMean
from userdp.means.friends import friend_counts
from userdp.means.lattice import Lattice

N_USERS, DIMENSION = 10_000, 100


def main() -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(N_USERS, DIMENSION))
    # In high dimension users at distance rho from their mean are sqrt(2) rho apart: no pair is settled early.
    radius = 1.6 * np.sqrt(DIMENSION)
    lattice = Lattice.fine_enough(radius, N_USERS, DIMENSION)
    units = lattice.round(x)
    settled = units / 4  # everybody within half a radius of the centre
    settled = np.rint(settled)
    floats = x * np.pi
    mean = ConcentratedMean(radius)

    def release() -> object:
        return mean.release(x, epsilon=1.0, delta=1e-6)

    release()
    seconds = interleaved_seconds(
        {
            "gram": lambda: units @ units.T,
            "counts": lambda: friend_counts(units, lattice.radius_units),
            "counts of plain floats": lambda: friend_counts(floats, radius * np.pi),
            "counts of settled data": lambda: friend_counts(settled, lattice.radius_units),
            "certified release": release,
        }
    )
    gram, counts = seconds["gram"], seconds["counts"]
    ratios = {
        "counts over gram": counts / gram,
        "float counts over gram": seconds["counts of plain floats"] / gram,
        "gram over settled counts": gram / seconds["counts of settled data"],
        "release over counts": seconds["certified release"] / counts,
    }
    memory = peak_megabytes(lambda: friend_counts(units, lattice.radius_units))
    rows = [
        ("exact counts / one NumPy float64 Gram product", f"{ratios['counts over gram']:.2f}", "at most 3"),
        ("the same on plain floats", f"{ratios['float counts over gram']:.2f}", ""),
        ("Gram product / counts of settled data", f"{ratios['gram over settled counts']:.0f}", "at least 30"),
        ("certified release (T = 1) / exact counts", f"{ratios['release over counts']:.2f}", "under 2"),
        ("peak memory over the input, MB", f"{memory:.0f}", "below 300"),
    ]
    table = f"# Friend counts, n = {N_USERS:,}, d = {DIMENSION}\n\n| measure | here | goal |\n|---|---|---|\n"
    table += "\n".join(f"| {name} | {value} | {goal} |" for name, value, goal in rows)
    result = {
        "n_users": N_USERS,
        "dimension": DIMENSION,
        "seconds": seconds,
        "ratios": ratios,
        "peak_megabytes_over_input": memory,
    }
    write_result("friends", "make bench", result, table)


if __name__ == "__main__":
    main()
