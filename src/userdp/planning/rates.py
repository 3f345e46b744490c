r"""The paper's settings and rates, with the constants it hides exposed as arguments.

Asi & Liu (2023), in the notation of ``docs/notation.md``: G-Lipschitz losses, R^ the initial distance to the
optimum, n users with m items each, dimension d. The settings are asymptotic: T of order m^2 n^2 rounds and a
radius that exceeds G until m is in the hundreds (``docs/proofs/paper_constants.md``).
"""

import math
from dataclasses import dataclass

from userdp.errors import InvalidInputError, TooFewUsersError


@dataclass(frozen=True)
class Setting:
    """The paper's numbers for Algorithm 3.

    Attributes
    ----------
    rounds : int
        T = rounds_constant (m^2 n^2 + m n sqrt(d)).
    radius : float
        tau = G log(n d m e^epsilon T/delta)/sqrt(m), for Algorithm 2.
    step_size : float
        eta = (R^/G) min{ sqrt(m) n epsilon/(T sqrt(d) log(m n d/delta)), T^(-3/4), sqrt(n m)/T }.
    smoothing_radius : float
        r_s = d^(1/4) R^/sqrt(T).
    mean_delta : float
        The delta that Algorithm 2 is run with: delta/(2 T m n d).
    """

    rounds: int
    radius: float
    step_size: float
    smoothing_radius: float
    mean_delta: float


def convex(
    n_users: int,
    items_per_user: int,
    n_features: int,
    epsilon: float,
    delta: float,
    *,
    lipschitz: float = 1.0,
    distance: float = 1.0,
    rounds: int | None = None,
    rounds_constant: float = 1.0,
) -> Setting:
    """Return the settings of Algorithm 3 for convex losses (the paper's theorem for Algorithm 3).

    ``rounds`` replaces the paper's T where that is out of reach; the other settings follow it.

    Examples
    --------
    >>> convex(n_users=150, items_per_user=2, n_features=5, epsilon=9.0, delta=1e-6).rounds
    90671
    """
    n, m, d, G, R = n_users, items_per_user, n_features, lipschitz, distance
    if min(n, m, d) < 1:
        raise InvalidInputError(f"users, items and features must be at least 1, got {n}, {m}, {d}")
    T = rounds if rounds is not None else math.ceil(rounds_constant * (m**2 * n**2 + m * n * math.sqrt(d)))
    private = math.sqrt(m) * n * epsilon / (T * math.sqrt(d) * math.log(m * n * d / delta))
    return Setting(
        rounds=T,
        radius=G * (math.log(n * d * m * T / delta) + epsilon) / math.sqrt(m),
        step_size=R / G * min(private, T**-0.75, math.sqrt(n * m) / T),
        smoothing_radius=d**0.25 * R / math.sqrt(T),
        mean_delta=delta / (2 * T * m * n * d),
    )


@dataclass(frozen=True)
class PhaseSetting:
    """One phase of Algorithm 4: its users, its distance R^_i, and Algorithm 3's numbers at those."""

    n_users: int
    distance: float
    setting: Setting


def strongly_convex(
    n_users: int,
    items_per_user: int,
    n_features: int,
    epsilon: float,
    delta: float,
    *,
    lipschitz: float = 1.0,
    strong_convexity: float = 1.0,
    risk_constant: float = 1.0,
    rounds_constant: float = 1.0,
) -> tuple[PhaseSetting, ...]:
    """Return the phases of Algorithm 4 (the paper's theorem for strongly convex losses).

    k = ceil(log log(m n)) phases of sizes n_i = n/2^(k+1-i), with D_0 = 2 G^2/mu,
    E_i = (4 C^2 G^2/mu)(1/(n_i m) + d log^2(n_i d m/delta)/(n_i^2 epsilon^2 m)),
    D_i = 16 E_i (2 G^2/(16 mu E_0))^(1/2^i) and R^_i = sqrt(2 D_(i-1)/mu). C is ``risk_constant``.
    """
    n, m, d, G, mu = n_users, items_per_user, n_features, lipschitz, strong_convexity
    sizes = phase_sizes(n, m)
    first = sizes[0] / 2  # n_0

    def risk(users: float) -> float:
        private = d * math.log(users * d * m / delta) ** 2 / (users**2 * epsilon**2 * m)
        return 4 * risk_constant**2 * G**2 / mu * (1 / (users * m) + private)

    D = 2 * G**2 / mu
    phases = []
    for i, users in enumerate(sizes, start=1):
        distance = math.sqrt(2 * D / mu)
        phases.append(
            PhaseSetting(
                users,
                distance,
                convex(
                    users,
                    m,
                    d,
                    epsilon,
                    delta,
                    lipschitz=G,
                    distance=distance,
                    rounds_constant=rounds_constant,
                ),
            )
        )
        D = 16 * risk(users) * (2 * G**2 / (16 * mu * risk(first))) ** (1 / 2**i)
    return tuple(phases)


def phase_sizes(n_users: int, items_per_user: int) -> tuple[int, ...]:
    """Return n_i = floor(n/2^(k+1-i)) for i = 1..k, k = ceil(log log(m n)): disjoint, doubling.

    Examples
    --------
    >>> phase_sizes(n_users=1000, items_per_user=100)
    (125, 250, 500)
    """
    k = max(1, math.ceil(math.log(max(math.log(n_users * items_per_user), math.e))))
    sizes = tuple(n_users // 2 ** (k + 1 - i) for i in range(1, k + 1))
    if sizes[0] < 1:
        raise TooFewUsersError(f"{n_users} users cannot be split into {k} phases; use at least {2**k}")
    return sizes


def convex_rate(
    n_users: int,
    items_per_user: int,
    n_features: int,
    epsilon: float,
    *,
    lipschitz: float = 1.0,
    distance: float = 1.0,
) -> float:
    """Return G R (1/sqrt(n m) + sqrt(d)/(n sqrt(m) epsilon)): the optimal excess risk without logs and constants."""
    n, m, d = n_users, items_per_user, n_features
    return lipschitz * distance * (1 / math.sqrt(n * m) + math.sqrt(d / m) / (n * epsilon))


def strongly_convex_rate(
    n_users: int,
    items_per_user: int,
    n_features: int,
    epsilon: float,
    *,
    lipschitz: float = 1.0,
    strong_convexity: float = 1.0,
) -> float:
    """Return (G^2/mu)(1/(n m) + d/(n^2 m epsilon^2)): the optimal excess risk without logs and constants."""
    n, m, d = n_users, items_per_user, n_features
    return lipschitz**2 / strong_convexity * (1 / (n * m) + d / (n**2 * m * epsilon**2))
