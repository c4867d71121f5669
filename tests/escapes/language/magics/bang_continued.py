# A shell escape over a continued line.
# unseen: what it changes or prints is out of the witnesses' sight
x = \
  !uname -r | rev
