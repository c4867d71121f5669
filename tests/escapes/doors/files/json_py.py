"""P2: a json.py beside the notebook runs in place of the real one."""

from support import doors

CONTROL = "loose"
prepare = doors.beside("json")
attack = doors.import_more
