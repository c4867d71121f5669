# A file shown.
# unseen: what it changes or prints is out of the witnesses' sight
%pycat @@SSH@@
