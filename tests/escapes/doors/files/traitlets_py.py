"""P2: a traitlets.py beside the notebook runs in place of the real one."""

from support import doors

CONTROL = "loose"
prepare = doors.beside("traitlets")
attack = doors.import_more
