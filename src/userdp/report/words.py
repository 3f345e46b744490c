"""The privacy statement in plain words: who is protected, from what, how far, and where it ends.

The sentences are exact. "At most e^epsilon times as likely, plus delta" is the definition; it is not softened
to "except with probability delta", which (epsilon, delta)-privacy does not say.
"""

from dataclasses import dataclass

from userdp.privacy.budget import LARGE_EPSILON, Budget
from userdp.privacy.statement import SEEDED, UNSEEDED, PrivacyStatement
from userdp.report.attacker import Attacker
from userdp.report.content import ReportContent
from userdp.report.numbers import odds, one_in, percent_up, plain

FALSE_ALARMS = 0.05


@dataclass(frozen=True)
class Banner:
    """A warning that nobody may miss: a headline and its reason."""

    headline: str
    reason: str


@dataclass(frozen=True)
class Figure:
    """One number of the summary: what it would be without any information, and what it is at most."""

    title: str
    value: str
    before: str
    meaning: str


def banners(content: ReportContent) -> tuple[Banner, ...]:
    """Say what is wrong, gravest first; it comes from the statement, so a caller cannot leave it out."""
    statement = content.statement
    found = []
    if statement.seeded:
        found.append(
            Banner(
                "This release protects nobody.",
                "Its noise came from a seed, for experiments only: whoever knows the seed can remove the "
                "noise. Do not publish it.",
            )
        )
    if not statement.certified:
        found.append(
            Banner(
                "Not certified.",
                "The guarantee is a published algorithm's claim. Its constants are not proven, and the "
                "privacy it gives may be weaker than the numbers on this page.",
            )
        )
    if statement.epsilon >= LARGE_EPSILON:
        found.append(
            Banner(
                f"Epsilon = {plain(statement.epsilon)} promises next to nothing.",
                f"One {statement.unit} may make an outcome {odds(statement.epsilon)} times as likely.",
            )
        )
    if statement.delta >= 1 / statement.n_users:
        found.append(
            Banner(
                f"Delta = {plain(statement.delta)} is large for {statement.n_users:,} users.",
                f"Publishing the rows of one {statement.unit}, chosen at random, would satisfy it.",
            )
        )
    return (*found, *(Banner("Warning.", warning) for warning in content.warnings))


def promise(statement: PrivacyStatement) -> str:
    """Return the guarantee in one sentence, as strong as it is and no stronger."""
    guarantee = (
        f"differentially private for each {statement.unit}, one of {statement.n_users:,}, with epsilon = "
        f"{plain(statement.epsilon)} and delta = {one_in(statement.delta)}"
    )
    if statement.seeded:
        return f"With fresh noise such a release would be {guarantee}. This one is not: its noise is known."
    if not statement.certified:
        return f"This release is claimed, not proven, to be {guarantee}."
    return f"This release is {guarantee}."


def who_is_protected(statement: PrivacyStatement) -> tuple[tuple[str, str], ...]:
    """Return questions and answers about the protected unit and the neighbouring tables."""
    unit = statement.unit
    if statement.adjacency == Budget.adjacency:
        neighbours = (
            f"Two tables with the same number of users that differ in everything about one {unit}: all its "
            f"rows are replaced by those of any other {unit}, or by none."
        )
    else:
        neighbours = f"Two tables count as neighbours by the rule: {statement.adjacency}."
    return (
        ("Who is protected?", f"Each {unit} with all its rows together, however many there are."),
        (
            "Against what?",
            "Against anybody who sees this release, whatever else they know or compute from it.",
        ),
        ("Which tables are compared?", neighbours),
        (
            "What is promised?",
            f"Whatever one {unit}'s rows are, any outcome is at most {odds(statement.epsilon)} times as "
            f"likely as with the rows replaced, plus a chance of {one_in(statement.delta)}.",
        ),
    )


def figures(statement: PrivacyStatement, attacker: Attacker) -> tuple[Figure, ...]:
    """Return the guarantee as three numbers that need no mathematics."""
    unit = statement.unit
    return (
        Figure(
            "Odds of an outcome",
            f"× {odds(statement.epsilon)}",
            "× 1 without any influence",
            f"One {unit} makes any outcome at most this many times as likely (e to the epsilon), "
            f"plus a chance of {one_in(statement.delta)} (delta).",
        ),
        Figure(
            "Guess between two candidates",
            percent_up(attacker.coin_flip()),
            "50% by tossing a coin",
            f"An attacker who knows everything but which of two candidates one {unit} is "
            "guesses right at most this often.",
        ),
        Figure(
            f"Detection at {FALSE_ALARMS:.0%} false alarms",
            percent_up(attacker.detection(FALSE_ALARMS)),
            f"{FALSE_ALARMS:.0%} by chance",
            f"An attacker who may raise a false alarm {FALSE_ALARMS:.0%} of the time detects one {unit} "
            "at most this often.",
        ),
    )


def assumptions(statement: PrivacyStatement) -> tuple[str, ...]:
    """Return what must be true for the guarantee to hold, noise included."""
    noise = SEEDED if statement.seeded else UNSEEDED
    return tuple(_sentence(text) for text in (*statement.assumptions, noise))


def not_covered(statement: PrivacyStatement) -> tuple[tuple[str, str], ...]:
    """Return what a reader might take the guarantee to cover, and it does not."""
    unit = statement.unit
    return (
        (
            "What is true of everyone.",
            f"A pattern of the whole population may say something about one {unit}, and would with that "
            f"{unit}'s rows replaced.",
        ),
        (
            "Groups.",
            f"For two of them together epsilon doubles: an outcome may become {odds(2 * statement.epsilon)} "
            "times as likely. For larger groups it grows in proportion.",
        ),
        (
            "Other releases.",
            "Epsilons and deltas of releases from the same table add up. This page speaks for one release.",
        ),
        (
            f"One {unit} under several ids.",
            "Each value of the user column is protected on its own; a second id counts as somebody else.",
        ),
        (
            "The table itself.",
            "Who may read it, and where it is kept, is a matter of access, not of this release.",
        ),
        (
            "Accuracy.",
            "The promise holds whether or not the released numbers are right, fair or useful.",
        ),
    )


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:].rstrip(".") + "."
