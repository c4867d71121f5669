"""What pages say is there is there: tests, files, fields of records."""

import re
from pathlib import Path

import msgspec

import cellblock
from cellblock.api import receipts
from cellblock.host.audit import records

ROOT = Path(__file__).parents[2]
ROWS = [
    line.rsplit("|", 2)[1]
    for line in (ROOT / "docs" / "threat-model.md").read_text().splitlines()
    if line.count("|") == 6 and ".py" in line
]
#: A file of tests, and after it the families of programs that it runs for the row.
CITED = re.compile(r"`([\w/]+(?:\.py)?)`(?: \(((?:`[\w*]+`(?:, )?)+))?")


def found(cited):
    return [
        path
        for folder in ("", "escapes", "jupyter/lab")
        if (path := ROOT / "tests" / folder / cited).exists()
    ]


def test_every_class_of_attacks_names_its_tests_which_exist():
    assert len(ROWS) > 30
    for cited, families in (each for cell in ROWS for each in CITED.findall(cell)):
        assert found(cited), cited
        for family in re.findall(r"`([\w*]+)`", families):
            programs = (ROOT / "tests" / "escapes").glob
            assert [*programs(f"**/{family}/*.py"), *programs(f"**/{family}.py")], family


def test_every_kind_of_audit_record_is_documented_with_its_fields():
    page = (ROOT / "docs" / "audit.md").read_text()
    rows = [line for line in page.splitlines() if line.count("|") == 4]
    for kind in records.Record.__subclasses__():
        tag = msgspec.inspect.type_info(kind).tag
        (row,) = (row for row in rows if f"`{tag}`" in row.split("|")[1])
        for field in kind.__struct_fields__:
            assert f"`{field}`" in row or kind is records.SessionStart, (tag, field)


def test_every_field_of_a_receipt_is_documented():
    page = (ROOT / "docs" / "receipts.md").read_text()
    rows = [line.split("|")[1] for line in page.splitlines() if line.count("|") == 3]
    for field in msgspec.structs.fields(receipts.Predicate):
        assert sum(f"`{field.encode_name}`" in row for row in rows) == 1, field.name


def test_every_public_name_is_in_the_api_reference():
    page = (ROOT / "docs" / "api-reference.md").read_text()
    listed = re.findall(r"autoclass:: cellblock\.(\w+)", page)
    assert sorted([*listed, "__version__"]) == sorted(cellblock.__all__)


def test_the_readme_leads_to_files_that_exist():
    linked = re.findall(r"\]\(([^):#]+)\)", (ROOT / "README.md").read_text())
    assert len(linked) > 20
    assert [path for path in linked if not (ROOT / path).exists()] == []


def test_no_page_waits_for_something_to_be_filled_in():
    for page in [ROOT / "README.md", *(ROOT / "docs").glob("**/*.md")]:
        assert re.findall(r"\b(?:MEASURED|TODO|TBD|FIXME|XXX)\b", page.read_text()) == [], page
