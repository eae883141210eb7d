"""What a role did when, on its way through its log to whoever draws it."""

from __future__ import annotations

from itertools import count
from pathlib import Path

from distrl.telemetry.events import EventLog, read_events
from distrl.telemetry.spans import MOST, Span, Spans, spans_in


def ticking(step_s: float, *, date_step_s: float = 1.0) -> Spans:
    """Spans by clocks that move on at every look."""
    dates, clock = count(100.0, date_step_s), count(5.0, step_s)
    return Spans(clock=lambda: next(dates), monotonic=lambda: next(clock))


def test_spans_come_back_from_the_log_as_they_were(tmp_path: Path) -> None:
    spans, log = ticking(0.25), EventLog(tmp_path / "worker-0.jsonl")
    with spans.span("decides", 7):
        pass
    with spans.span("takes weights", 3):
        pass
    spans.write(log)
    spans.write(log)  # there is nothing new
    (event,) = read_events(tmp_path / "worker-0.jsonl")
    assert spans_in(event) == [Span("decides", 100.0, 0.25, 7), Span("takes weights", 101.0, 0.25, 3)]


def test_a_date_that_is_set_back_changes_no_length(tmp_path: Path) -> None:
    spans, log = ticking(0.5, date_step_s=-3600.0), EventLog(tmp_path / "worker-0.jsonl")
    with spans.span("decides"):
        pass
    spans.write(log)
    (event,) = read_events(tmp_path / "worker-0.jsonl")
    assert spans_in(event) == [Span("decides", 100.0, 0.5)]


def test_work_that_fails_has_its_span_too() -> None:
    spans, written = ticking(1.0), list[dict[str, object]]()

    class Log:
        def write(self, event: str, **values: object) -> None:
            written.append({"event": event, **values})

    try:
        with spans.span("updates", 16):
            raise ZeroDivisionError
    except ZeroDivisionError:
        spans.write(Log())
    assert written[0]["done"] == '[["updates",100.0,1.0,16]]'


def test_a_line_holds_so_many_and_says_how_many_are_missing(tmp_path: Path) -> None:
    spans, log = ticking(0.001), EventLog(tmp_path / "worker-0.jsonl")
    for _ in range(MOST + 5):
        with spans.span("decides", 1):
            pass
    spans.write(log)
    (event,) = read_events(tmp_path / "worker-0.jsonl")
    assert (len(spans_in(event)), event["missing"]) == (MOST, 5)


def test_a_damaged_line_has_none() -> None:
    assert spans_in({"event": "spans", "done": "[[1, 2"}) == []
    assert spans_in({"event": "spans", "done": '[["decides", "soon", 1, 1]]'}) == []
    assert spans_in({"event": "acknowledged", "done": "[]"}) == []
