r"""Where numbers lie and how wide they are: looks of all users at once, from coarse to fine.

The **first look** takes in every float there is: each user votes for the sign of their mean and the power of four above
their root mean square. A column of both signs lies around zero and is as wide as it is large; one that spreads over
powers of ten is as wide as they are. Only a column of one sign and one size can be narrower than it is large. It
gets a **second look**, of ten bins to its size, in which a vote is shared out among the rows; and where they all still
share a bin, **zooms** into it, each sixteen times as fine.

What is seen is noisy counts, to which public shapes are fitted; all of that is post-processing. Proofs:
``docs/proofs/stages.md``.
"""

import math
from dataclasses import dataclass
from functools import partial

import numpy as np

from userdp.arrays import BoolArray, FloatArray, IntArray
from userdp.data.parts import AnyUsers
from userdp.data.users import Users
from userdp.estimators.per_user import Vectors, mapped, per_user
from userdp.estimators.shapes import (
    AWAY,
    BINS_OF_SIZE,
    LATER_BINS,
    REACH,
    ZERO_BIN,
    log_likelihood,
    posterior,
    second_shapes,
    zoom_shapes,
)
from userdp.estimators.sizes import FIRST_BINS, Sizes, signed_powers, signed_sizes, sizes_of
from userdp.estimators.votes import private_counts, private_row_counts
from userdp.means.votes import NoisyCounts
from userdp.mechanisms.noise import NoiseSource
from userdp.privacy.accounting import GaussianEvent

# From these probabilities on, at the second look and at a zoom, a column may be all in one bin, which is narrower than
# this: in sizes at the second look, in bins at a zoom.
_SHARES_A_SIZE, _SHARES_A_BIN, _NARROW_OF_SIZE, _NARROW_OF_BIN = 0.25, 0.1, 0.15, 0.35
# A column of at most so many bins fits into a zoom, which goes deepest where it surely shared a bin.
_FITS_IN = 8.0
_ZOOM, _SURELY = 16, 0.9
# After so many looks a column that shares a bin is narrower than a ten-millionth of its size: in float32, a constant.
MOST_LOOKS = 7
# From this look on a column far away is lost if one look goes wrong: each pays for half the variance.
_DEEP = 4


@dataclass(frozen=True)
class Places:
    """Private centre and spread of each number, how many spreads are let in to either side, and which were found."""

    centre: FloatArray
    spread: FloatArray
    bound: FloatArray
    found: BoolArray


@np.errstate(under="ignore")
def private_places(
    numbers: AnyUsers,
    norms: Vectors | None,
    first_mu: float,
    later_mu: float,
    most_mu: float,
    noise: NoiseSource,
    around_zero: bool = False,
    names: tuple[str, str] = ("feature scales", "look"),
) -> tuple[Places, float | None, tuple[GaussianEvent, ...]]:
    """Find centre and spread of every number; and the typical one of ``norms``, a column of positive numbers or None.

    A later look would cost ``later_mu`` if it asked about all numbers, and less if about some; they end where the looks
    together would cost more than ``most_mu``, and without ``later_mu`` there is none. Where columns stay
    ``around_zero``, their centre is zero and a spread is the root mean square. The statement calls the first look and
    the later ones by their ``names``.

    **Guarantee**: the events'.
    """
    d = numbers.n_features
    values = per_user(signed_sizes, numbers)
    if norms is not None:
        values = mapped(lambda *both: np.hstack(both), values, norms)
    counts = private_counts(mapped(signed_powers, values), FIRST_BINS, first_mu, names[0], noise)
    seen = sizes_of(counts)
    norm = float(seen.size[d]) if norms is not None and seen.found[d] else None
    sizes = Sizes(**{name: values[:d] for name, values in vars(seen).items()})
    if around_zero:
        return (
            Places(np.zeros(d), np.sqrt(sizes.mean_square), sizes.bound, sizes.found),
            norm,
            (counts.event,),
        )
    spread = np.sqrt(np.maximum(sizes.mean_square - sizes.mean**2, (0.35 * sizes.size) ** 2))
    places = Places(sizes.mean, spread, sizes.bound, sizes.found)
    if not later_mu:
        return places, norm, (counts.event,)
    assert d, "without numbers there is no later look"
    may_be_narrow = np.flatnonzero(sizes.found & sizes.has_one_sign & ~sizes.spreads)
    look = _Look(numbers, later_mu, names[1], noise)
    places, events = _look_closer(look, sizes, places, may_be_narrow, most_mu**2 - first_mu**2)
    return places, norm, (counts.event, *events)


@dataclass(frozen=True)
class _Look:
    """Counts rows of some columns in bins; all columns would cost ``mu_of_all``."""

    numbers: AnyUsers
    mu_of_all: float
    name: str
    noise: NoiseSource

    def mu(self, n_columns: int, number: int) -> float:
        """Cost of a look at so many columns: by their share, in squares; if deep, by twice that, at most by all."""
        share = n_columns / self.numbers.n_features
        return self.mu_of_all * math.sqrt(share if number < _DEEP else min(2 * share, 1.0))

    def __call__(self, columns: IntArray, origin: FloatArray, step: FloatArray, number: int) -> NoisyCounts:
        bins_of = partial(_later_bins, columns=columns, origin=origin, step=step)
        mu, name = self.mu(len(columns), number), f"{self.name} {number}"
        return private_row_counts(self.numbers, bins_of, LATER_BINS, mu, name, self.noise)


