# The package manager.
# unseen: what it changes or prints is out of the witnesses' sight
%pip --version
