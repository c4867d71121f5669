# A log file.
%logstart @@WDIR@@/log
