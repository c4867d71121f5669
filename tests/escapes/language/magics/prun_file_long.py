# A file option written after another option's argument.
%prun -s time -T @@WDIR@@/p 1+1
