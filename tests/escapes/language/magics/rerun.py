# Earlier input run once more.
# unseen: what it changes or prints is out of the witnesses' sight
%rerun 1
