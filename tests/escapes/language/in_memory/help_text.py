# A text is imported.
# unseen: it prints a page
help("os")
help("modules")
