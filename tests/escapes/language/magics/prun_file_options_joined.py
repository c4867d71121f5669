# A file option among others.
%prun -qD @@WDIR@@/p 1+1
