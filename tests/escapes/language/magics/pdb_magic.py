# The debugger, switched on.
# unseen: what it changes or prints is out of the witnesses' sight
%pdb on
