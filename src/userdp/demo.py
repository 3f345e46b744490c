"""``python -m userdp.demo``: a private mean on the embedded flights table."""

from rich.console import Console
from rich.table import Table

import userdp
from userdp.data import Users, load_flights

UNITS = {
    "dep_delay": "minutes",
    "arr_delay": "minutes",
    "hour": "of scheduled departure",
    "plane_age": "years",
}
COLUMNS = tuple(UNITS)


def main() -> None:
    """Release four column means at epsilon = 1 and show them beside the exact ones."""
    console = Console()
    flights = load_flights()
    X, ids = flights.select(COLUMNS).to_numpy(), flights["tailnum"]
    release = userdp.mean(X, groups=ids, epsilon=1.0, delta=1e-6, unit="aircraft")
    # The demo table is public, so its exact means can be shown for comparison.
    exact = Users.from_rows(X, ids).means().mean(axis=0)

    table = Table(title=f"Flights out of New York City, 2013: mean over {release.privacy.n_users:,} aircraft")
    for heading in ("column", "private mean", "noise (std)", "exact mean", "unit"):
        table.add_column(heading, justify="left" if heading in ("column", "unit") else "right")
    for name, private, truth in zip(COLUMNS, release.value, exact, strict=True):
        table.add_row(name, f"{private:.2f}", f"{release.noise_std:.2f}", f"{truth:.2f}", UNITS[name])
    console.print(table)
    console.print("\nPrivacy statement", style="bold")
    console.print(str(release.privacy), highlight=False, soft_wrap=True)


if __name__ == "__main__":
    main()
