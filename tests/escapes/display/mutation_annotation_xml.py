"""An annotation that is HTML only when its encoding says so."""

html(f"<math><annotation-xml encoding=text/html><style><img src=x onerror={JS}></style></annotation-xml></math><math><annotation-xml><style><img src=x onerror={JS}></annotation-xml></math>")
