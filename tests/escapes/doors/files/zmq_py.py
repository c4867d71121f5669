"""P2: a zmq.py beside the notebook runs in place of the real one."""

from support import doors

CONTROL = "loose"
prepare = doors.beside("zmq")
attack = doors.import_more
