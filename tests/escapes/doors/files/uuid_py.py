"""P2: a uuid.py beside the notebook runs in place of the real one."""

from support import doors

CONTROL = "loose"
prepare = doors.beside("uuid")
attack = doors.import_more
