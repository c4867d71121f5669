"""JupyterLab runs commands that elements name in data attributes."""

html(f"""<button data-commandlinker-command='terminal:create-new' data-commandlinker-args='{{"name": "{NAME}"}}'>press</button> <a data-commandlinker-command='terminal:create-new' data-commandlinker-args='{{}}' href='#'>press</a> <p data-commandlinker-command='launcher:create' data-commandlinker-args='{{}}' tabindex=0>press</p> <b data-path=/etc/passwd data-locator=1 data-jupyter-id=x data-mime-type=x data-id=notebook:run-all-cells>x</b>""")
