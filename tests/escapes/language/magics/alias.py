# An alias of a command.
# unseen: what it changes or prints is out of the witnesses' sight
%alias u uname -r
