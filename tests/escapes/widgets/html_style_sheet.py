"""An HTML widget with a style sheet for the whole page, which loads an image."""

control("HTML", value=f"<style>body, .jp-Notebook {{background: url({URL})}}</style>text")
