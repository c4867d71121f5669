# A dollar in the argument of a listing magic.
# unseen: what it changes or prints is out of the witnesses' sight
%who $__import__("os").system("uname -r | rev")
