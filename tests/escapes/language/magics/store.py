# A database of variables.
# unseen: what it changes or prints is out of the witnesses' sight
%store
