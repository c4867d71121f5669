"""A date whose parts are markup."""

control("DatePicker", value=IMG(), min=IMG(), max=None, step=IMG(), disabled=False)
