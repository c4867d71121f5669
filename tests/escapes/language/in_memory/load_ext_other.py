# An extension beside the one without effect.
# unseen: what it loads is out of the witnesses' sight
%load_ext autoreload os
