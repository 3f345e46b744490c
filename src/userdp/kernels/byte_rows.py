"""Gradients of users whose rows are bytes in each user's own units (:mod:`userdp.engines.quantized`).

Predictions and sums over rows are products of bytes: theta in the user's units, and the slopes of some rows, are
rounded to sixteen bits, 256 times one byte and another, and the products are added up as integers. A byte stands for
128 less than it is; what the 128 add up to is known and taken off.

Rows come four at a time and columns sixteen, as :mod:`userdp.kernels.octets` has them. A user begins with four rows
of their own. What lies beyond a user's last row is read, and has a slope of zero: behind the rows there must be sixteen
more.
"""

# mypy: ignore-errors

import numpy as np
from numba import njit

from userdp.kernels.float_rows import LONGEST_ROW
from userdp.kernels.lanes import (
    LANES,
    bytes_room,
    fetch,
    first_lane,
    fma,
    kept,
    larger,
    largest,
    load,
    magnitude,
    room,
    spread,
    store,
    total,
)
from userdp.kernels.octets import (
    OCTETS,
    as_lanes,
    by_column,
    columns_at,
    dot,
    joined,
    less,
    no_sums,
    octets_at,
    over_columns,
    put_octets,
    rows_at,
    split,
)
from userdp.kernels.slopes import OPTIONS, inlined, slope_of

# So many rows share a unit of slopes; they are predicted and then added up while the first cache holds them.
_ROWS = 64
# Rows are fetched so many bytes before they are needed; targets so many, and units so many users.
_AHEAD, _TARGETS_AHEAD, _USERS_AHEAD = 2**14, 256, 4
# Sums of 512 products of 127 and 32,512 are below 2^31; of longer rows theta is half as fine.
_FINEST, _FINE, _SHORT = np.float32(32512.0), np.float32(16256.0), 512
# Below this a number counts as zero: its reciprocal would be too large.
_LEAST, _ZERO, _ONE = np.float32(1e-30), np.float32(0.0), np.float32(1.0)
_WIDEST = 4 * LONGEST_ROW


@inlined
def _four_rows(x, here, units, theta_bytes):
    """Return ``<x, theta>`` of four rows, each in four parts: row r's are in lanes r, r + 4, r + 8 and r + 12."""
    high, low = theta_bytes
    highs = lows = no_sums()
    for unit in range(units):
        these = octets_at(x, here + OCTETS * unit)
        highs = dot(these, octets_at(high, OCTETS * unit), highs)
        lows = dot(these, octets_at(low, OCTETS * unit), lows)
    return joined(highs, lows)


@inlined
def _sixteen_rows(x, here, count, units, theta_bytes):
    """Return ``<x, theta>`` of sixteen rows; of the last ones something else, if there are not so many."""
    four, high, low = OCTETS * units, theta_bytes[0], theta_bytes[1]
    if count <= 4:
        return over_columns(_four_rows(x, here, units, theta_bytes), no_sums(), no_sums(), no_sums())
    h0 = h1 = h2 = h3 = l0 = l1 = l2 = l3 = no_sums()
    for place in range(0, four, OCTETS):
        highs, lows = octets_at(high, place), octets_at(low, place)
        x0, x1 = octets_at(x, here + place), octets_at(x, here + place + four)
        x2, x3 = octets_at(x, here + place + 2 * four), octets_at(x, here + place + 3 * four)
        h0, h1, h2, h3 = dot(x0, highs, h0), dot(x1, highs, h1), dot(x2, highs, h2), dot(x3, highs, h3)
        l0, l1, l2, l3 = dot(x0, lows, l0), dot(x1, lows, l1), dot(x2, lows, l2), dot(x3, lows, l3)
    return over_columns(joined(h0, l0), joined(h1, l1), joined(h2, l2), joined(h3, l3))


@inlined
def _add(x, here, ahead, count, four, width, slope_bytes, offset, unit, sums, j):
    """Add ``sum_i slopes_i x_i`` over some rows to the sums of two times sixteen columns, or of sixteen, from j on.

    Rows that will be read later are fetched meanwhile: the processor would wait for memory while it predicts, and
    memory for the processor while it adds up.
    """
    high, low = slope_bytes
    h0 = l0 = h1 = l1 = no_sums()
    for i in range(0, count, 4):
        highs, lows, these = rows_at(high, i), rows_at(low, i), by_column(octets_at(x, here))
        h0, l0 = dot(these, highs, h0), dot(these, lows, l0)
        fetch(x, ahead)
        if width > LANES:
            those = by_column(octets_at(x, here + OCTETS))
            h1, l1 = dot(those, highs, h1), dot(those, lows, l1)
            fetch(x, ahead + OCTETS)
        here += four
        ahead += 4 * width
    store(sums, j, LANES, fma(as_lanes(less(joined(h0, l0), offset)), unit, load(sums, j, LANES)))
    if width > LANES:
        found = as_lanes(less(joined(h1, l1), offset))
        store(sums, j + LANES, LANES, fma(found, unit, load(sums, j + LANES, LANES)))
    return ahead


