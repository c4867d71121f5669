"""A style element that ends where another parser goes on."""

html(f"<style><!--</style><img src=x onerror={JS}>--></style><style><img title='</style><img src=x onerror={JS}>'></style>")
