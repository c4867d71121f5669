"""A harmless display that a later cell turns into a script."""

display("loading", display_id=NAME)
# %%
update_display(HTML(f"<script>{JS}</script><img src='{URL}'>"), display_id=NAME)
