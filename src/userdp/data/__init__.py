"""Tables keyed by user: ragged users, and the embedded demo table."""

from userdp.data.flights import load_flights
from userdp.data.users import Users

__all__ = ["Users", "load_flights"]
