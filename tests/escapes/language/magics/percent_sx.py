# The magic behind the exclamation mark.
%sx uname -r | rev
