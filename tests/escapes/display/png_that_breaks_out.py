"""An image's base64 that would end its attribute."""

show("image/png", f'iVBORw0KGgo=" onerror="{JS}')
show("image/jpeg", f'"><img src={URL}>')
