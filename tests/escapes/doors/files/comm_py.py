"""P2: a comm.py beside the notebook runs in place of the real one."""

from support import doors

CONTROL = "loose"
prepare = doors.beside("comm")
attack = doors.import_more
