# A semicolon at the start quotes the rest.
# unseen: what it changes or prints is out of the witnesses' sight
;open @@SSH@@
