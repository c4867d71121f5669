# A profile's statistics write and read files.
s = %prun -q -r 1+1
s.dump_stats("@@WDIR@@/stats")
