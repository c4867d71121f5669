# A macro made of earlier cells.
# unseen: what it changes or prints is out of the witnesses' sight
%macro m 1
