# A file loaded.
# unseen: what it changes or prints is out of the witnesses' sight
%load @@SSH@@
