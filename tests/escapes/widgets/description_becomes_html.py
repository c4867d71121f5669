"""A description that passed as text and is said to be HTML afterwards."""

made = control("IntSlider", value=1, min=0, max=10, description=f"<img src='{URL}'>", description_allow_html=False)
update(made, description_allow_html=True)
