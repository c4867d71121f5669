"""A session's records as OpenTelemetry logs. Takes the extra ``otel``.

The SDK names its logs ``_logs``: they may still change. What is used of it is in this module.
Records go to an exporter without its processors, which leave out what comes too fast.
"""

from __future__ import annotations

import datetime as dt
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from opentelemetry._logs import LogRecord, SeverityNumber
from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter
from opentelemetry.sdk._logs import ReadableLogRecord
from opentelemetry.sdk._logs.export import LogRecordExportResult
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.util.instrumentation import InstrumentationScope

from cellblock import __version__

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from opentelemetry.sdk._logs.export import LogRecordExporter

    from cellblock.host.audit.log import Entry


#: Records that are sent at once.
_BATCH: Final = 500
#: Kinds that somebody should look at. A cell is one when it is not allowed.
_WARN: Final = frozenset({"crash", "gap", "kill", "lost", "refusals", "withheld"})
_ERROR: Final = frozenset({"failure"})
#: What is said elsewhere than in attributes.
_HEAD: Final = frozenset({"v", "kind", "time", "session"})
_SCOPE: Final = InstrumentationScope("cellblock.audit", __version__)


def exporter(endpoint: str | None) -> LogRecordExporter:
    """Return what sends logs by OTLP over HTTP; None is what the environment names.

    The variables are OpenTelemetry's: ``OTEL_EXPORTER_OTLP_ENDPOINT``, ``…_HEADERS``.
    """
    return OTLPLogExporter(endpoint=endpoint)


def export(entries: Iterable[Entry], session: str, to: LogRecordExporter) -> bool:
    """Send records in their order; say whether all were taken."""
    attributes = {"service.name": "cellblock", "service.version": __version__}
    resource = Resource.create(attributes | {"cellblock.session": session})
    left = iter(entries)
    try:
        while some := tuple(islice(left, _BATCH)):
            batch = [ReadableLogRecord(_record(entry), resource, _SCOPE) for entry in some]
            if to.export(batch) is not LogRecordExportResult.SUCCESS:
                return False
    finally:
        to.shutdown()
    return True


def _record(entry: Entry) -> LogRecord:
    severity = _severity(entry)
    fields = {key: value for key, value in entry.record.items() if key not in _HEAD}
    return LogRecord(
        timestamp=_nanoseconds(entry.record.get("time")),
        severity_number=severity,
        severity_text=severity.name,
        body=entry.kind,
        event_name=f"cellblock.{entry.kind}",
        attributes=dict(_flat(fields, "cellblock")),
    )


def _severity(entry: Entry) -> SeverityNumber:
    refused = entry.kind == "cell" and entry.record.get("decision") != "allowed"
    if entry.kind in _ERROR:
        return SeverityNumber.ERROR
    return SeverityNumber.WARN if refused or entry.kind in _WARN else SeverityNumber.INFO


def _nanoseconds(time: object) -> int:
    try:
        return int(dt.datetime.fromisoformat(str(time)).timestamp() * 1_000_000) * 1_000
    except ValueError:
        return 0


def _flat(values: Mapping[str, Any], name: str) -> Iterable[tuple[str, Any]]:
    """Yield attributes: dotted names, lists of what is no plain value by number."""
    for key, value in values.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{name}.{key}")
        elif isinstance(value, list) and any(isinstance(item, dict) for item in value):
            yield from _flat({str(n): item for n, item in enumerate(value)}, f"{name}.{key}")
        else:
            yield f"{name}.{key}", value
