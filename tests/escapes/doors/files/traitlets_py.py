"""P2: a traitlets.py beside the notebook runs in place of the real one."""

from support import doors

CONTROL = "loose"
prepare = doors.module_beside_notebook("traitlets")
attack = doors.cause_more_imports
