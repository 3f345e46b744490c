"""The privacy statement: what a release promises, in words and in numbers."""

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

from userdp.errors import InvalidInputError
from userdp.privacy.accounting import Event, FailureEvent, GaussianEvent, PureEvent, delta_of, total_mu
from userdp.privacy.budget import Budget

UNSEEDED = "noise comes from the operating system's entropy through OpenDP's exact samplers"
SEEDED = "noise came from a seed: for experiments only; whoever knows the seed can remove the noise"
COMMON_ASSUMPTIONS = (
    "the number of users is public",
    "one user is one value of the user column, and nothing else links rows of two users",
    "only the release leaves; memory, disk, logs and timing before it are not covered",
)


@dataclass(frozen=True)
class Spend:
    """One part of the budget: what it paid for and how much it cost."""

    name: str
    mu: float = 0.0
    epsilon: float = 0.0
    delta: float = 0.0

    @classmethod
    def of(cls, event: Event) -> "Spend":
        """Cost of one event of the accounting."""
        match event:
            case GaussianEvent():
                return cls(event.name, mu=event.mu)
            case PureEvent():
                return cls(event.name, epsilon=event.epsilon)
            case FailureEvent():
                return cls(event.name, delta=event.delta)


@dataclass(frozen=True)
class PrivacyStatement:
    """What a privacy officer needs to know about one release.

    Attributes
    ----------
    unit, adjacency : str
        Who is protected, and which tables count as neighbours.
    epsilon, delta : float
        The guarantee.
    mu : float
        Gaussian-DP parameter of the Gaussian parts together (0 where there are none).
    spent : tuple of Spend
        What the budget paid for. Spends of one kind compose (mu by root of squares, epsilon and delta by
        sums); the whole is never more than (epsilon, delta).
    assumptions : tuple of str
        What must be true for the guarantee to hold.
    certified : bool
        Whether every constant behind (epsilon, delta) is proven in ``docs/proofs``.
    seeded : bool
        Whether the noise came from a seed; such a release protects nobody.
    n_users : int
        The public number of users.
    """

    unit: str
    adjacency: str
    epsilon: float
    delta: float
    mu: float
    spent: tuple[Spend, ...]
    assumptions: tuple[str, ...]
    certified: bool
    seeded: bool
    n_users: int

    @classmethod
    def certify(
        cls,
        budget: Budget,
        events: Iterable[Event],
        *,
        n_users: int,
        seeded: bool,
        assumptions: tuple[str, ...] = (),
    ) -> "PrivacyStatement":
        """State the guarantee of a proven composition; refuse one that does not fit its budget."""
        events = tuple(events)
        if not delta_of(events, budget.epsilon) <= budget.delta:
            raise InvalidInputError(
                f"this composition is not ({budget.epsilon:g}, {budget.delta:g})-DP: "
                f"at epsilon = {budget.epsilon:g} its delta is {delta_of(events, budget.epsilon):g}"
            )
        return cls(
            unit=budget.unit,
            adjacency=budget.adjacency,
            epsilon=budget.epsilon,
            delta=budget.delta,
            mu=total_mu(events),
            spent=tuple(Spend.of(event) for event in events),
            assumptions=COMMON_ASSUMPTIONS + assumptions,
            certified=True,
            seeded=seeded,
            n_users=n_users,
        )

    @classmethod
    def claim(
        cls,
        budget: Budget,
        spent: tuple[Spend, ...],
        *,
        n_users: int,
        seeded: bool,
        assumptions: tuple[str, ...] = (),
    ) -> "PrivacyStatement":
        """State what a paper claims for its algorithm, without a proof of the constants."""
        return cls(
            unit=budget.unit,
            adjacency=budget.adjacency,
            epsilon=budget.epsilon,
            delta=budget.delta,
            mu=0.0,
            spent=spent,
            assumptions=COMMON_ASSUMPTIONS + assumptions,
            certified=False,
            seeded=seeded,
            n_users=n_users,
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain types only, for JSON."""
        return asdict(self)

    def __str__(self) -> str:
        """Several lines of plain words."""
        kind = "certified" if self.certified else "NOT certified: the constants are the paper's, unproven"
        lines = [
            f"({self.epsilon:g}, {self.delta:g})-differential privacy for each {self.unit} "
            f"({self.adjacency}, {self.n_users:,} in all); {kind}",
            *(f"  spent on {_describe(spend)}" for spend in self.spent),
            f"  {SEEDED if self.seeded else UNSEEDED}",
            *(f"  assumes {assumption}" for assumption in self.assumptions),
        ]
        return "\n".join(lines)


def _describe(spend: Spend) -> str:
    costs = {"mu": spend.mu, "epsilon": spend.epsilon, "delta": spend.delta}
    return f"{spend.name}: " + ", ".join(f"{name} = {cost:.3g}" for name, cost in costs.items() if cost)
