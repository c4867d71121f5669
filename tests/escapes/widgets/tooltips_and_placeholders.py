"""Markup wherever a control takes text."""

for stem, state in {
    "Button": {"description": IMG(), "tooltip": IMG(), "icon": "check", "button_style": IMG()},
    "Dropdown": {"_options_labels": [IMG()], "index": 0},
    "RadioButtons": {"_options_labels": [IMG()], "index": 0, "orientation": IMG()},
    "Select": {"_options_labels": [IMG()], "index": 0, "rows": 3},
    "SelectionSlider": {"_options_labels": [IMG(), "b"], "index": 0, "behavior": IMG()},
    "Text": {"value": IMG(), "placeholder": IMG()},
    "Textarea": {"value": IMG(), "placeholder": IMG(), "rows": None},
    "Combobox": {"value": IMG(), "options": [IMG()], "ensure_option": False},
    "Valid": {"value": False, "readout": IMG()},
    "FileUpload": {"value": [], "accept": IMG(), "error": IMG(), "icon": "upload", "button_style": ""},
    "ColorPicker": {"value": f"url({URL})", "concise": False},
    "ColorsInput": {"value": [f"url({URL})"], "allowed_tags": [], "placeholder": "", "allow_duplicates": True},
}.items():
    control(stem, **{"description": IMG(), "tooltip": IMG(), "disabled": False, **state})
