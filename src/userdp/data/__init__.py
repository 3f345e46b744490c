"""Tables keyed by user: readers, ragged users, and the embedded demo table."""

from userdp.data.flights import load_flights
from userdp.data.loading import UserTable, load_users, stream_features
from userdp.data.stored import StoredUsers
from userdp.data.storing import store_users
from userdp.data.tables import Table, read_table
from userdp.data.users import Users

__all__ = [
    "StoredUsers",
    "Table",
    "UserTable",
    "Users",
    "load_flights",
    "load_users",
    "read_table",
    "store_users",
    "stream_features",
]
