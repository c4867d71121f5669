"""Groups of modules that policies name as one: ``allowed_modules = ["@science"]``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

#: Each group's top-level packages, and what each is for. They are large, and not vetted line by
#: line: what they can do beyond what cells may say is the OS layer's to stop. Those not installed
#: are of no effect.
GROUPS: Final = {
    "@science": {
        "PIL": "images",
        "altair": "charts",
        "anywidget": "controls",
        "bokeh": "charts",
        "bqplot": "charts",
        "branca": "with folium",
        "comm": "what controls speak through",
        "cycler": "with matplotlib",
        "dateutil": "dates, with pandas",
        "dspy": "language-model programs",
        "folium": "maps; tiles would take a network",
        "getpass": "asks the user, through the front end",
        "ipywidgets": "controls",
        "joblib": "with sklearn",
        "matplotlib": "charts",
        "matplotlib_inline": "with matplotlib",
        "mpl_toolkits": "charts, with matplotlib",
        "narwhals": "tables of several kinds",
        "networkx": "graphs",
        "numexpr": "arrays, with pandas",
        "numpy": "arrays",
        "openpyxl": "spreadsheets, with pandas",
        "packaging": "version numbers",
        "pandas": "tables",
        "patsy": "formulas, with statsmodels",
        "plotly": "charts",
        "polars": "tables",
        "pyarrow": "tables and their files",
        "pydantic": "validation",
        "pydantic_core": "with pydantic",
        "pytz": "time zones, with pandas",
        "scipy": "numerics",
        "seaborn": "charts",
        "six": "with dateutil",
        "sklearn": "learning",
        "statsmodels": "statistics",
        "sympy": "algebra",
        "threadpoolctl": "with sklearn",
        "tqdm": "progress",
        "traitlets": "with ipywidgets",
        "typing_extensions": "type hints",
        "tzdata": "time zones, with pandas",
        "xarray": "labelled arrays",
    },
}
#: All of them: these need not be installed.
MEMBERS: Final = frozenset(name for group in GROUPS.values() for name in group)


def expanded(names: Iterable[Any]) -> list[Any]:
    """Return a list of modules with each group's members in its place; what is none stays."""
    lists = (GROUPS.get(name, (name,)) if isinstance(name, str) else (name,) for name in names)
    return list(dict.fromkeys(each for members in lists for each in members))
