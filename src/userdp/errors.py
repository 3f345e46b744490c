"""Everything userdp raises or warns about.

::

    UserDPError (Exception)
    ├── InvalidInputError (also ValueError)   an argument or a schema that cannot be used
    │   ├── TooFewUsersError                  the plan needs more users, and says how many
    │   └── BudgetExceededError               a release over its limit; nothing was spent
    ├── NotConcentratedError                  the users' vectors do not agree; budget was spent
    └── EngineError                           machines cannot be reached or were lost; resume the run

    PrivacyWarning (UserWarning)              a legal budget that promises little

A message depends on the schema, the arguments and the number of users, never on one user's values.
"""

__all__ = [
    "BudgetExceededError",
    "EngineError",
    "InvalidInputError",
    "NotConcentratedError",
    "PrivacyWarning",
    "TooFewUsersError",
    "UserDPError",
]


class UserDPError(Exception):
    """Base class of every error that userdp raises on purpose."""


class InvalidInputError(UserDPError, ValueError):
    """An argument or a table's schema cannot be used; no budget was spent."""


class TooFewUsersError(InvalidInputError):
    """The guarantee asked for needs more users than there are; no budget was spent."""


class BudgetExceededError(InvalidInputError):
    """A release would go over its limit; it was refused and no budget was spent."""


class NotConcentratedError(UserDPError):
    """The users' vectors do not lie close enough together; the budget was spent."""


class EngineError(UserDPError):
    """The machines that compute cannot be reached or were lost; a run with a checkpoint can be resumed."""


class PrivacyWarning(UserWarning):
    """The budget is legal, but its promise is weaker than most readers would expect."""
