# The environment.
%env
