# A line that IPython would turn into a call.
# unseen: what it changes or prints is out of the witnesses' sight
open "@@SSH@@"
