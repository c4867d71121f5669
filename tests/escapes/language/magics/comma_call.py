# A comma at the start quotes the arguments.
# unseen: what it changes or prints is out of the witnesses' sight
,open @@SSH@@
