# A cell magic spelt out.
get_ipython().run_cell_magic("bash", "", "uname -r | rev")
