# A cell magic with an option it does not know.
# unseen: what it changes or prints is out of the witnesses' sight
%%html --isolated
<script src="file://@@SSH@@"></script>
