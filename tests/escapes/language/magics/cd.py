# The working folder.
# unseen: what it changes or prints is out of the witnesses' sight
%cd @@HOME@@
