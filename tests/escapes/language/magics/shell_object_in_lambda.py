# The shell's function within a lambda.
s = (lambda: get_ipython)()()
s.system("uname -r | rev")
