"""Records as OpenTelemetry logs: in order, with time, severity and flat attributes."""

import datetime as dt

import pytest

from cellblock.host.audit import log as chain
from cellblock.host.audit import records
from cellblock.host.audit.log import body

sdk = pytest.importorskip("opentelemetry.sdk._logs.export", reason="the extra otel is missing")
pytest.importorskip("opentelemetry.exporter.otlp.proto.http", reason="the extra otel is missing")

from cellblock.host.audit import otel  # noqa: E402 - after it is known that it can be imported


def entries(*given):
    prev = chain.FIRST
    for seq, record in enumerate(given):
        line, prev = chain.entry_line(body(record), seq=seq, session="s", prev=prev)
        yield chain.read(line)


def exported(*given):
    memory = sdk.InMemoryLogRecordExporter()
    made = list(entries(*given))
    assert otel.export(made, "s", memory)
    logs = memory.get_finished_logs()
    # The time is the record's own.
    for entry, log in zip(made, logs, strict=True):
        told = dt.datetime.fromisoformat(entry.record["time"]) - dt.datetime.fromtimestamp(
            0, dt.UTC
        )
        assert log.log_record.timestamp == told // dt.timedelta(microseconds=1) * 1_000
    return logs


def test_a_denied_cell_is_a_warning_with_its_findings():
    finding = records.Finding(rule="import-not-allowed", line=1, column=7, subject="os")
    cell = records.Cell(cell=3, count=2, sha256="ab", decision="denied", findings=(finding,))
    (log,) = exported(cell)
    told = log.log_record
    assert (told.body, told.event_name, told.severity_text) == ("cell", "cellblock.cell", "WARN")
    attributes = dict(told.attributes)
    assert len(attributes.pop("cellblock.hash")) == 64
    assert attributes == {
        "cellblock.seq": 0,
        "cellblock.prev": chain.FIRST,
        "cellblock.cell": 3,
        "cellblock.count": 2,
        "cellblock.sha256": "ab",
        "cellblock.decision": "denied",
        "cellblock.findings.0.rule": "import-not-allowed",
        "cellblock.findings.0.line": 1,
        "cellblock.findings.0.column": 7,
        "cellblock.findings.0.subject": "os",
    }
    assert log.resource.attributes["cellblock.session"] == "s"
    assert log.resource.attributes["service.name"] == "cellblock"


def test_severities_and_more_than_one_batch_in_order_and_whole():
    usual = records.Outcome(cell=1, status="ok", usage={"wall_seconds": 0.5})
    kill, failure = records.Kill(cell=1, why="timeout"), records.Failure(detail="x")
    texts = [str(number) for number in range(1_200)]
    logs = exported(usual, kill, failure, *(records.Notice(text=text) for text in texts))
    assert [log.log_record.severity_text for log in logs[:3]] == ["INFO", "WARN", "ERROR"]
    assert logs[0].log_record.attributes["cellblock.usage.wall_seconds"] == 0.5
    assert [log.log_record.attributes["cellblock.text"] for log in logs[3:]] == texts


def test_a_collector_that_takes_nothing_is_told_of():
    memory = sdk.InMemoryLogRecordExporter()
    memory.shutdown()
    assert not otel.export(entries(records.Notice(text="x")), "s", memory)
