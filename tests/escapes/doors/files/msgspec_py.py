"""P2: a msgspec.py beside the notebook runs in place of the real one."""

from support import doors

CONTROL = "loose"
prepare = doors.beside("msgspec")
attack = doors.import_more