@inlined
def _fineness(most, finest):
    """Return how many integers there are to one, and the reverse, for numbers up to the largest lane."""
    top = first_lane(largest(most))
    return (finest / top, top / finest) if top > _LEAST else (_ZERO, _ZERO)


@inlined
def _round_theta(point, units_of, first, wide, finest, scaled, high, low, theta_bytes):
    """Round theta in a user's units; return 128 times its sum, its unit, and NaN if it is not finite."""
    zero = spread(_ZERO)
    most, not_finite, together = zero, zero, np.int32(0)
    for j in range(0, wide, LANES):
        one = load(point, j, LANES) * load(units_of, first + j, LANES)
        fetch(units_of, first + j + _USERS_AHEAD * wide)
        store(scaled, j, LANES, one)
        most, not_finite = larger(most, magnitude(one)), fma(one, zero, not_finite)
    fineness, unit = _fineness(most, finest)
    for j in range(0, wide, LANES):
        together += split(high, low, j, load(scaled, j, LANES) * fineness)
        put_octets(theta_bytes[0], 4 * j, columns_at(high, j))
        put_octets(theta_bytes[1], 4 * j, columns_at(low, j))
    return np.int32(128 * together), unit, not_finite


@inlined
def _round_slopes(kind, y, first, count, a, b, slopes, slope_bytes):
    """Turn predictions into slopes, and round them; return what :func:`_round_theta` does."""
    zero = spread(_ZERO)
    most, not_finite, together = zero, zero, np.int32(0)
    for i in range(0, count, LANES):
        slope = kept(slope_of(kind, load(slopes, i, LANES), load(y, first + i, LANES), a, b), count - i)
        fetch(y, first + i + _TARGETS_AHEAD)
        store(slopes, i, LANES, slope)
        most, not_finite = larger(most, magnitude(slope)), fma(slope, zero, not_finite)
    fineness, unit = _fineness(most, _FINEST)
    for i in range(0, count, LANES):
        together += split(slope_bytes[0], slope_bytes[1], i, load(slopes, i, LANES) * fineness)
    return np.int32(128 * together), unit, not_finite


@njit(**OPTIONS)
def sum_users(n, d, x, y, items, theta, offsets, kind, a, b, units_of, gradients):
    """Set n users' gradients to the mean of ``slope_k x_k``; user u has ``items[u]`` rows from offsets[u] on.

    ``units_of`` has the units of their columns, as many as are a multiple of sixteen.
    """
    units = (d + LANES - 1) // LANES
    wide, four = LANES * units, OCTETS * units
    pairs = wide - wide % (2 * LANES)
    point, scaled, sums, slopes = room(LONGEST_ROW), room(LONGEST_ROW), room(LONGEST_ROW), room(_ROWS)
    high, low = bytes_room(LONGEST_ROW), bytes_room(LONGEST_ROW)
    theta_bytes = bytes_room(_WIDEST), bytes_room(_WIDEST)
    slope_bytes = bytes_room(_ROWS), bytes_room(_ROWS)
    finest = _FINEST if d <= _SHORT else _FINE
    for j in range(wide):
        point[j] = theta[j] if j < d else _ZERO
    for user in range(n):
        offset, unit, not_finite = _round_theta(
            point, units_of, user * wide, wide, finest, scaled, high, low, theta_bytes
        )
        for j in range(0, wide, LANES):
            store(sums, j, LANES, spread(_ZERO))
        start = offsets[user]
        end = start + items[user]
        for first in range(start, end, _ROWS):
            count, here = min(_ROWS, end - first), first // 4 * four
            for i in range(0, count, LANES):
                products = _sixteen_rows(x, here + i // 4 * four, count - i, units, theta_bytes)
                store(slopes, i, LANES, as_lanes(less(products, offset)) * unit)
            # After all predictions: many slopes are computed at once, where one takes long.
            shift, rise, bad = _round_slopes(kind, y, first, count, a, b, slopes, slope_bytes)
            ahead, rise, not_finite = here + _AHEAD, spread(rise), not_finite + bad
            for j in range(0, pairs, 2 * LANES):
                ahead = _add(
                    x, here + 4 * j, ahead, count, four, 2 * LANES, slope_bytes, shift, rise, sums, j
                )
            if pairs < wide:
                _add(x, here + 4 * pairs, ahead, count, four, LANES, slope_bytes, shift, rise, sums, pairs)
        # What is not finite makes the user null.
        not_finite, weight = total(not_finite), spread(_ONE / np.float32(max(items[user], 1)))
        for j in range(0, wide, LANES):
            gradient = fma(load(sums, j, LANES), weight * load(units_of, user * wide + j, LANES), not_finite)
            store(gradients, user * d + j, d - j, gradient)
