"""The same within a drawing."""

html("<svg width=90 height=30 data-commandlinker-command='terminal:create-new' data-commandlinker-args='{}'><rect width=90 height=30 data-commandlinker-command='terminal:create-new' data-commandlinker-args='{}'/><a data-commandlinker-command='terminal:create-new' href='#'><text y=20>x</text></a></svg>")
