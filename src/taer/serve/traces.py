"""Spans for OpenTelemetry, if its standard variables say where they go; otherwise nothing, which costs nothing.

Attributes are counts, versions, and names of tasks and folders. What people send is in none of them: no texts,
labels, vectors, headers or queries. So errors are told by their type alone.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

from taer import __version__
from taer.extras import require

ARRIVED = "taer.arrived"  # in a scope: when a request came that had to wait before its span, in ns
_VARIABLE = "OTEL_TRACES_EXPORTER"
_ENDPOINTS = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
_PROTOCOLS = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
_END_SECONDS = 3  # for the last spans, when the service stops
_off: AbstractContextManager[Any] = nullcontext()
_recorder: _Recorder | None = None


def start() -> None:
    """Record spans from now on, if the environment asks for it. Raises ValueError if it asks for what is not here."""
    global _recorder
    if _recorder is None and (exporters := _exporters()):
        _recorder = _Recorder(exporters)


def span(name: str, **attributes: str | int) -> AbstractContextManager[Any]:
    """What is done inside is a part of the request or task around it."""
    return _off if _recorder is None else _recorder.span(name, attributes)


def request(scope: Mapping[str, Any], headers: Mapping[bytes, bytes]) -> AbstractContextManager[Any]:
    """The span of a request, which goes on with the trace of the client. None inside, if nothing is recorded."""
    return _off if _recorder is None else _recorder.request(scope, headers)


def answered(span: Any, scope: Mapping[str, Any], status: int) -> None:
    """Complete the span of a request. Its path is not told, because a label may be in it; the route is a template."""
    method = scope["method"] if scope["method"] in METHODS else "_OTHER"
    route = getattr(scope.get("route"), "path", None)
    found = {"http.request.method": method, "http.route": route, "http.response.status_code": status}
    found |= {"url.scheme": scope.get("scheme"), "error.type": str(status) if status >= 500 else None}
    span.set_attributes({key: value for key, value in found.items() if value})
    span.update_name(f"{method.replace('_OTHER', 'HTTP')} {route or ''}".strip())
    if status >= 500 and _recorder is not None:
        _recorder.mark_failed(span)


def carry() -> dict[str, str] | None:
    """The current trace, for another process."""
    return None if _recorder is None else _recorder.carry()


def under(carrier: Mapping[str, str] | None) -> AbstractContextManager[Any]:
    """Spans inside belong to the trace that another process carried here."""
    return _off if _recorder is None or carrier is None else _recorder.under(carrier)


def flush() -> threading.Thread | None:
    """Begin to send what ended, without waiting for it."""
    return None if _recorder is None else _recorder.flush()


def end() -> None:
    """Send what ended, and wait a little for it."""
    if (sending := flush()) is not None:
        sending.join(_END_SECONDS)


def _exporters() -> list[str]:
    """Those that the standard variables ask for.

    Examples
    --------
    >>> _exporters()
    []
    """
    given = os.environ.get(_VARIABLE, "").strip()
    if os.environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true" or given == "none":
        return []
    if not given:
        return ["otlp"] if any(os.environ.get(name) for name in _ENDPOINTS) else []
    asked = list(dict.fromkeys(name.strip() for name in given.split(",")))
    if unknown := [name for name in asked if name not in ("otlp", "console")]:
        raise ValueError(f"{_VARIABLE}: expected otlp, console or none, got {unknown[0]}")
    return asked


class _Recorder:
    """The packages of OpenTelemetry, which are imported here and nowhere else."""

    def __init__(self, exporters: list[str]) -> None:
        sdk = require("opentelemetry.sdk.trace", "otel")
        export = require("opentelemetry.sdk.trace.export", "otel")
        resources = require("opentelemetry.sdk.resources", "otel")
        self._context = require("opentelemetry.context", "otel")
        self._trace = require("opentelemetry.trace", "otel")
        self._format = require(
            "opentelemetry.trace.propagation.tracecontext", "otel"
        ).TraceContextTextMapPropagator()
        named = resources.OTELResourceDetector().detect().attributes.get("service.name", "taer")
        about = resources.Resource.create({"service.name": named, "service.version": __version__})
        self._provider = sdk.TracerProvider(resource=about)
        for name in exporters:
            # The learner's standard output is its answers to the server.
            made = export.ConsoleSpanExporter(out=sys.stderr) if name == "console" else _otlp()
            self._provider.add_span_processor(export.BatchSpanProcessor(made))
        self._tracer = self._provider.get_tracer("taer", __version__)

    @contextmanager
    def span(self, name: str, attributes: Mapping[str, str | int], **options: Any) -> Iterator[Any]:
        named = {f"taer.{key}": value for key, value in attributes.items()}
        with self._tracer.start_as_current_span(
            name, attributes=named, record_exception=False, set_status_on_exception=False, **options
        ) as span:
            try:
                yield span
            except BaseException as error:
                span.set_attribute("error.type", type(error).__name__)  # its message may name a label
                self.mark_failed(span)
                raise

    @contextmanager
    def request(self, scope: Mapping[str, Any], headers: Mapping[bytes, bytes]) -> Iterator[Any]:
        names = (b"traceparent", b"tracestate")
        carrier = {name.decode(): headers[name].decode("latin-1") for name in names if name in headers}
        arrived, kind = scope.get(ARRIVED), self._trace.SpanKind.SERVER
        with self.under(carrier), self.span("HTTP", {}, kind=kind, start_time=arrived) as span:
            yield span

    def mark_failed(self, span: Any) -> None:
        span.set_status(self._trace.StatusCode.ERROR)

    def carry(self) -> dict[str, str]:
        carrier: dict[str, str] = {}
        self._format.inject(carrier)
        return carrier

    @contextmanager
    def under(self, carrier: Mapping[str, str]) -> Iterator[None]:
        token = self._context.attach(self._format.extract(carrier))
        try:
            yield
        finally:
            self._context.detach(token)

    def flush(self) -> threading.Thread:
        sending = threading.Thread(target=self._provider.force_flush, daemon=True)
        sending.start()
        return sending


def _otlp() -> Any:
    protocol = next((found for name in _PROTOCOLS if (found := os.environ.get(name))), "http/protobuf")
    if protocol != "http/protobuf":
        raise ValueError(f"{_PROTOCOLS[1]}: traces are sent with http/protobuf alone, got {protocol}")
    return require("opentelemetry.exporter.otlp.proto.http.trace_exporter", "otel").OTLPSpanExporter()
