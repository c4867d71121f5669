# An extension.
# unseen: what it changes or prints is out of the witnesses' sight
%load_ext os