@dataclass(frozen=True)
class _Seen:
    """What a later look says of its columns: where they lie, how far from there they may lie, how wide they are.

    ``widest`` is a spread that leaves no doubt, ``bin`` how fine the look was, and ``narrow`` the probability that they
    are narrower than it can tell; ``favourite`` that they have a favourite value instead, and ``away`` how far from it
    others are supposed to lie.
    """

    centre: FloatArray
    doubt: FloatArray
    spread: FloatArray
    widest: FloatArray
    bin: FloatArray
    away: FloatArray
    favourite: FloatArray
    narrow: FloatArray

    def only(self, chosen: BoolArray) -> "_Seen":
        """Leave out the other columns."""
        return _Seen(**{name: values[chosen] for name, values in vars(self).items()})


def _look_closer(
    look: _Look, sizes: Sizes, places: Places, asked: IntArray, budget: float
) -> tuple[Places, tuple[GaussianEvent, ...]]:
    """Look again at the columns ``asked`` about, and into the bins that all their rows share."""
    centre, spread, found = places.centre.copy(), places.spread.copy(), places.found.copy()
    events: list[GaussianEvent] = []
    seen: _Seen | None = None
    for number in range(2, MOST_LOOKS + 1):
        cost = look.mu(len(asked), number) ** 2
        if not len(asked) or cost > budget:
            break
        budget -= cost
        seen, event = _second(look, sizes, asked) if seen is None else _zoom(look, seen, asked, number)
        events.append(event)
        centre[asked], spread[asked] = seen.centre, seen.spread
        in_one_bin = seen.narrow > (_SHARES_A_SIZE if number == 2 else _SHARES_A_BIN)
        asked, seen = asked[in_one_bin], seen.only(in_one_bin)
    else:
        assert seen is not None
        found[asked] = seen.narrow < 0.5  # else narrower than anybody can tell: a constant
    return Places(centre, spread, places.bound, found), tuple(events)


def _second(look: _Look, sizes: Sizes, asked: IntArray) -> tuple[_Seen, GaussianEvent]:
    """Look at columns of one sign and size; those of negative numbers in a mirror, so that zero is to the left."""
    width, sign = sizes.size[asked] / BINS_OF_SIZE, sizes.sign[asked]
    origin = -ZERO_BIN * width * sign
    counts, shapes = look(asked, origin, width * sign, 2), second_shapes()
    weights = posterior(log_likelihood(counts, shapes.expected) + shapes.log_prior)
    mean, doubt, spread = shapes.moments(weights)
    narrow = weights @ (shapes.spread <= _NARROW_OF_SIZE * BINS_OF_SIZE)
    favourite = weights @ (shapes.others > 0)
    seen = _Seen(
        origin + width * sign * mean,
        width * np.maximum(doubt, 0.8),
        width * spread,
        width * np.sqrt(weights @ shapes.spread**2),
        width,
        AWAY * sizes.size[asked],
        favourite / (favourite + narrow + 1e-300),
        narrow,
    )
    return seen, counts.event


def _zoom(look: _Look, seen: _Seen, asked: IntArray, number: int) -> tuple[_Seen, GaussianEvent]:
    """Look into the bins that all rows of a column share."""
    in_sight = np.maximum(np.minimum(seen.spread, seen.bin / 2) / 4, 3 * seen.doubt / REACH)
    careful = np.clip(in_sight, seen.bin / _ZOOM, 0.4 * seen.bin)
    width = np.where(seen.narrow > _SURELY, seen.bin / _ZOOM, careful)
    counts, shapes = look(asked, seen.centre, width, number), zoom_shapes()
    off = shapes.mean * (width / seen.doubt)[:, None]
    too_wide = np.maximum(np.log2(shapes.spread * (width / seen.widest)[:, None]), 0.0)
    favourite = np.clip(seen.favourite, 1e-6, 1 - 1e-6)[:, None]
    odds = np.log(np.where(shapes.others > 0, favourite, 1 - favourite))
    prior = shapes.log_prior + odds - 0.5 * off**2 - 2 * too_wide**2
    weights = posterior(log_likelihood(counts, shapes.expected) + prior)
    mean, doubt, spread = shapes.moments(weights)
    others, favourite = weights @ shapes.others, weights @ (shapes.others > 0)
    narrow = weights @ ((shapes.others == 0) & (shapes.spread <= _NARROW_OF_BIN))
    # A favourite value says nothing of where the others are; and a column that does not fit in tells nothing new.
    fits_in = weights @ ((shapes.others == 0) & (shapes.spread <= _FITS_IN)) > 0.5
    spread = np.where(fits_in, width * spread, seen.spread)
    spread = np.where(favourite > 0.5, np.sqrt(others) * seen.away, spread)
    centre = np.where(fits_in | (favourite > 0.5), seen.centre + width * mean, seen.centre)
    widest = width * np.sqrt(weights @ shapes.spread**2)
    return (
        _Seen(
            centre,
            width * np.maximum(doubt, 0.3),
            spread,
            widest,
            width,
            seen.away,
            favourite,
            narrow,
        ),
        counts.event,
    )


def _later_bins(users: Users, columns: IntArray, origin: FloatArray, step: FloatArray) -> FloatArray:
    """Bins of some columns of rows, the outermost for whatever lies beyond; NaN for a null user."""
    with np.errstate(all="ignore"):
        away = np.rint((users.rows[:, columns].astype(np.float64) - origin) / step)
    return np.clip(away, LATER_BINS[0], LATER_BINS[-1])
