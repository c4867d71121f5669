# A magic within %time.
%time get_ipython().run_line_magic("sx", "uname -r | rev")
