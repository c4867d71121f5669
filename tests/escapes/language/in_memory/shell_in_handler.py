# A command where an error is handled.
try:
    1 / 0
except ZeroDivisionError:
    !cat @@SSH@@
