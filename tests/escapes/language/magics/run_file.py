# A file run.
%run @@SSH@@
