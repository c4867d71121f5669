# C modules under their own names.
import _io, _thread, _posixsubprocess, posix
print("ESCAPED", posix.uname())
