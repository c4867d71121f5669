# The debugger.
# unseen: what it changes or prints is out of the witnesses' sight
%debug print(open)
