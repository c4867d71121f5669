"""P2: a cellblock.py beside the notebook runs in place of the real one."""

from support import doors

CONTROL = "loose"
prepare = doors.beside("cellblock")
attack = doors.import_more
