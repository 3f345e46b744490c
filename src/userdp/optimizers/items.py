"""Item-level methods protect one row; under group privacy they protect a user, at a price in rows.

A user of at most m rows (``max_items``, public) occupies m slots, rows or empty ones, so that there are N = n m slots
whoever the users are. Replacing a user replaces m slots at most. What is mu-GDP for one slot is m mu-GDP for m of them
(``docs/proofs/group_privacy.md``), so these methods are calibrated at mu/m.
"""

import numpy as np

from userdp.data.users import Users
from userdp.mechanisms.noise import NoiseSource


def item_slots(users: Users, max_items: int, noise: NoiseSource) -> Users:
    """Return n m single-row users, slot after slot of user after user; an empty slot is a row of NaN.

    Of a user with more than ``max_items`` rows a random subset is taken.
    """
    users = users.capped(max_items, noise.generator())
    items = users.items_per_user
    owner = np.repeat(np.arange(users.n_users), items)
    slot = owner * max_items + np.arange(len(users.rows)) - users.offsets[owner]
    n_slots = users.n_users * max_items
    rows = np.full((n_slots, users.n_features), np.nan)
    rows[slot] = users.rows
    targets = None
    if users.targets is not None:
        targets = np.full(n_slots, np.nan)
        targets[slot] = users.targets
    return Users(rows, np.arange(n_slots + 1), targets)


def group_assumption(max_items: int) -> str:
    """Say what the statement of a method under group privacy rests on."""
    return f"group privacy: a user is a group of at most {max_items:,} rows, more are left out by a random choice"
