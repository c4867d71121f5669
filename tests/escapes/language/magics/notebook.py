# The history written to a file.
# unseen: what it changes or prints is out of the witnesses' sight
%notebook @@WDIR@@/n.ipynb
