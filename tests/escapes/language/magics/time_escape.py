# A shell escape within %time.
%time !uname -r | rev
