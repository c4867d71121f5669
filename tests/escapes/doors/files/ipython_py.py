"""P2: a IPython.py beside the notebook runs in place of the real one."""

from support import doors

CONTROL = "loose"
prepare = doors.beside("IPython")
attack = doors.import_more
