# A slash at the start calls.
# unseen: what it changes or prints is out of the witnesses' sight
/open "@@SSH@@"
