"""A link that reports its click, and one that is fetched ahead."""

html(f"""<a href='#' ping='{URL}'>x</a><link rel=prefetch href='{URL}'><link rel=dns-prefetch href='{URL}'><link rel=preconnect href='{URL}'><link rel=prerender href='{URL}'><link rel=modulepreload href='{URL}'><script type=speculationrules>{{"prefetch":[{{"source":"list","urls":["{URL}"]}}]}}</script>""")
