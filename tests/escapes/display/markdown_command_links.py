"""JupyterLab's command links in Markdown."""

markdown('<button data-commandlinker-command="terminal:create-new" data-commandlinker-args="{}">press</button> <a href="#" data-commandlinker-command="terminal:create-new">press</a>')
